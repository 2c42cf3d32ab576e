package api_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine/api"
	"procaas/engine/api/transport"
)

// piped serves connections in memory, so that a synctest bubble can hold both
// ends of them.
type piped struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *piped) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *piped) Close() error { l.once.Do(func() { close(l.done) }); return nil }

func (*piped) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (l *piped) dial() net.Conn {
	here, there := net.Pipe()
	l.conns <- there
	return here
}

// TestSlowAndSilentClientsAreCut checks the time of each way to hold a connection,
// in virtual time, and no more.
func TestSlowAndSilentClientsAreCut(t *testing.T) {
	t.Parallel()
	b := taxi(t)
	const head = "POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	for name, c := range map[string]struct {
		send  []string      // piece by piece
		every time.Duration // a piece
		then  string        // without end, at the same pace
		deaf  bool          // does not read
		want  time.Duration // until the connection is cut
	}{
		"silent":                {nil, 0, "", false, 2 * time.Second},
		"half a line":           {[]string{"POST /v1/ev"}, 0, "", false, 2 * time.Second},
		"half a header":         {[]string{head}, 0, "", false, 2 * time.Second},
		"a header byte by byte": {[]string{head + "X: "}, 400 * time.Millisecond, "x", false, 2 * time.Second},
		"headers without end":   {[]string{head}, 100 * time.Millisecond, "X: y\r\n", false, 2 * time.Second},
		"half a body":           {[]string{head + "Content-Length: 100\r\n\r\n", `{"type": `}, 0, "", false, 5 * time.Second},
		"a body byte by byte":   {[]string{head + "Content-Length: 100\r\n\r\n"}, time.Second, " ", false, 5 * time.Second},
		"idle after a request":  {[]string{"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"}, 0, "", false, 30 * time.Second},
		"slow between requests": {
			[]string{"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "GET /healthz"},
			20 * time.Second, "", false,
			22 * time.Second,
		},
		"deaf":                   {[]string{"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"}, 0, "", true, 10 * time.Second},
		"deaf, and pipelines on": {[]string{strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n", 3)}, 0, "", true, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake(b)
				l := &piped{conns: make(chan net.Conn), done: make(chan struct{})}
				srv := transport.Server(api.New(api.Options{Engine: portsOf(f)}), slog.New(slog.DiscardHandler))
				served := make(chan error, 1)
				go func() { served <- srv.Serve(l) }()
				start := time.Now()
				conn := l.dial()
				cut := make(chan struct{})
				if !c.deaf {
					go func() {
						_, _ = io.Copy(io.Discard, conn)
						close(cut)
					}()
				}
				err := drip(conn, c.send, c.every, c.then)
				if c.deaf {
					for err == nil { // the connection takes what is sent until it is cut
						time.Sleep(100 * time.Millisecond)
						_, err = conn.Write([]byte("x"))
					}
				} else {
					<-cut
				}
				if took := time.Since(start); took < c.want || took > c.want+time.Second {
					t.Errorf("want the connection cut after %s, have %s", c.want, took)
				}
				if len(f.seen) != 0 {
					t.Errorf("have %d events, want none", len(f.seen))
				}
				_ = conn.Close()
				_ = srv.Close()
				<-served
			})
		})
	}
}

// drip sends pieces, and then one without end until it is not taken.
func drip(w io.Writer, pieces []string, every time.Duration, then string) error {
	for i, p := range pieces {
		if i > 0 {
			time.Sleep(every)
		}
		if _, err := io.WriteString(w, p); err != nil {
			return err
		}
	}
	for then != "" {
		time.Sleep(every)
		if _, err := io.WriteString(w, then); err != nil {
			return err
		}
	}
	return nil
}

// TestManySlowClientsHoldNobodyUp opens hundreds of real connections that send
// their headers drop by drop, and serves others meanwhile.
func TestManySlowClientsHoldNobodyUp(t *testing.T) {
	t.Parallel()
	f := newFake(taxi(t))
	addr := serve(t, api.New(api.Options{Engine: portsOf(f)}))
	var slow sync.WaitGroup
	defer slow.Wait()
	for range 300 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		slow.Go(func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			go func() { _, _ = io.WriteString(c, "POST /v1/events HTTP/1.1\r\nHost: x\r\nX-Slow: ") }()
			if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("a slow client was held for a minute")
			}
		})
	}
	for i := range 20 {
		body := fmt.Sprintf(`{"type": "new-order-created", "id": "e-%d", "key": "k"}`, i)
		reply, err := http.Post("http://"+addr+"/v1/events", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
		if reply.StatusCode != http.StatusAccepted {
			t.Errorf("have %s, want the event accepted while others are slow", reply.Status)
		}
	}
}

// TestOddRequestsGetPlainAnswers sends what no client of ours would, byte by byte.
func TestOddRequestsGetPlainAnswers(t *testing.T) {
	t.Parallel()
	f := newFake(taxi(t))
	addr := serve(t, api.New(api.Options{Engine: portsOf(f), MaxBody: 1 << 10, Local: true}))
	const end = "Host: localhost\r\nConnection: close\r\n"
	event := `{"type": "new-order-created", "key": "k"}`
	post := func(contentType, body string) string {
		return "POST /v1/events HTTP/1.1\r\n" + end + "Content-Type: " + contentType + fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n",
			len(body)) + body
	}
	for name, c := range map[string]struct{ request, want string }{
		"headers of 32 KiB": {"GET /healthz HTTP/1.1\r\n" + end + "X: " + strings.Repeat("x", 32<<10) + "\r\n\r\n", "431"},
		"many headers":      {"GET /healthz HTTP/1.1\r\n" + end + strings.Repeat("X-A: yyyyyyyyyyyyyyyy\r\n", 2000) + "\r\n", "431"},
		"a body too large": {
			"POST /v1/events HTTP/1.1\r\n" + end + "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n",
			"413",
		},
		"a line too long":      {"GET /" + strings.Repeat("x", 32<<10) + " HTTP/1.1\r\n" + end + "\r\n", "431"},
		"HTTP/2":               {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "404"},
		"HTTP/1.2":             {"GET /healthz HTTP/1.2\r\n" + end + "\r\n", "200"},
		"an odd method":        {"get /healthz HTTP/1.1\r\n" + end + "\r\n", "405"},
		"a method of its own":  {"SHUTDOWN / HTTP/1.1\r\n" + end + "\r\n", "405"},
		"a tunnel":             {"CONNECT 10.0.0.1:25 HTTP/1.1\r\n" + end + "\r\n", "404"},
		"another server's URL": {"GET http://10.0.0.1/latest/meta-data HTTP/1.1\r\n" + end + "\r\n", "404"},
		"another host's URL":   {"GET http://evil.example/admin/v1/nodes HTTP/1.1\r\n" + end + "\r\n", "421"},
		"no host":              {"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", "400"},
		"upwards":              {"GET /v1/../../etc/passwd HTTP/1.1\r\n" + end + "\r\n", "404"},
		"upwards, escaped":     {"GET /v1/runs/..%2f..%2fetc%2fpasswd HTTP/1.1\r\n" + end + "\r\n", "404"},
		"a zero byte":          {"GET /v1/runs/%00 HTTP/1.1\r\n" + end + "\r\n", "400"},
		"no percent":           {"GET /v1/runs/%zz HTTP/1.1\r\n" + end + "\r\n", "400"},
		"what forms send":      {post("application/x-www-form-urlencoded", "type=new-order-created"), "415"},
		"what pages may send":  {post("text/plain", event), "415"},
		"no type":              {"POST /v1/events HTTP/1.1\r\n" + end + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(event)) + event, "415"},
		"a form to retry": {"POST /v1/runs/run-1/retry HTTP/1.1\r\n" + end +
			"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 3\r\n\r\na=b", "415"},
		"an empty form to reload": {"POST /admin/v1/reload HTTP/1.1\r\n" + end +
			"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 0\r\n\r\n", "415"},
		"another site's page": {
			"POST /admin/v1/reload HTTP/1.1\r\n" + end + "Origin: https://evil.example\r\nContent-Length: 0\r\n\r\n",
			"403",
		},
		"another site's picture": {"DELETE /admin/v1/tokens/ann HTTP/1.1\r\n" + end + "Sec-Fetch-Site: cross-site\r\n\r\n", "403"},
		"a question for leave": {"OPTIONS /v1/events HTTP/1.1\r\n" + end +
			"Origin: https://evil.example\r\nAccess-Control-Request-Method: POST\r\n\r\n", "405"},
	} {
		reply, err := exchange(addr, c.request)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		status, _, _ := strings.Cut(strings.TrimPrefix(reply, "HTTP/1.1 "), " ")
		if status != c.want {
			t.Errorf("%s: want %s, have %.200q", name, c.want, reply)
		}
		if strings.Contains(reply, "Access-Control-Allow") {
			t.Errorf("%s: another site is allowed in: %q", name, reply)
		}
	}
	if len(f.seen) != 0 {
		t.Errorf("have %d events, want none", len(f.seen))
	}
}

// exchange sends bytes and returns all that comes back.
func exchange(addr, request string) (string, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, request); err != nil {
		return "", err
	}
	reply, err := io.ReadAll(c)
	if len(reply) > 0 {
		err = nil // a reset behind an answer is as good
	}
	return string(reply), err
}
