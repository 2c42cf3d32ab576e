package route_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"procaas/engine/budget"
	"procaas/handlers/balancer/route"
)

// A wire is a connection to a proxy, on which a test writes by hand.
type wire struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

// wireTo returns a connection to a proxy of one worker.
func wireTo(t *testing.T, o route.ProxyOptions, serve func(http.ResponseWriter, *http.Request)) *wire {
	t.Helper()
	b, w := newBoard(), newWorker(t, "w0")
	w.serve.Store(serve)
	w.take(t, 1)
	b.put(assignmentTo(1, 0, w))
	o.Patience = time.Minute
	c, err := net.Dial("tcp", newProxy(t, b, o).Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &wire{t, c, bufio.NewReader(c)}
}

func (w *wire) say(text string) {
	w.t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) reply() *http.Response {
	w.t.Helper()
	reply, err := http.ReadResponse(w.in, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { reply.Body.Close() })
	return reply
}

// TestProxyChangesNothingOfARequest compares what a worker reads with what was written.
func TestProxyChangesNothingOfARequest(t *testing.T) {
	t.Parallel()
	read := make(chan *http.Request, 1)
	w := wireTo(t, route.ProxyOptions{}, func(_ http.ResponseWriter, r *http.Request) { read <- r })
	for _, target := range []string{
		"/?key=user-1&filter=a;b&z=1", "/?filter=a;b;c&key=user-1", "/?key=user-1&bad=%zz&x=%", "/a%2Fb//c;d?key=user-1&&=&q", "/?key=user-1&s=a+b%20c",
	} {
		w.say("GET " + target + " HTTP/1.1\r\nHost: orders.test\r\nX-A: 1\r\nX-A: 2\r\nConnection: X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\n\r\n")
		r := <-read
		if r.RequestURI != target {
			t.Errorf("want the target %s, have %s", target, r.RequestURI)
		}
		want := "[1 2] [] [trailers] [] []"
		have := fmt.Sprint(r.Header["X-A"], r.Header["X-Hop"], r.Header["Te"], r.Header["Accept-Encoding"], r.Header["User-Agent"])
		if have != want {
			t.Errorf("want the headers %s, have %s", want, have)
		}
		if reply := w.reply(); reply.StatusCode != 200 {
			t.Errorf("have %s", reply.Status)
		}
	}
}

// TestProxyPassesTrailersAndHintsOn sends and receives trailers, and gets a provisional reply.
func TestProxyPassesTrailersAndHintsOn(t *testing.T) {
	t.Parallel()
	read := make(chan string, 1)
	w := wireTo(t, route.ProxyOptions{}, func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		read <- fmt.Sprintf("%s %v", body, r.Trailer)
		rw.Header().Set("Link", "</a.css>")
		rw.WriteHeader(http.StatusEarlyHints)
		rw.Header().Set("Trailer", "Sum")
		_, _ = io.WriteString(rw, "done")
		rw.Header().Set("Sum", "8")
		rw.Header().Set(http.TrailerPrefix+"Late", "9")
	})
	w.say("POST /?key=user-1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\n\r\n4\r\nbody\r\n0\r\nSum: 7\r\n\r\n")
	if have, want := <-read, "body map[Sum:[7]]"; have != want {
		t.Errorf("want %s, have %s", want, have)
	}
	reply, hints := w.reply(), 0
	for ; reply.StatusCode < 200; reply = w.reply() {
		if reply.StatusCode == http.StatusEarlyHints && reply.Header.Get("Link") != "" {
			hints++
		}
	}
	body, err := io.ReadAll(reply.Body)
	want := "200 OK done " + fmt.Sprint(http.Header{"Sum": {"8"}, "Late": {"9"}})
	if have := fmt.Sprintf("%s %s %v", reply.Status, body, reply.Trailer); err != nil || have != want || hints != 1 {
		t.Errorf("want %s after a hint, have %s after %d, %v", want, have, hints, err)
	}
}

// TestProxySwitchesProtocols echoes lines in another protocol, as WebSockets do.
func TestProxySwitchesProtocols(t *testing.T) {
	t.Parallel()
	attempts := make(chan int, 1)
	w := wireTo(t, route.ProxyOptions{Silence: time.Minute, Observe: func(_, n int) { attempts <- n }}, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "echo" {
			http.Error(rw, "no upgrade", http.StatusUpgradeRequired)
			return
		}
		rw.Header().Set("Upgrade", "echo")
		rw.Header().Set("Connection", "Upgrade")
		rw.WriteHeader(http.StatusSwitchingProtocols)
		c, both, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		line, _ := both.ReadString('\n')
		fmt.Fprint(c, "echo ", line)
	})
	w.say("GET /?key=user-1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if reply := w.reply(); reply.StatusCode != http.StatusSwitchingProtocols || reply.Header.Get("Upgrade") != "echo" {
		t.Fatalf("have %s", reply.Status)
	}
	if n := <-attempts; n != 1 {
		t.Errorf("want one attempt, have %d", n)
	}
	w.say("hello\n")
	if line, err := w.in.ReadString('\n'); err != nil || line != "echo hello\n" {
		t.Errorf("have %q, %v", line, err)
	}
}

// TestProxyPassesStreamsOnAsTheyCome has a caller and a worker that wait for each other's parts.
func TestProxyPassesStreamsOnAsTheyCome(t *testing.T) {
	t.Parallel()
	w := wireTo(t, route.ProxyOptions{}, func(rw http.ResponseWriter, r *http.Request) {
		out := http.NewResponseController(rw)
		_ = out.EnableFullDuplex()
		in := bufio.NewReader(r.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			fmt.Fprint(rw, "echo ", line)
			_ = out.Flush()
		}
	})
	w.say("POST /?key=user-1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
	reply := w.reply()
	for reply.StatusCode == http.StatusContinue {
		reply = w.reply()
	}
	lines := bufio.NewReader(reply.Body)
	for i, next := range []string{"4\r\ntwo\n\r\n", "0\r\n\r\n", ""} {
		line, err := lines.ReadString('\n')
		if want := []string{"echo one\n", "echo two\n", ""}[i]; line != want {
			t.Fatalf("want %q, have %q, %v", want, line, err)
		}
		w.say(next)
	}
}

// TestProxyLeavesASilentWorker has one that says nothing, and one that stops within its answer. A
// proxy may leave before the worker has read the request. Then it gets more time for the next one.
func TestProxyLeavesASilentWorker(t *testing.T) {
	t.Parallel()
	for _, begins := range []bool{false, true} {
		for silence := time.Millisecond; !leavesASilentWorker(t, silence, begins); silence *= 2 {
		}
	}
}

// leavesASilentWorker sends one request and reports whether the worker has read it.
func leavesASilentWorker(t *testing.T, silence time.Duration, begins bool) bool {
	t.Helper()
	came, left := make(chan struct{}), make(chan struct{})
	w := wireTo(t, route.ProxyOptions{Silence: silence}, func(rw http.ResponseWriter, r *http.Request) {
		close(came)
		if begins {
			_, _ = io.WriteString(rw, "half")
			_ = http.NewResponseController(rw).Flush()
		}
		<-r.Context().Done()
		close(left)
	})
	w.say("POST /?key=user-1 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
	reply, err := http.ReadResponse(w.in, nil)
	if err == nil {
		defer reply.Body.Close()
		body, broken := io.ReadAll(reply.Body)
		if err = broken; reply.StatusCode == 504 && !strings.Contains(string(body), "worker_failed") {
			t.Errorf("have %s, %q", reply.Status, body)
		}
	}
	// An answer that stops is cut off, possibly before its head has left the proxy.
	if cut := err != nil; cut && !begins || !cut && reply.StatusCode != 504 {
		t.Errorf("begins %v: have %v, %v", begins, reply, err)
	}
	select {
	case <-came:
		<-left
		return true
	default:
		return false
	}
}

// TestProxyKeepsNoMoreBodiesThanFit sends bodies that fit into the memory of the node, and some that do not.
func TestProxyKeepsNoMoreBodiesThanFit(t *testing.T) {
	t.Parallel()
	m := budget.New(8 << 20)
	one, _ := m.One()
	kept := make(chan int, 1)
	w := wireTo(t, route.ProxyOptions{Memory: m, Replay: 64 << 20}, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		kept <- m.Usage().Used[budget.Proxied]
	})
	for size, want := range map[int]int{1000: 1000, one: one, one + 1: 0} {
		go func() {
			fmt.Fprintf(w, "PUT /?key=user-1 HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size)
			_, _ = w.Write(bytes.Repeat([]byte("x"), size))
		}()
		if have := <-kept; have != want {
			t.Errorf("%d bytes: want %d kept, have %d", size, want, have)
		}
		if reply := w.reply(); reply.StatusCode != 200 {
			t.Errorf("%d bytes: have %s", size, reply.Status)
		}
	}
}
