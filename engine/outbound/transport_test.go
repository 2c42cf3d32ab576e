package outbound

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A scriptedService speaks HTTP by hand. Its script is given each connection and the
// requests that come on it, and returns to close it.
type scriptedService struct {
	url         string
	connections atomic.Int64
	requests    atomic.Int64
	endsFirst   atomic.Bool // the next request is only written when the service has closed its connection

	mu    sync.Mutex
	gates map[string][]*gate // by the client's address, in the order of its connections
}

type exchange struct {
	t       *testing.T
	service *scriptedService
	number  int64 // of the connection, from 1
	conn    net.Conn
	in      *bufio.Reader
	gate    *gate
	read    int // requests
}

// next reads a request; nil when the client has gone. The client may see what was done since the
// request before.
func (e *exchange) next() *http.Request {
	e.read++
	if e.read > 1 {
		e.gate.open()
	}
	r, err := http.ReadRequest(e.in)
	if err != nil {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	e.service.requests.Add(1)
	return r
}

func (e *exchange) say(text string) { _, _ = io.WriteString(e.conn, text) }

func startScripted(t *testing.T, script func(e *exchange)) *scriptedService {
	t.Helper()
	return startScriptedWith(t, net.ListenConfig{}, script)
}

func startScriptedWith(t *testing.T, c net.ListenConfig, script func(e *exchange)) *scriptedService {
	t.Helper()
	l, err := c.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scriptedService{url: "http://" + l.Addr().String(), gates: map[string][]*gate{}}
	var serving sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				g := s.serviceGate(c.RemoteAddr())
				defer func() { g.leave(); close(g.ended) }()
				defer c.Close()
				defer context.AfterFunc(ctx, func() { c.Close() })()
				script(&exchange{t, s, s.connections.Add(1), c, bufio.NewReader(c), g, 0})
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		l.Close()
		serving.Wait()
	})
	return s
}

// transportFor makes one that reaches all hosts and keeps four connections to each.
func transportFor(t *testing.T) *transport {
	t.Helper()
	r := Reach{MaxConns: 4, Declared: []string{}}
	f := newFence(r)
	f.public, f.networks = true, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	rt := newTransport(f, r)
	t.Cleanup(rt.CloseIdleConnections)
	return rt
}

func post(ctx context.Context, t *testing.T, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "key-1")
	return r
}

// said makes a request and returns the status and the body of the reply.
func said(rt http.RoundTripper, r *http.Request) (string, error) {
	resp, err := rt.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return fmt.Sprint(resp.StatusCode, " ", string(body)), err
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func zipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

func TestTransportUsesAConnectionAgain(t *testing.T) {
	t.Parallel()
	replies := []string{
		ok, "HTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\n\r\n2\r\nok\r\n0\r\nSum: 7\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\n" + ok,
		"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n",
			len(zipped("ok")), zipped("ok")), ok,
	}
	s := startScripted(t, func(e *exchange) {
		for i := 0; ; i++ {
			r := e.next()
			if r == nil {
				return
			}
			body, _ := io.ReadAll(r.Body)
			if want := fmt.Sprint("body ", i); string(body) != want || r.Header.Get("Idempotency-Key") != "key-1" ||
				r.ContentLength != int64(len(want)) {
				t.Errorf("want the request of %q, have %q with %v", want, body, r.Header)
			}
			e.say(replies[i])
		}
	})
	rt := transportFor(t)
	for i := range replies {
		if got, err := said(rt, post(t.Context(), t, s.url, fmt.Sprint("body ", i))); err != nil || got != "200 ok" && got != "204 " {
			t.Errorf("reply %d: have %q, %v", i, got, err)
		}
	}
	if n := s.connections.Load(); n != 1 {
		t.Errorf("want one connection, have %d", n)
	}
}

// An end of the context ends a request wherever it is, with its cause, and the
// connection with it.
func TestTransportEndsWithTheContext(t *testing.T) {
	onEachSchedule(t, endsWithTheContext)
}

func endsWithTheContext(t *testing.T, on schedule) {
	enough := errors.New("enough")
	for name, part := range map[string]string{
		"before the reply": "", "in the status": "HTTP/1.1 2", "between replies": "HTTP/1.1 103 Early\r\n\r\n", "in the header": "HTTP/1.1 200 OK\r\nX-", "in the body": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
		"in chunks":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
		"in a trailer": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nSum",
		"in gzip":      "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + zipped("whole")[:12],
	} {
		t.Run(name, func(t *testing.T) {
			gone := make(chan struct{})
			ctx, cancel := context.WithCancelCause(t.Context())
			s := startScripted(t, func(e *exchange) {
				e.next()
				e.say(part)
				cancel(enough)
				e.gate.leave()
				_, _ = io.Copy(io.Discard, e.in)
				close(gone)
			})
			rt, _ := on.client(t, s)
			got, err := said(rt, post(ctx, t, s.url, "{}"))
			if !errors.Is(err, enough) {
				t.Errorf("want the cause, have %q, %v", got, err)
			}
			<-gone
			if _, err := rt.RoundTrip(post(ctx, t, s.url, "{}")); !errors.Is(err, enough) || s.connections.Load() != 1 {
				t.Errorf("want nothing tried any more, have %v with %d connections", err, s.connections.Load())
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	s := startScripted(t, func(e *exchange) { e.next(); e.gate.leave(); e.next() })
	client, _ := on.client(t, s)
	if _, err := said(client, post(ctx, t, s.url, "{}")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("want the deadline, have %v", err)
	}
}

// Many at once, of which some stop waiting: each gets its own answer.
func TestTransportMixesNothingUp(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if len(body)%7 == 0 {
			w.Header().Set("Connection", "close")
		}
		w.Header().Set("X-Key", r.Header.Get("Idempotency-Key"))
		if len(body)%3 == 0 {
			w.(http.Flusher).Flush() // so it comes in chunks
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(s.Close)
	rt := transportFor(t)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for n := range 40 {
				ctx, cancel := context.WithCancel(t.Context())
				want := strings.Repeat(string(rune('a'+i)), 1+(i*97+n*131)%9000)
				r := post(ctx, t, s.URL, want)
				r.Header.Set("Idempotency-Key", fmt.Sprint(i, "-", n))
				quits := n%5 == 4
				if quits {
					go cancel()
				}
				got, err := said(rt, r)
				if err == nil && got != "200 "+want || err != nil && !(quits && errors.Is(err, context.Canceled)) {
					t.Errorf("want %d bytes of %.1s, have %.60q (%d), %v", len(want), want, got, len(got), err)
				}
				cancel()
			}
		})
	}
	all.Wait()
}

// A service that answers nothing is asked again when that is harmless, and the error says what happened.
func TestTransportRepeatsOnlyWhatMayBeRepeated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method   string
		unkeyed  bool
		want     string // empty for an error
		requests int64
	}{
		"a call":               {method: http.MethodPost, want: "200 ok", requests: 3},
		"a question":           {method: http.MethodGet, unkeyed: true, want: "200 ok", requests: 3},
		"a call without a key": {method: http.MethodPost, unkeyed: true, requests: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startScripted(t, func(e *exchange) {
				for e.next() != nil && e.service.requests.Load() != 2 {
					e.say(ok)
				}
			})
			rt := transportFor(t)
			if got, err := said(rt, post(t.Context(), t, s.url, "first")); err != nil || got != "200 ok" {
				t.Fatalf("have %q, %v", got, err)
			}
			r := post(t.Context(), t, s.url, "second")
			if r.Method = c.method; c.method == http.MethodGet {
				r.Body, r.GetBody, r.ContentLength = nil, nil, 0
			}
			if c.unkeyed {
				r.Header.Del("Idempotency-Key")
			}
			got, err := said(rt, r)
			if got != c.want || c.want == "" && !errors.Is(err, errNoReply) {
				t.Errorf("want %q or that there is no reply, have %q, %v", c.want, got, err)
			}
			if n := s.requests.Load(); n != c.requests {
				t.Errorf("want %d requests, have %d", c.requests, n)
			}
		})
	}
}

func TestTransportRefusesAnotherProtocol(t *testing.T) {
	t.Parallel()
	s := startScripted(t, func(e *exchange) {
		e.next()
		e.say("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
	})
	if got, err := said(transportFor(t), post(t.Context(), t, s.url, "{}")); err == nil ||
		!strings.Contains(err.Error(), "another protocol") {
		t.Errorf("have %q, %v", got, err)
	}
}
