package outbound

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"

	"procaas/engine/enginetest/patience"
)

// The tests of this file are what the tests of net/http promise of its transport, for all schedules.

// reset makes the end of a connection a reset.
func (e *exchange) reset() { _ = e.conn.(*net.TCPConn).SetLinger(0) }

// within bounds a request, so that one that hangs has an error of its own.
func within(t *testing.T, url string) *http.Request {
	t.Helper()
	ctx, cancel := patience.Context(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return post(ctx, t, url, "{}")
}

// hung reports whether an error is the end of a wait, and not what the service did.
func hung(r *http.Request, err error) bool {
	return r.Context().Err() != nil || errors.Is(err, errMissed)
}

// TestEndOfAConnectionIsNoticedWhereverItIs closes and resets connections at each moment, and at each byte of replies.
func TestEndOfAConnectionIsNoticedWhereverItIs(t *testing.T) {
	onEachSchedule(t, func(t *testing.T, on schedule) {
		for name, c := range map[string]struct {
			endsFirst bool
			script    func(e *exchange)
		}{
			"before the request":           {true, func(*exchange) {}},
			"with a reset, before it":      {true, func(e *exchange) { e.reset() }},
			"in the request":               {false, func(e *exchange) { _, _ = io.ReadFull(e.in, make([]byte, 4)) }},
			"with a reset, in the request": {false, func(e *exchange) { _, _ = e.conn.Read(make([]byte, 4)); e.reset() }},
			"after the request":            {false, func(e *exchange) { e.next() }},
			"with a reset, after it":       {false, func(e *exchange) { e.next(); e.reset() }},
		} {
			t.Run(name, func(t *testing.T) {
				s := startScripted(t, c.script)
				s.endsFirst.Store(c.endsFirst)
				client, _ := on.client(t, s)
				r := within(t, s.url)
				if got, err := said(client, r); err == nil || hung(r, err) {
					t.Errorf("want the end noticed, have %q, %v", got, err)
				}
				if n := s.connections.Load(); n != 1 {
					t.Errorf("want the request on one connection, have %d", n)
				}
			})
		}
		for name, reply := range map[string]string{
			"a length": "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
			"chunks":   "HTTP/1.1 103 Early\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\n\r\n4\r\nbody\r\n0\r\nSum: 7\r\n\r\n",
			"gzip": fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(zipped("body")),
				zipped("body")),
		} {
			t.Run("in a reply with "+name, func(t *testing.T) {
				s := startScripted(t, func(e *exchange) { // one end for each connection
					e.next()
					if e.number%2 == 0 {
						e.reset()
					}
					e.say(reply[:(e.number-1)/2])
				})
				client, _ := on.client(t, s)
				for i := range 2 * len(reply) {
					r := within(t, s.url)
					if got, err := said(client, r); err == nil || hung(r, err) {
						t.Fatalf("want the end after %q noticed, have %q, %v", reply[:i/2], got, err)
					}
				}
				if got, err := said(client, within(t, s.url)); err != nil || got != "200 body" {
					t.Errorf("want the whole reply read, have %q, %v", got, err)
				}
			})
		}
	})
}

// unkeyed is a request that may take effect twice if it is repeated.
func unkeyed(t *testing.T, url string) *http.Request {
	t.Helper()
	r := within(t, url)
	r.Header.Del("Idempotency-Key")
	return r
}

// TestStaleConnectionsAreReplaced ends the connection on which the first request was made, while it is idle, or when the
// client has just taken it for the next request.
func TestStaleConnectionsAreReplaced(t *testing.T) {
	onEachSchedule(t, func(t *testing.T, on schedule) {
		for name, c := range map[string]struct {
			request func(*testing.T, string) *http.Request
			taken   bool // the client has taken the connection
			reset   bool // so that nothing of the request can be sent
			want    string
		}{
			"idle":                        {request: unkeyed, want: "200 ok"},
			"idle, with a reset":          {request: unkeyed, reset: true, want: "200 ok"},
			"taken":                       {request: within, taken: true, want: "200 ok"},
			"taken, with a reset":         {request: unkeyed, taken: true, reset: true, want: "200 ok"},
			"taken, and it has effects":   {request: unkeyed, taken: true, want: ""},
			"taken, with a reset and key": {request: within, taken: true, reset: true, want: "200 ok"},
		} {
			t.Run(name, func(t *testing.T) {
				if on.http && c.request(t, "http://x").Header.Get("Idempotency-Key") == "" {
					return // net/http notices an end a while later, and its background reader decides
				}
				end := make(chan struct{})
				s := startScripted(t, func(e *exchange) {
					for e.next() != nil {
						e.say(ok)
						if e.number > 1 {
							continue
						}
						e.gate.open()
						if c.reset {
							e.reset()
						}
						if c.taken {
							<-e.gate.wanted
						} else {
							<-end
						}
						return
					}
				})
				client, _ := on.client(t, s)
				if got, err := said(client, within(t, s.url)); err != nil || got != "200 ok" {
					t.Fatalf("have %q, %v", got, err)
				}
				s.endsFirst.Store(c.taken)
				close(end)
				if !c.taken {
					s.waitUntilClosed()
				}
				r := c.request(t, s.url)
				got, err := said(client, r)
				if got != c.want || (err == nil) != (c.want != "") || hung(r, err) {
					t.Errorf("want %q, have %q, %v", c.want, got, err)
				}
			})
		}
	})
}

// TestRequestIsRepeatedOnceAtMost has a service that closes each connection after a request.
func TestRequestIsRepeatedOnceAtMost(t *testing.T) {
	onEachSchedule(t, func(t *testing.T, on schedule) {
		s := startScripted(t, func(e *exchange) {
			for e.next() != nil && e.service.requests.Load() == 1 {
				e.say(ok)
			}
		})
		client, _ := on.client(t, s)
		if got, err := said(client, within(t, s.url)); err != nil || got != "200 ok" {
			t.Fatalf("have %q, %v", got, err)
		}
		r := within(t, s.url)
		if got, err := said(client, r); err == nil || hung(r, err) {
			t.Errorf("want the end noticed, have %q, %v", got, err)
		}
		if n := s.requests.Load(); n != 3 {
			t.Errorf("want the request sent twice after the first one, have %d requests", n)
		}
	})
}

// TestConnectionIsUsedAgainOnlyWhenItIsClean makes a request, and another one after it.
func TestConnectionIsUsedAgainOnlyWhenItIsClean(t *testing.T) {
	const head, none = http.MethodHead, ""
	onEachSchedule(t, func(t *testing.T, on schedule) {
		for name, c := range map[string]struct {
			method, reply string
			again         bool
		}{
			"a length":                 {none, ok, true},
			"no content":               {none, "HTTP/1.1 204 No Content\r\n\r\n", true},
			"not modified":             {none, "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", true},
			"HEAD":                     {head, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", true},
			"HEAD with chunks":         {head, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", true},
			"chunks":                   {none, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", true},
			"a trailer":                {none, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nSum: 7\r\n\r\n", true},
			"provisional replies":      {none, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\n\r\n" + ok, true},
			"an error":                 {none, "HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno", true},
			"old, kept":                {none, "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", true},
			"old":                      {none, "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", false},
			"to be closed":             {none, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", false},
			"more than its length":     {none, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok!", false},
			"more than its chunks":     {none, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n\r\n", false},
			"no content, with a body":  {none, "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok", false},
			"HEAD, with a body":        {head, ok, false},
			"two replies":              {none, ok + ok, false},
			"garbage behind the reply": {none, ok + "garbage", false},
		} {
			t.Run(name, func(t *testing.T) {
				s := startScripted(t, func(e *exchange) {
					for r := e.next(); r != nil; r = e.next() {
						if e.service.requests.Load() > 1 {
							e.say("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond")
							continue
						}
						e.say(c.reply)
					}
				})
				client, _ := on.client(t, s)
				if on.http && !c.again {
					return // the background reader of net/http may take what is left for the next reply
				}
				r := within(t, s.url)
				if c.method == head {
					r.Method, r.Body, r.GetBody, r.ContentLength = head, nil, nil, 0
				}
				if got, err := said(client, r); err != nil {
					t.Fatalf("have %q, %v", got, err)
				}
				r = within(t, s.url)
				if got, err := said(client, r); err != nil || got != "200 second" {
					t.Errorf("want the second reply, have %q, %v", got, err)
				}
				if n := s.connections.Load(); (n == 1) != c.again {
					t.Errorf("want the connection used again: %v, have %d connections", c.again, n)
				}
			})
		}
	})
}

// TestReplyThatComesBeforeTheRequestIsReadIsRead has a service that answers, and reads nothing of a request that does
// not fit into the buffers of a connection.
func TestReplyThatComesBeforeTheRequestIsReadIsRead(t *testing.T) {
	onEachSchedule(t, func(t *testing.T, on schedule) {
		gone := make(chan struct{})
		narrow := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1) })
		}}
		s := startScriptedWith(t, narrow, func(e *exchange) {
			_, _ = e.conn.Read(make([]byte, 4)) // net/http refuses a reply that comes before its request
			e.say("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
			e.gate.leave()
			<-gone
		})
		defer close(gone)
		on.narrow = true
		client, _ := on.client(t, s)
		ctx, cancel := patience.Context(t.Context(), 20*time.Second)
		defer cancel()
		r := post(ctx, t, s.url, strings.Repeat("x", leanBody))
		if got, err := said(client, r); err != nil || got != "413 no" {
			t.Errorf("have %q, %v", got, err)
		}
		if _, err := said(client, unkeyed(t, s.url)); err != nil || s.connections.Load() != 2 {
			t.Errorf("want a new connection for the next request, have %d, %v", s.connections.Load(), err)
		}
	})
}

// TestRequestIsWrittenAsNetHTTPWritesIt compares what services read.
func TestRequestIsWrittenAsNetHTTPWritesIt(t *testing.T) {
	t.Parallel()
	read := make(chan string, 1)
	s := startScripted(t, func(e *exchange) {
		for r := e.next(); r != nil; r = e.next() {
			r.Header.Del("Connection") // net/http says that it makes only one request
			text, err := httputil.DumpRequest(r, true)
			read <- fmt.Sprintf("%s %v %d %v", text, r.TransferEncoding, r.ContentLength, err)
			e.say("HTTP/1.1 204 No Content\r\n\r\n")
		}
	})
	for name, change := range map[string]func(r *http.Request){
		"a call":           func(*http.Request) {},
		"no body":          func(r *http.Request) { r.Body, r.ContentLength = nil, 0 },
		"an empty body":    func(r *http.Request) { r.Body, r.ContentLength = http.NoBody, 0 },
		"a question":       func(r *http.Request) { r.Method, r.Body, r.ContentLength = http.MethodGet, nil, 0 },
		"a method of none": func(r *http.Request) { r.Method, r.Body, r.ContentLength = "", nil, 0 },
		"a deletion":       func(r *http.Request) { r.Method = http.MethodDelete },
		"HEAD":             func(r *http.Request) { r.Method, r.Body, r.ContentLength = http.MethodHead, nil, 0 },
		"a query":          func(r *http.Request) { r.URL.Path, r.URL.RawQuery = "/a b/ü", "x=1;y&z=%20+" },
		"a raw path":       func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/a/b/c", "/a%2Fb/c" },
		"a question mark":  func(r *http.Request) { r.URL.ForceQuery = true },
		"a host":           func(r *http.Request) { r.Host = "other.test:8080" },
		"an agent":         func(r *http.Request) { r.Header.Set("User-Agent", "me") },
		"no agent":         func(r *http.Request) { r.Header.Set("User-Agent", "") },
		"agents":           func(r *http.Request) { r.Header["User-Agent"] = []string{"me", "you"} },
		"values":           func(r *http.Request) { r.Header["X-A"] = []string{"1", "", " 3 ", "ü"} },
		"a small name":     func(r *http.Request) { r.Header["x-small"] = []string{"1"} },
		"an encoding":      func(r *http.Request) { r.Header.Set("Accept-Encoding", "br") },
		"a range":          func(r *http.Request) { r.Header.Set("Range", "bytes=0-1") },
		"a length of ours": func(r *http.Request) { r.Header.Set("Content-Length", "99") },
		"a host in the header": func(r *http.Request) {
			r.Header.Set("Host", "header.test")
		},
	} {
		t.Run(name, func(t *testing.T) {
			rt := transportFor(t)
			var have [2]string
			for i, client := range []http.RoundTripper{rt, rt.once} {
				r := within(t, s.url)
				change(r)
				if _, err := said(client, r); err != nil {
					t.Fatal(err)
				}
				have[i] = <-read
			}
			if have[0] != have[1] {
				t.Errorf("want as net/http: %s\nhave: %s", have[1], have[0])
			}
		})
	}
}

// A strangeBody is a body of a request that counts how often it was closed.
type strangeBody struct {
	io.Reader
	closed int
}

func (b *strangeBody) Close() error { b.closed++; return nil }

// TestBodyThatIsNotItsLengthIsNotSent makes requests whose body is shorter or longer than announced, or breaks off, and
// others that fail. Every body is closed.
func TestBodyThatIsNotItsLengthIsNotSent(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		body io.Reader
		path string
		ok   bool
	}{
		"its length": {body: strings.NewReader("1234"), ok: true},
		"shorter":    {body: strings.NewReader("123")},
		"longer":     {body: strings.NewReader("12345")},
		"broken":     {body: io.MultiReader(strings.NewReader("12"), iotest.ErrReader(broken))},
		"forbidden":  {body: strings.NewReader("1234"), path: "http://127.0.0.1.elsewhere.invalid:1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startScripted(t, func(e *exchange) {
				for e.next() != nil {
					e.say(ok)
				}
			})
			rt := transportFor(t)
			for _, used := range []bool{false, true} {
				if used { // an idle connection
					if got, err := said(rt, within(t, s.url)); err != nil || got != "200 ok" {
						t.Fatalf("have %q, %v", got, err)
					}
				}
				before := s.requests.Load()
				body := &strangeBody{Reader: c.body}
				r, err := http.NewRequestWithContext(within(t, s.url).Context(), http.MethodPost, cmp.Or(c.path, s.url), body)
				if err != nil {
					t.Fatal(err)
				}
				r.ContentLength = 4
				got, err := said(rt, r)
				if (err == nil) != c.ok || hung(r, err) {
					t.Errorf("want it sent: %v, have %q, %v", c.ok, got, err)
				}
				if n := s.requests.Load() - before; (n == 1) != c.ok || body.closed == 0 {
					t.Errorf("want it sent: %v, have %d requests, closed %d times", c.ok, n, body.closed)
				}
				if c.ok {
					break
				}
				if s, ok := c.body.(*strings.Reader); ok {
					_, _ = s.Seek(0, io.SeekStart)
				}
			}
		})
	}
}

// TestBodyThatIsClosedWhileItIsReadEnds closes the body of a response on another goroutine, as net/http allows.
func TestBodyThatIsClosedWhileItIsReadEnds(t *testing.T) {
	onEachSchedule(t, func(t *testing.T, on schedule) {
		for name, reply := range map[string]string{
			"a length": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
			"chunks":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
			"gzip":     "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 90\r\n\r\n" + zipped("half"),
		} {
			t.Run(name, func(t *testing.T) {
				s := startScripted(t, func(e *exchange) {
					for r := e.next(); r != nil; r = e.next() {
						e.say(reply)
						e.gate.leave()
					}
				})
				client, _ := on.client(t, s)
				r := within(t, s.url)
				resp, err := client.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				if name != "gzip" { // whose reader looks for more first
					if _, err := io.ReadFull(resp.Body, make([]byte, 4)); err != nil {
						t.Fatal(err)
					}
				}
				read := make(chan error)
				go func() {
					_, err := io.ReadAll(resp.Body)
					read <- err
				}()
				resp.Body.Close()
				if err := <-read; err == nil || hung(r, err) {
					t.Errorf("want the read ended by the close, have %v", err)
				}
				if _, err := resp.Body.Read(make([]byte, 1)); err == nil {
					t.Error("want an error of a closed body")
				}
			})
		}
	})
}

// TestCallsLeaveNoGoroutines makes calls that end in every way. It is not parallel, since it counts.
func TestCallsLeaveNoGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, end := range []string{"a reply", "no reply", "half a reply", "a cancel", "a close"} {
		t.Run(end, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := startScripted(t, func(e *exchange) {
				for e.next() != nil {
					switch end {
					case "no reply":
						return
					case "a cancel":
						cancel()
					case "a reply":
						e.say(ok)
					default:
						e.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
						if end == "half a reply" {
							return
						}
					}
				}
			})
			rt := transportFor(t)
			for range 10 {
				if resp, err := rt.RoundTrip(post(ctx, t, s.url, strings.Repeat("x", leanBody))); err == nil {
					if end != "a close" {
						_, _ = io.Copy(io.Discard, resp.Body)
					}
					resp.Body.Close()
				}
			}
		})
	}
	patience.Until(t, "all goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}

// TestServicesOverTLSAreReached speaks HTTP/1.1 and HTTP/2 to services, and to some that cannot be trusted.
func TestServicesOverTLSAreReached(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		http2, plain, unknown bool
		want                  string
	}{
		"HTTP/1.1":         {want: "200 HTTP/1.1 POST {}"},
		"HTTP/2":           {http2: true, want: "200 HTTP/2.0 POST {}"},
		"an unknown name":  {unknown: true},
		"a plain service":  {plain: true},
		"HTTP/2, with key": {http2: true, want: "200 HTTP/2.0 POST {}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, r.Proto+" ")
				echo(w, r)
			}))
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.EnableHTTP2 = c.http2
			if c.plain {
				s.Start()
			} else {
				s.StartTLS()
			}
			t.Cleanup(s.Close)
			rt := transportFor(t)
			if s.Certificate() != nil && !c.unknown {
				roots := x509.NewCertPool()
				roots.AddCert(s.Certificate())
				rt.secure.TLSClientConfig = &tls.Config{RootCAs: roots}
			}
			for range 2 { // the second one on the same connection
				got, err := said(rt, within(t, "https://"+s.Listener.Addr().String()))
				if got != c.want || (err == nil) != (c.want != "") {
					t.Errorf("want %q, have %q, %v", c.want, got, err)
				}
			}
		})
	}
}

// TestServiceAtAnIPv6AddressGetsItsHost dials another address instead, since not every machine has IPv6.
func TestServiceAtAnIPv6AddressGetsItsHost(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) }))
	t.Cleanup(s.Close)
	rt := transportFor(t)
	var dialled string
	rt.lean.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialled = addr
		return new(net.Dialer).DialContext(ctx, network, s.Listener.Addr().String())
	}
	for url, want := range map[string]string{"http://[2001:DB8::1]:8080/x": "[2001:DB8::1]:8080", "http://[2001:db8::1]/x": "[2001:db8::1]:80"} {
		got, err := said(rt, within(t, url))
		if err != nil || got != "200 "+strings.TrimSuffix(want, ":80") || !strings.EqualFold(dialled, want) {
			t.Errorf("%s: have %q, %v, dialled %s", url, got, err, dialled)
		}
	}
}

// TestNoProxyOfTheEnvironmentIsUsed sets one, which would see each call and could answer it.
func TestNoProxyOfTheEnvironmentIsUsed(t *testing.T) {
	s := startScripted(t, func(e *exchange) {
		for e.next() != nil {
			e.say(ok)
		}
	})
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, s.url)
	}
	rt := transportFor(t)
	for _, url := range []string{"http://nowhere.invalid/", "https://nowhere.invalid/"} {
		if got, err := said(rt, within(t, url)); err == nil {
			t.Errorf("%s: have %q of a proxy", url, got)
		}
	}
	if n := s.connections.Load(); n != 0 {
		t.Errorf("have %d connections to the proxy", n)
	}
}

// TestOversizedHeadersAreRefused has services that send headers without end, in each part of a reply.
func TestOversizedHeadersAreRefused(t *testing.T) {
	onEachSchedule(t, func(t *testing.T, on schedule) {
		if on.most > 0 {
			on.most = 1000 // a byte at a time would take long
		}
		line, length := "A: "+strings.Repeat("a", 2*mostHeader), strings.Repeat("A: b\r\n", mostHeader)
		const chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n"
		for name, reply := range map[string]string{
			"a status":         "HTTP/1.1 200 " + line + "\r\n\r\n",
			"a line":           "HTTP/1.1 200 OK\r\n" + line + "\r\n\r\n",
			"lines":            "HTTP/1.1 200 OK\r\n" + length + "\r\n",
			"early hints":      strings.Repeat("HTTP/1.1 103 Early\r\nA: b\r\n\r\n", mostHeader/10) + ok,
			"a long trailer":   chunks + line + "\r\n\r\n",
			"a chunk's length": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;" + line + "\r\nok\r\n0\r\n\r\n",
		} {
			t.Run(name, func(t *testing.T) {
				s := startScripted(t, func(e *exchange) {
					if e.next() != nil {
						e.gate.leave() // the client may end it
						e.say(reply)
					}
				})
				client, _ := on.client(t, s)
				r := within(t, s.url)
				if got, err := said(client, r); err == nil || hung(r, err) {
					t.Errorf("want it refused, have %.40q, %v", got, err)
				}
			})
		}
	})
}
