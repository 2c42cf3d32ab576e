package engine

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"procaas/dsl"
)

// A scriptedService speaks HTTP by hand. Its script is given each connection and the
// requests that come on it, and returns to close it.
type scriptedService struct {
	url         string
	connections atomic.Int64
	requests    atomic.Int64
}

type exchange struct {
	t       *testing.T
	service *scriptedService
	number  int64 // of the connection, from 1
	conn    net.Conn
	in      *bufio.Reader
}

// next reads a request; nil when the client has gone.
func (e *exchange) next() *http.Request {
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scriptedService{url: "http://" + l.Addr().String()}
	var serving sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				defer context.AfterFunc(ctx, func() { c.Close() })()
				script(&exchange{t, s, s.connections.Add(1), c, bufio.NewReader(c)})
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

// leanFor makes a transport that keeps four connections to a host.
func leanFor(t *testing.T) *leanTransport {
	t.Helper()
	base := &http.Transport{MaxIdleConnsPerHost: 4, DialContext: (&net.Dialer{}).DialContext, MaxResponseHeaderBytes: leanMostHeader}
	lean := newLeanTransport(base, nil)
	t.Cleanup(lean.CloseIdleConnections)
	return lean
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

// said makes a request and gives the status and the body of the reply.
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

// Whatever a service answers, the client reads what net/http reads of it.
func TestLeanTransportReadsWhatNetHTTPReads(t *testing.T) {
	t.Parallel()
	pack := zipped("packed")
	for name, reply := range map[string]string{
		"length":                     ok,
		"no body":                    "HTTP/1.1 204 No Content\r\n\r\n",
		"not modified":               "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
		"empty":                      "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"chunked":                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3;x=y\r\ncde\r\n0\r\n\r\n",
		"trailer":                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\n\r\n2\r\nab\r\n0\r\nSum: 7\r\n\r\n",
		"until the end":              "HTTP/1.1 200 OK\r\n\r\nall of it",
		"HTTP/1.0":                   "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nold",
		"connection: close":          "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
		"a provisional reply":        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + ok,
		"gzip":                       "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: " + strconv.Itoa(len(pack)) + "\r\n\r\n" + pack,
		"gzip until the end":         "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + pack,
		"no gzip after all":          "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nno",
		"gzip that breaks off":       "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 12\r\n\r\n" + pack[:12],
		"a redirect":                 "HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 2\r\n\r\nhi",
		"an error":                   "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 4\r\n\r\nbusy",
		"no reply":                   "",
		"half a status":              "HTTP/1.1 20",
		"half a header":              "HTTP/1.1 200 OK\r\nContent-Le",
		"half a body":                "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
		"half a chunk":               "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
		"no HTTP":                    "220 mail.example ESMTP\r\n\r\n",
		"no status":                  "HTTP/1.1 abc OK\r\n\r\n",
		"no length":                  "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"two lengths":                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
		"two lengths that are one":   "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab",
		"length and chunks":          "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
		"an unknown encoding":        "HTTP/1.1 200 OK\r\nTransfer-Encoding: rot13\r\n\r\nab",
		"chunks that are none":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n",
		"a header line without name": "HTTP/1.1 200 OK\r\n: x\r\nContent-Length: 2\r\n\r\nok",
		"a folded header":            "HTTP/1.1 200 OK\r\nX-A: 1\r\n 2\r\nContent-Length: 2\r\n\r\nok",
		"too many 1xx":               strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 20) + ok,
		"another protocol":           "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
		"a header without end":       "HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("a", 2*leanMostHeader),
		"many headers":               "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: b\r\n", leanMostHeader) + "\r\n",
		"a large body":               "HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + strings.Repeat("b", 200000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startScripted(t, func(e *exchange) {
				if e.next() != nil {
					e.say(reply)
				}
			})
			lean := leanFor(t)
			var have, want strings.Builder
			for rt, out := range map[http.RoundTripper]*strings.Builder{lean: &have, lean.base: &want} {
				r := post(t.Context(), t, s.url, "{}")
				resp, err := rt.RoundTrip(r)
				if err != nil || resp.StatusCode == http.StatusSwitchingProtocols {
					out.WriteString("error")
					if resp != nil {
						resp.Body.Close()
					}
					continue
				}
				body, err := io.ReadAll(resp.Body)
				fmt.Fprintln(out, resp.Status, resp.Header, resp.Trailer, resp.ContentLength, resp.Uncompressed, resp.Request == r, string(body), err != nil)
				resp.Body.Close()
			}
			if have.String() != want.String() {
				t.Errorf("want as net/http: %.300s\nhave: %.300s", &want, &have)
			}
		})
	}
}

func TestLeanTransportUsesAConnectionAgain(t *testing.T) {
	t.Parallel()
	replies := []string{
		ok, "HTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\n\r\n2\r\nok\r\n0\r\nSum: 7\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\n" + ok,
		"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(zipped("ok")), zipped("ok")), ok,
	}
	s := startScripted(t, func(e *exchange) {
		for i := 0; ; i++ {
			r := e.next()
			if r == nil {
				return
			}
			body, _ := io.ReadAll(r.Body)
			if want := fmt.Sprint("body ", i); string(body) != want || r.Header.Get("Idempotency-Key") != "key-1" || r.ContentLength != int64(len(want)) {
				t.Errorf("want the request of %q, have %q with %v", want, body, r.Header)
			}
			e.say(replies[i])
		}
	})
	lean := leanFor(t)
	for i := range replies {
		if got, err := said(lean, post(t.Context(), t, s.url, fmt.Sprint("body ", i))); err != nil || got != "200 ok" && got != "204 " {
			t.Errorf("reply %d: have %q, %v", i, got, err)
		}
	}
	if n := s.connections.Load(); n != 1 {
		t.Errorf("want one connection, have %d", n)
	}
}

// What is not the answer to a request is never taken for one.
func TestLeanTransportTakesNoAnswerThatNobodyAskedFor(t *testing.T) {
	t.Parallel()
	const poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
	for name, script := range map[string]func(e *exchange){
		"with the reply": func(e *exchange) { e.say(ok + poison) },
		"behind it": func(e *exchange) {
			e.say(ok)
			e.say(poison)
		},
		"a farewell": func(e *exchange) {
			e.say(ok)
			e.say("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			e.conn.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startScripted(t, func(e *exchange) {
				if e.next() == nil {
					return
				}
				if e.number == 1 {
					script(e)
				} else {
					e.say(ok)
				}
				e.next() // the client's end
			})
			lean := leanFor(t)
			if got, err := said(lean, post(t.Context(), t, s.url, "{}")); err != nil || got != "200 ok" {
				t.Fatalf("have %q, %v", got, err)
			}
			eventually(t, func() bool { return noneIsQuiet(lean) })
			if got, err := said(lean, post(t.Context(), t, s.url, "{}")); err != nil || got != "200 ok" {
				t.Fatalf("have %q, %v", got, err)
			}
			if n := s.connections.Load(); n != 2 {
				t.Errorf("want a new connection, have %d", n)
			}
		})
	}
}

// TestLateResponsesReachOneRunAtMost has a service that sends a second response to a request only
// when the next request has come, which no client can tell from its response.
func TestLateResponsesReachOneRunAtMost(t *testing.T) {
	t.Parallel()
	s := startScripted(t, func(e *exchange) {
		late := ""
		for r := e.next(); r != nil; r = e.next() {
			body, _ := io.ReadAll(r.Body)
			e.say(late)
			late = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			e.say(late)
		}
	})
	call := func(rt http.RoundTripper, i int) (wrong int) {
		body := fmt.Sprintf("run-%d", i)
		if got, err := said(rt, post(t.Context(), t, s.url, body)); err != nil || got != "200 "+body {
			return 1
		}
		return 0
	}
	lean, wrong := leanFor(t), 0
	for i := range 20 {
		wrong += call(lean, i)
		eventually(t, func() bool { return i == 0 || noneIsQuiet(lean) }) // what comes late has come
	}
	if connections := s.connections.Load(); wrong > 1 || connections < 18 {
		t.Errorf("have %d wrong responses on %d connections, want one at most, and then a connection for each call", wrong, connections)
	}
	fresh := newClient(&dsl.Bundle{Services: []*dsl.Service{{ID: "s", URL: s.url}}}, 4, nil, nil).Transport
	for i := range 5 {
		if call(fresh, i) > 0 {
			t.Error("have a wrong response of a service with keep-alive: false")
		}
	}
	if connections := s.connections.Load(); connections < 23 {
		t.Errorf("have %d connections, want one for each call", connections)
	}
}

// noneIsQuiet tells whether no connection is kept that could be used again.
func noneIsQuiet(lean *leanTransport) bool {
	lean.mu.Lock()
	defer lean.mu.Unlock()
	for _, list := range lean.idle {
		for _, c := range list {
			if c.isQuiet() {
				return false
			}
		}
	}
	return true
}

// A connection that the service closes instead of answering says nothing about the
// request when it is an old one.
func TestLeanTransportRepeatsOnlyWhatMayBeRepeated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fails    func(e *exchange) // the second request, or the first one
		fresh    bool
		method   string
		unkeyed  bool
		want     string // empty for an error
		requests int64
	}{
		"closed while idle": {fails: func(e *exchange) {}, want: "200 ok", requests: 2},
		"closed while idle, without a key": {
			fails: func(e *exchange) {}, unkeyed: true, want: "200 ok", requests: 2,
		},
		"no answer":                  {fails: func(e *exchange) { e.next() }, want: "200 ok", requests: 3},
		"no answer to a question":    {fails: func(e *exchange) { e.next() }, method: http.MethodGet, unkeyed: true, want: "200 ok", requests: 3},
		"no answer, without a key":   {fails: func(e *exchange) { e.next() }, unkeyed: true, requests: 2},
		"half an answer":             {fails: func(e *exchange) { e.next(); e.say("HTTP/1.1 2") }, requests: 2},
		"no answer on the first one": {fails: func(e *exchange) { e.next() }, fresh: true, requests: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startScripted(t, func(e *exchange) {
				if e.number == 1 && !c.fresh && e.next() != nil {
					e.say(ok)
				}
				if e.number == 1 {
					c.fails(e)
					return
				}
				for r := e.next(); r != nil; r = e.next() {
					if body, _ := io.ReadAll(r.Body); r.Method == http.MethodPost && string(body) != "second" {
						t.Errorf("want the same body again, have %q", body)
					}
					e.say(ok)
				}
			})
			lean := leanFor(t)
			if !c.fresh {
				if got, err := said(lean, post(t.Context(), t, s.url, "first")); err != nil || got != "200 ok" {
					t.Fatalf("have %q, %v", got, err)
				}
			}
			if strings.HasPrefix(name, "closed") {
				eventually(t, func() bool { return noneIsQuiet(lean) })
			}
			r := post(t.Context(), t, s.url, "second")
			if c.method != "" {
				r.Method, r.Body, r.GetBody, r.ContentLength = c.method, nil, nil, 0
			}
			if c.unkeyed {
				r.Header.Del("Idempotency-Key")
			}
			got, err := said(lean, r)
			if got != c.want && err == nil || (err == nil) != (c.want != "") {
				t.Errorf("want %q, have %q, %v", c.want, got, err)
			}
			if n := s.requests.Load(); n != c.requests {
				t.Errorf("want %d requests, have %d", c.requests, n)
			}
		})
	}
}

// An end of the context ends a request wherever it is, with its cause, and the
// connection with it.
func TestLeanTransportEndsWithTheContext(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	for name, part := range map[string]string{
		"before the reply": "", "in the header": "HTTP/1.1 200 OK\r\nX-", "in the body": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
		"in chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gone := make(chan struct{})
			ctx, cancel := context.WithCancelCause(t.Context())
			s := startScripted(t, func(e *exchange) {
				e.next()
				e.say(part)
				cancel(enough)
				_, _ = io.Copy(io.Discard, e.in)
				close(gone)
			})
			lean := leanFor(t)
			got, err := said(lean, post(ctx, t, s.url, "{}"))
			if !errors.Is(err, enough) {
				t.Errorf("want the cause, have %q, %v", got, err)
			}
			<-gone
			if !noneIsQuiet(lean) {
				t.Error("want the connection closed, it is kept")
			}
			if _, err := lean.RoundTrip(post(ctx, t, s.url, "{}")); !errors.Is(err, enough) || s.connections.Load() != 1 {
				t.Errorf("want nothing tried any more, have %v with %d connections", err, s.connections.Load())
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	s := startScripted(t, func(e *exchange) { e.next(); e.next() })
	if _, err := said(leanFor(t), post(ctx, t, s.url, "{}")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("want the deadline, have %v", err)
	}
}

func TestLeanTransportWaitsForNoBodyThatNobodyReads(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	s := startScripted(t, func(e *exchange) {
		e.next()
		e.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
		_, _ = io.Copy(io.Discard, e.in)
		close(gone)
	})
	resp, err := leanFor(t).RoundTrip(post(t.Context(), t, s.url, "{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	<-gone
	if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("want an error of a closed body, have %d, %v", n, err)
	}
}

// echo answers with the method and the body.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, _ = fmt.Fprint(w, r.Method, " ", string(body))
}

func TestLeanTransportLeavesTheUnusualToNetHTTP(t *testing.T) {
	t.Parallel()
	plain, secure := httptest.NewServer(http.HandlerFunc(echo)), httptest.NewTLSServer(http.HandlerFunc(echo))
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	large := strings.Repeat("x", 2<<20)
	for name, c := range map[string]struct {
		url, body string
		change    func(r *http.Request)
		want      string
	}{
		"a large body":   {url: plain.URL, body: large, want: "200 POST " + large},
		"https":          {url: secure.URL, body: "{}", want: "200 POST {}"},
		"unknown length": {url: plain.URL, body: "{}", change: func(r *http.Request) { r.ContentLength = -1 }, want: "200 POST {}"},
		"100-continue":   {url: plain.URL, body: "{}", change: func(r *http.Request) { r.Header.Set("Expect", "100-continue") }, want: "200 POST {}"},
		"another method": {url: plain.URL, change: func(r *http.Request) { r.Method = "REPORT" }, want: "200 REPORT "},
		"to be closed":   {url: plain.URL, body: "{}", change: func(r *http.Request) { r.Close = true }, want: "200 POST {}"},
		"a header that is none": {
			url: plain.URL, change: func(r *http.Request) { r.Header.Set("X-A", "1\r\nX-B: 2") },
		},
		"a name that is none": {url: plain.URL, change: func(r *http.Request) { r.Header["X A"] = []string{"1"} }},
	} {
		t.Run(name, func(t *testing.T) {
			lean := leanFor(t)
			lean.base.TLSClientConfig = &tls.Config{RootCAs: secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
			r := post(t.Context(), t, c.url, c.body)
			if c.change != nil {
				c.change(r)
			}
			if isOrdinary(r) {
				t.Error("want it left to net/http")
			}
			got, err := said(lean, r)
			if got != c.want || (err != nil) != (c.want == "") {
				t.Errorf("want %.40q, have %.40q, %v", c.want, got, err)
			}
		})
	}
}

func TestLeanTransportBoundsWhatItKeeps(t *testing.T) {
	t.Parallel()
	lean := leanFor(t)
	var open sync.WaitGroup
	begin := make(chan struct{})
	var servers []*scriptedService
	for range 3 {
		servers = append(servers, startScripted(t, func(e *exchange) {
			for e.next() != nil {
				<-begin
				e.say(ok)
			}
		}))
	}
	for _, s := range servers {
		for range 6 {
			r := post(t.Context(), t, s.url, "{}")
			open.Go(func() {
				if got, err := said(lean, r); err != nil || got != "200 ok" {
					t.Errorf("have %q, %v", got, err)
				}
			})
		}
	}
	eventually(t, func() bool {
		return servers[0].requests.Load()+servers[1].requests.Load()+servers[2].requests.Load() == 18
	})
	close(begin) // so each has a connection of its own
	open.Wait()
	kept := 0
	lean.mu.Lock()
	for _, list := range lean.idle {
		if kept += len(list); len(list) > 4 {
			t.Errorf("want at most 4 connections kept to a host, have %d", len(list))
		}
	}
	if kept != 8 || lean.idling != kept {
		t.Errorf("want 8 connections kept of 18, have %d, counted as %d", kept, lean.idling)
	}
	lean.mu.Unlock()
	lean.closeIdle(time.Hour)
	if lean.idling != 8 || lean.cleanup == nil {
		t.Errorf("want young connections kept, have %d", lean.idling)
	}
	lean.CloseIdleConnections()
	if lean.idling != 0 || len(lean.idle) != 0 || lean.cleanup != nil {
		t.Errorf("want all closed, have %d of %d hosts", lean.idling, len(lean.idle))
	}
}

// Many at once, of which some give up: each gets its own answer.
func TestLeanTransportMixesNothingUp(t *testing.T) {
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
	lean := leanFor(t)
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
				got, err := said(lean, r)
				if err == nil && got != "200 "+want || err != nil && !(quits && errors.Is(err, context.Canceled)) {
					t.Errorf("want %d bytes of %.1s, have %.60q (%d), %v", len(want), want, got, len(got), err)
				}
				cancel()
			}
		})
	}
	all.Wait()
}

func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not in time")
		}
	}
}
