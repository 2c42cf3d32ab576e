package outbound

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/engine/enginetest/patience"
)

// Whatever a service answers, the client reads what net/http reads of it.
func TestLeanReadsWhatNetHTTPReads(t *testing.T) {
	t.Parallel()
	pack := zipped("packed")
	for name, reply := range map[string]string{
		"length":              ok,
		"no body":             "HTTP/1.1 204 No Content\r\n\r\n",
		"not modified":        "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
		"empty":               "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"chunked":             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3;x=y\r\ncde\r\n0\r\n\r\n",
		"trailer":             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\n\r\n2\r\nab\r\n0\r\nSum: 7\r\n\r\n",
		"until the end":       "HTTP/1.1 200 OK\r\n\r\nall of it",
		"HTTP/1.0":            "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nold",
		"connection: close":   "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
		"a provisional reply": "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + ok,
		"gzip": "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: " + strconv.Itoa(len(pack)) +
			"\r\n\r\n" + pack,
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
		"a header without end":       "HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("a", 2*mostHeader),
		"many headers":               "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: b\r\n", mostHeader) + "\r\n",
		"a large body":               "HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + strings.Repeat("b", 200000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startScripted(t, func(e *exchange) {
				if e.next() != nil {
					e.say(reply)
				}
			})
			want := wholeReply(t, transportFor(t).once, s.url)
			for _, on := range schedules {
				if client, _ := on.client(t, s); len(reply) < 1000 || on.most == 0 {
					if have := wholeReply(t, client, s.url); have != want {
						t.Errorf("%s: want as net/http: %.300s\nhave: %.300s", on.name, want, have)
					}
				}
			}
		})
	}
}

// wholeReply makes a request and describes all that the client returns.
func wholeReply(t *testing.T, client http.RoundTripper, url string) string {
	t.Helper()
	r := within(t, url)
	resp, err := client.RoundTrip(r)
	switch {
	case hung(r, err):
		return "a call that hangs"
	case err != nil:
		return "error"
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return "error"
	}
	body, err := io.ReadAll(resp.Body)
	return fmt.Sprintln(resp.Status, resp.Header, resp.Trailer, resp.ContentLength, resp.Uncompressed, resp.Request == r, string(body), err != nil)
}

func TestLeanWaitsForNoBodyThatNobodyReads(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	s := startScripted(t, func(e *exchange) {
		e.next()
		e.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
		_, _ = io.Copy(io.Discard, e.in)
		close(gone)
	})
	resp, err := transportFor(t).RoundTrip(post(t.Context(), t, s.url, "{}"))
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

func TestLeanLeavesTheUnusualToNetHTTP(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(plain.Close)
	large := strings.Repeat("x", 2<<20)
	for name, c := range map[string]struct {
		url, body string
		change    func(r *http.Request)
		want      string
	}{
		"a large body":   {url: plain.URL, body: large, want: "200 POST " + large},
		"unknown length": {url: plain.URL, body: "{}", change: func(r *http.Request) { r.ContentLength = -1 }, want: "200 POST {}"},
		"100-continue": {
			url: plain.URL, body: "{}", change: func(r *http.Request) { r.Header.Set("Expect", "100-continue") },
			want: "200 POST {}",
		},
		"another method": {url: plain.URL, change: func(r *http.Request) { r.Method = "REPORT" }, want: "200 REPORT "},
		"to be closed":   {url: plain.URL, body: "{}", change: func(r *http.Request) { r.Close = true }, want: "200 POST {}"},
		"a header that is none": {
			url: plain.URL, change: func(r *http.Request) { r.Header.Set("X-A", "1\r\nX-B: 2") },
		},
		"a name that is none": {url: plain.URL, change: func(r *http.Request) { r.Header["X A"] = []string{"1"} }},
	} {
		t.Run(name, func(t *testing.T) {
			rt := transportFor(t)
			r := post(t.Context(), t, c.url, c.body)
			if c.change != nil {
				c.change(r)
			}
			if isLean(r) {
				t.Error("want it left to net/http")
			}
			got, err := said(rt, r)
			if got != c.want || (err != nil) != (c.want == "") {
				t.Errorf("want %.40q, have %.40q, %v", c.want, got, err)
			}
		})
	}
}

func TestLeanBoundsWhatItKeeps(t *testing.T) {
	t.Parallel()
	rt := transportFor(t)
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
				if got, err := said(rt, r); err != nil || got != "200 ok" {
					t.Errorf("have %q, %v", got, err)
				}
			})
		}
	}
	patience.Until(t, "18 requests have come", func() bool {
		return servers[0].requests.Load()+servers[1].requests.Load()+servers[2].requests.Load() == 18
	})
	close(begin) // so each has a connection of its own
	open.Wait()
	kept := 0
	lean := rt.lean
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
	if lean.idling != 8 || lean.sweep == nil {
		t.Errorf("want young connections kept, have %d", lean.idling)
	}
	rt.CloseIdleConnections()
	if lean.idling != 0 || len(lean.idle) != 0 || lean.sweep != nil {
		t.Errorf("want all closed, have %d of %d hosts", lean.idling, len(lean.idle))
	}
}

// Thousands of calls may wait at once. None of them keeps the stack that it took to make its connection.
func TestCallThatWaitsKeepsASmallStack(t *testing.T) {
	const calls = 256
	most := int64(6 << 10)
	if built, _ := debug.ReadBuildInfo(); slices.Contains(built.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		most *= 2 // as all stacks are
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	rt := transportFor(t)
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range calls {
		r := post(ctx, t, "http://"+l.Addr().String(), "{}")
		waiting.Go(func() { _, _ = rt.RoundTrip(r) }) // until the end of the test
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (int64(after.StackInuse) - int64(before.StackInuse)) / calls; each > most {
		t.Errorf("want at most %d bytes of stack for a call that waits, have %d", most, each)
	}
}
