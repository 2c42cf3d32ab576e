package outbound

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"procaas/dsl"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// A canary counts the connections that reach this machine.
func canary(t *testing.T) (port string, reached *atomic.Int32) {
	t.Helper()
	reached = new(atomic.Int32)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			reached.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, reached
}

// resolver answers questions for names: by the addresses given, one for each
// question, the last one for all further ones.
func resolver(t *testing.T, names map[string][]string) *net.Resolver {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { c.Close(); <-done })
	go func() {
		defer close(done)
		asked := map[string]int{}
		for buf := make([]byte, 512); ; {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(dnsReply(buf[:n], names, asked), from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", c.LocalAddr().String())
	}}
}

// dnsReply answers one question for the address of a name.
func dnsReply(question []byte, names map[string][]string, asked map[string]int) []byte {
	end, labels := 12, []string(nil)
	for question[end] != 0 {
		n := int(question[end])
		labels = append(labels, string(question[end+1:end+1+n]))
		end += n + 1
	}
	end += 5 // the root's label, type and class
	name, kind := strings.Join(labels, "."), question[end-3]
	reply := append(slices.Clone(question[:2]), 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0)
	reply = append(reply, question[12:end]...)
	list := names[name]
	if len(list) == 0 {
		return reply
	}
	a := netip.MustParseAddr(list[min(asked[name], len(list)-1)])
	if isA := kind == 1; isA != a.Is4() {
		return reply
	}
	asked[name]++
	reply[7] = 1
	reply = append(reply, 0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 0, 0, byte(a.BitLen()/8))
	return append(reply, a.AsSlice()...)
}

// TestBadTargetsAreNotReached asks for what attackers ask for, each on its own
// and by a redirect from a host that is allowed.
func TestBadTargetsAreNotReached(t *testing.T) {
	t.Parallel()
	port, reached := canary(t)
	targets := []string{
		"127.0.0.1:PORT", "127.0.0.2:PORT", "127.1:PORT", "127.0.1:PORT", "2130706433:PORT", "0x7f000001:PORT", "0x7f.1:PORT", "0177.0.0.1:PORT",
		"017700000001:PORT", "127.000.000.001:PORT", "0.0.0.0:PORT", "0:PORT", "localhost:PORT", "LOCALHOST.:PORT", "①②⑦.0.0.1:PORT",
		"127。0。0。1:PORT",
		"[::1]:PORT", "[::]:PORT", "[0:0:0:0:0:0:0:1]:PORT", "[::ffff:127.0.0.1]:PORT", "[::ffff:7f00:1]:PORT", "[::127.0.0.1]:PORT",
		"[64:ff9b::7f00:1]:PORT", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]:PORT", "[2002:a9fe:a9fe::]",
		"[2001:0:7f00:1::]:PORT",
		"169.254.169.254", "169.254.170.2", "[::ffff:169.254.169.254]", "[fe80::1]", "[fe80::1%25lo]:PORT", "[fd00:ec2::254]", "100.100.100.200",
		"168.63.129.16", "192.0.0.192", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "[fd00::1]", "[fec0::1]",
		"198.18.0.1", "192.0.2.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "[ff02::1]", "[100::1]", "[5f00::1]",
		"inside.test:PORT", "inside6.test:PORT", "rebinding.test:PORT", "metadata.test", "mapped.test:PORT",
		":PORT", "user@127.0.0.1:PORT", "127.0.0.1:PORT#@public.test", "127.0.0.1:PORT?@public.test", `127.0.0.1:PORT\@public.test`,
		"203.0.113.7:22", "93.184.216.34:25", "[2606:2800:220:1::1]:6",
	}
	f := &fence{declared: hostSet{}, written: hostSet{}}
	f.dialer.Resolver = resolver(t, map[string][]string{
		"inside.test": {"127.0.0.1"}, "inside6.test": {"::1"}, "metadata.test": {"169.254.169.254"},
		"rebinding.test": {"127.0.0.1", "127.0.0.1"}, "mapped.test": {"::ffff:127.0.0.1"},
	})
	client := clientOf(newTransport(f, Reach{}))
	t.Cleanup(client.CloseIdleConnections)
	for _, scheme := range []string{"http", "https"} {
		for _, target := range targets {
			url := scheme + "://" + strings.ReplaceAll(target, "PORT", port) + "/latest/meta-data"
			resp, err := client.Get(url)
			if err == nil {
				resp.Body.Close()
				t.Errorf("%s was reached", url)
			} else if strings.Contains(err.Error(), "timeout") || strings.Contains(err.Error(), "unreachable") {
				t.Errorf("%s was tried: %v", url, err)
			}
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

// TestNameThatMovesIsCheckedWhenItIsDialled lets a name resolve to a public
// address first, and to this machine from then on.
func TestNameThatMovesIsCheckedWhenItIsDialled(t *testing.T) {
	t.Parallel()
	port, reached := canary(t)
	f := &fence{declared: hostSet{}, written: hostSet{}}
	f.dialer.Resolver = resolver(t, map[string][]string{"moves.test": {"93.184.216.34", "127.0.0.1"}})
	if ips, err := f.dialer.Resolver.LookupNetIP(t.Context(), "ip4", "moves.test"); err != nil || NotPublic(ips[0]) != "" {
		t.Fatalf("want a public address at first, have %v, %v", ips, err)
	}
	_, err := f.dial(t.Context(), "tcp", "moves.test:"+port)
	if !isRefused(err) || !strings.Contains(err.Error(), "has the address 127.0.0.1, which is loopback") {
		t.Errorf("want the address of the moment refused for good, have %v", err)
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

func TestRedirectIsCheckedAsAnyRequest(t *testing.T) {
	t.Parallel()
	port, reached := canary(t)
	outside := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:"+port+"/", http.StatusFound))
	t.Cleanup(outside.Close)
	for name, r := range map[string]Reach{"declared": {Declared: []string{outside.URL}}, "written": {Written: []string{outside.URL}}} {
		client := NewClient(r)
		client.CheckRedirect = nil // follow
		resp, err := client.Get(outside.URL)
		if err == nil {
			resp.Body.Close()
		}
		if !isRefused(err) || reached.Load() != 0 {
			t.Errorf("%s: want the redirect refused, have %v and %d connections", name, err, reached.Load())
		}
		client.CloseIdleConnections()
	}
}

func TestWhatIsDeclaredOrWrittenIsReached(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(s.Close)
	for name, c := range map[string]struct {
		r    Reach
		want bool
	}{
		"declared":      {Reach{Declared: []string{s.URL}}, true},
		"written":       {Reach{Written: []string{s.URL + "/v1"}}, true},
		"nothing":       {Reach{}, false},
		"another port":  {Reach{Written: []string{"http://127.0.0.1:1"}}, false},
		"other service": {Reach{Declared: []string{"http://orders.test"}, Written: []string{s.URL}}, false},
	} {
		client := NewClient(c.r)
		resp, err := client.Get(s.URL)
		if err == nil {
			resp.Body.Close()
		}
		if (err == nil) != c.want {
			t.Errorf("%s: want reached %v, have %v", name, c.want, err)
		}
		client.CloseIdleConnections()
	}
}

func TestWrittenHostsMayOnlyBeOnThisMachine(t *testing.T) {
	t.Parallel()
	f := &fence{declared: hostSet{}, written: hostsOf([]string{"http://localhost:81"})}
	for address, want := range map[string]bool{
		"127.0.0.1:81": true, "[::1]:81": true, "93.184.216.34:81": true, "[2606:2800:220:1::1]:81": true,
		"10.0.0.1:81": false, "169.254.169.254:81": false, "0.0.0.0:81": false, "nothing": false,
	} {
		if have := f.checkAddress("LOCALHOST:81", address) == nil; have != want {
			t.Errorf("%s: want %v, have %v", address, want, have)
		}
	}
	for address, want := range map[string]bool{
		"93.184.216.34:80": true, "93.184.216.34:443": true, "93.184.216.34:8080": true, "93.184.216.34:25": false, "127.0.0.1:80": false,
		"[::ffff:93.184.216.34]:80": true,
	} {
		if have := f.checkAddress("elsewhere.test:80", address) == nil; have != want {
			t.Errorf("%s: want %v, have %v", address, want, have)
		}
	}
}

// TestWrittenNamesDoNotLeadToThisMachine writes a name into a file that others may point anywhere.
func TestWrittenNamesDoNotLeadToThisMachine(t *testing.T) {
	t.Parallel()
	port, reached := canary(t)
	for host, c := range map[string]struct {
		targets []string // allowed by the operator
		want    bool
	}{
		"inside.test": {}, "INSIDE.test": {}, "metadata.test": {}, "notlocalhost": {}, "localhost.test": {},
		"127.0.0.1": {want: true}, "localhost": {want: true}, "orders.localhost": {want: true},
		"named.test": {targets: []string{"named.test"}, want: true}, "ranged.test": {targets: []string{"127.0.0.0/8"}, want: true},
	} {
		targets, err := ParseTargets(c.targets)
		if err != nil {
			t.Fatal(err)
		}
		url := "http://" + host + ":" + port
		r := Reach{Written: []string{url}, Targets: targets}
		f := newFence(r)
		here := []string{"127.0.0.1"}
		f.dialer.Resolver = resolver(t, map[string][]string{
			"inside.test": here, "INSIDE.test": here, "metadata.test": {"169.254.169.254"}, "notlocalhost": here, "localhost.test": here,
			"orders.localhost": here, "named.test": here, "ranged.test": here,
		})
		client := clientOf(newTransport(f, r))
		before := reached.Load()
		resp, err := client.Get(url)
		if err == nil {
			resp.Body.Close()
		}
		if have := reached.Load() > before; have != c.want || (err == nil) != c.want || !c.want && !isRefused(err) {
			t.Errorf("%s: want it reached: %v, have %v, %v", host, c.want, have, err)
		}
		client.CloseIdleConnections()
	}
}

// TestRedirectDoesNotUseWhatAuthorsMayReach redirects to a host of this machine that another handler names, and to which
// a connection is open.
func TestRedirectDoesNotUseWhatAuthorsMayReach(t *testing.T) {
	t.Parallel()
	port, reached := canary(t)
	inside := "http://127.0.0.1:" + port
	outside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, inside, http.StatusFound)
		case "/home":
			http.Redirect(w, r, "/end", http.StatusFound)
		}
	}))
	t.Cleanup(outside.Close)
	for name, c := range map[string]struct {
		r    Reach
		path string
		want bool
	}{
		"away":              {Reach{Written: []string{outside.URL, inside}}, "/away", false},
		"home":              {Reach{Written: []string{outside.URL, inside}}, "/home", true},
		"away, declared":    {Reach{Declared: []string{outside.URL, inside}}, "/away", true},
		"away, by a target": {Reach{Written: []string{outside.URL, inside}, Targets: &Targets{networks: loopbacks}}, "/away", true},
	} {
		client := NewClient(c.r)
		client.CheckRedirect = nil // follow
		resp, err := client.Get(inside)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		before := reached.Load()
		resp, err = client.Get(outside.URL + c.path)
		if err == nil {
			resp.Body.Close()
		}
		if (err == nil) != c.want || !c.want && !isRefused(err) || reached.Load() != before {
			t.Errorf("%s: want it followed: %v, have %v and %d more connections", name, c.want, err, reached.Load()-before)
		}
		client.CloseIdleConnections()
	}
}

// loopbacks are this machine's own addresses.
var loopbacks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

func TestURLsThatAuthorsWrite(t *testing.T) {
	t.Parallel()
	yaml := `pipelines:
  - id: p
    stages:
      - id: s
        handlers:
          - {id: a, request: {url: "http://127.0.0.1:1/x"}}
          - {id: b, request: {url: !$ "'HTTP://127.0.0.1:2' + event.payload.path"}}
          - {id: c, request: {url: !$ "event.payload.test ? 'http://127.0.0.1:3/x' : \"http://127.0.0.1:4?q\""}}
          - {id: d, request: {url: !$ event.payload.url, body: {url: "http://127.0.0.1:5"}}}
`
	b, found := dsl.Load([]diag.File{{Name: "a.yaml", Data: []byte(yaml)}}, dsl.Options{Types: []tree.Type{{
		Name: "request", Spec: &spec.Spec{Fields: []*spec.Field{{Name: "url", Kind: datum.StringKind}, {Name: "body"}}},
	}}})
	if b == nil {
		t.Fatal(found)
	}
	have := fmt.Sprint(writtenURLs(b))
	if want := "[http://127.0.0.1:1 HTTP://127.0.0.1:2 http://127.0.0.1:3 http://127.0.0.1:4]"; have != want {
		t.Errorf("want %s, have %s", want, have)
	}
}
