package route_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"procaas/engine/api/transport"
	"procaas/engine/enginetest/patience"
	"procaas/engine/outbound"
	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/handoff"
	"procaas/handlers/balancer/language"
	"procaas/handlers/balancer/route"
)

const clusterID = "fanout"

// A board is a source whose assignment a test changes.
type board struct {
	mu      sync.Mutex
	current clusters.Assignment
	newer   chan struct{}
}

func newBoard() *board { return &board{newer: make(chan struct{})} }

func (b *board) put(a clusters.Assignment) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.current = a
	close(b.newer)
	b.newer = make(chan struct{})
}

// Await implements [route.Source].
func (b *board) Await(ctx context.Context, after int64) (clusters.Assignment, error) {
	for {
		b.mu.Lock()
		a, newer := b.current, b.newer
		b.mu.Unlock()
		if a.Version > after {
			return a, nil
		}
		select {
		case <-newer:
		case <-ctx.Done():
			return clusters.Assignment{}, ctx.Err()
		}
	}
}

// A worker serves one partition of a cluster of one.
type worker struct {
	*httptest.Server
	holder *handoff.Holder
	name   string
	seen   atomic.Int64 // requests for a partition that was not held
	serve  atomic.Value // a func(http.ResponseWriter, *http.Request) instead of the echo
}

func newWorker(t *testing.T, name string) *worker {
	t.Helper()
	w := &worker{name: name, holder: handoff.NewHolder(handoff.HolderOptions{Cluster: clusterID, Partitions: 1})}
	w.Server = httptest.NewServer(w)
	t.Cleanup(w.Close)
	return w
}

func (w *worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	_, end, ok := w.holder.Begin(0)
	if !ok {
		w.seen.Add(1)
		handoff.NotHeld(rw, 0, w.holder.State().Version)
		return
	}
	defer end()
	if serve, ok := w.serve.Load().(func(http.ResponseWriter, *http.Request)); ok {
		serve(rw, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprintf(rw, "%s %s %s %q %d %s", w.name, r.Method, r.RequestURI, r.Header.Get("Procaas-Assignment"), len(body),
		body[:min(len(body), 10)])
}

func (w *worker) take(t *testing.T, version int64) {
	t.Helper()
	if _, err := w.holder.Take(handoff.Order{Cluster: clusterID, Version: version, Partitions: []int{0}}); err != nil {
		t.Error(err)
	}
}

func (w *worker) release(t *testing.T, version int64) {
	t.Helper()
	if _, err := w.holder.Release(t.Context(), handoff.Order{Cluster: clusterID, Version: version, Partitions: []int{0}}); err != nil {
		t.Error(err)
	}
}

// assignmentTo assigns the only partition to one of the workers.
func assignmentTo(version int64, owner int, workers ...*worker) clusters.Assignment {
	a := clusters.Assignment{Cluster: clusterID, Version: version, Owners: []int{owner}, Since: []int64{version}}
	for _, w := range workers {
		a.Workers = append(a.Workers, clusters.AssignedWorker{ID: w.name, URL: w.URL})
	}
	return a
}

// newProxy serves a proxy that follows a board.
func newProxy(t *testing.T, b *board, o route.ProxyOptions) *httptest.Server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	o.Follower = route.NewFollower(b, nil)
	done := make(chan struct{})
	go func() { defer close(done); o.Follower.Run(ctx) }()
	key, err := language.ParseKeyPlace("query:key")
	if err != nil {
		t.Fatal(err)
	}
	o.Key = key
	client := outbound.NewClient(outbound.Reach{Public: true, Networks: []string{"127.0.0.0/8"}, PassesOn: true, MaxConns: 16})
	o.Transport = client.Transport
	s := httptest.NewUnstartedServer(nil)
	s.Config = transport.PassingServer(route.NewProxy(o), slog.New(slog.DiscardHandler))
	s.Start()
	t.Cleanup(func() { s.Close(); client.CloseIdleConnections(); cancel(); <-done })
	return s
}

func send(t *testing.T, method, url string, body io.Reader) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply.StatusCode, string(text)
}

func TestProxyPassesRequestsOn(t *testing.T) {
	t.Parallel()
	b, w := newBoard(), newWorker(t, "w0")
	w.take(t, 1)
	b.put(assignmentTo(1, 0, w))
	p := newProxy(t, b, route.ProxyOptions{})
	for _, c := range []struct{ method, path, body, want string }{
		{"GET", "/a//b%2Fc?key=user-1&x=%20", "", `w0 GET /a//b%2Fc?key=user-1&x=%20 "1" 0 `},
		{"POST", "/a?key=user-1", "hello", `w0 POST /a?key=user-1 "1" 5 hello`},
	} {
		if status, have := send(t, c.method, p.URL+c.path, strings.NewReader(c.body)); status != 200 || have != c.want {
			t.Errorf("%s %s: have %d %s, want %s", c.method, c.path, status, have, c.want)
		}
	}
	if status, have := send(t, "GET", p.URL+"/a", nil); status != 400 || !strings.Contains(have, "missing_key") ||
		!strings.Contains(have, "parameter key of the query") {
		t.Errorf("without a key: have %d %s", status, have)
	}
}

// TestProxyWaitsForAPartitionThatMoves releases the partition first, and assigns it to the new
// worker only after requests have been refused by both.
func TestProxyWaitsForAPartitionThatMoves(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"small": 5, "large": 300_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, from, to := newBoard(), newWorker(t, "w0"), newWorker(t, "w1")
			from.release(t, 2)
			b.put(assignmentTo(1, 0, from, to))
			p := newProxy(t, b, route.ProxyOptions{Patience: time.Minute, Replay: 100_000})
			go func() {
				for from.seen.Load() == 0 {
					time.Sleep(time.Millisecond)
				}
				b.put(assignmentTo(2, 1, from, to))
				for to.seen.Load() == 0 {
					time.Sleep(time.Millisecond)
				}
				to.take(t, 2)
			}()
			status, have := send(t, "POST", p.URL+"/?key=user-1", strings.NewReader(strings.Repeat("x", size)))
			if want := fmt.Sprintf(`w1 POST /?key=user-1 "2" %d xxxxx`, size); status != 200 || !strings.HasPrefix(have, want) {
				t.Errorf("have %d %s, want %s", status, have, want)
			}
		})
	}
}

func TestProxyGivesUpWithoutAWorker(t *testing.T) {
	t.Parallel()
	b, w := newBoard(), newWorker(t, "w0")
	observed := make(chan int, 1)
	p := newProxy(t, b, route.ProxyOptions{Patience: time.Millisecond, Observe: func(status, _ int) { observed <- status }})
	for _, c := range []struct {
		a    clusters.Assignment
		want string
	}{
		{clusters.Assignment{}, "no assignment of the cluster is known yet"},
		{assignmentTo(1, -1, w), "no worker has the partition"},
		{assignmentTo(2, 0, w), "the worker does not serve it"},
	} {
		b.put(c.a)
		for over := patience.Over(time.Minute); ; { // the proxy hears of the assignment a while later
			status, have := send(t, "GET", p.URL+"/?key=user-1", nil)
			if seen := <-observed; status != 503 || seen != 503 || !strings.Contains(have, "no_worker") {
				t.Fatalf("%s: have %d %s, observed %d", c.want, status, have, seen)
			}
			if strings.Contains(have, c.want) {
				break
			}
			if over() {
				t.Fatalf("want %s, have %s", c.want, have)
			}
		}
	}
}

// TestRequestThatEndsItsConnectionIsSentOnce has a worker that answers other requests, so it has not
// died.
func TestRequestThatEndsItsConnectionIsSentOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"GET", "HEAD", "PUT", "DELETE", "POST", "POST+"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b, w := newBoard(), newWorker(t, "w0")
			var calls atomic.Int64
			w.serve.Store(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/ping" {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				calls.Add(1)
				panic(http.ErrAbortHandler)
			})
			w.take(t, 1)
			b.put(assignmentTo(1, 0, w))
			p := newProxy(t, b, route.ProxyOptions{Patience: time.Minute})
			if status := sendKind(t, kind, p.URL); status != 502 || calls.Load() != 1 {
				t.Errorf("have %d after %d calls, want 502 after 1", status, calls.Load())
			}
		})
	}
}

// sendKind sends a request with a method. POST+ is one that may be repeated.
func sendKind(t *testing.T, kind, proxy string) (status int) {
	t.Helper()
	method, keyed := strings.CutSuffix(kind, "+")
	r, err := http.NewRequestWithContext(t.Context(), method, proxy+"/?key=user-1", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	if keyed {
		r.Header.Set("Idempotency-Key", "k-1")
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	reply.Body.Close()
	return reply.StatusCode
}

// TestRequestOfADeadWorkerGoesToItsSuccessorOnce has workers that die of a request.
func TestRequestOfADeadWorkerGoesToItsSuccessorOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind   string
		all    bool // every worker dies
		status int
		calls  int64
	}{
		{"GET", false, 200, 1}, {"PUT", false, 200, 1}, {"DELETE", false, 200, 1}, {"POST+", false, 200, 1}, {"POST", false, 502, 1},
		{"GET", true, 502, 2}, {"DELETE", true, 502, 2}, {"POST+", true, 502, 2}, {"POST", true, 502, 1},
	} {
		t.Run(fmt.Sprint(c.kind, c.all), func(t *testing.T) {
			t.Parallel()
			b := newBoard()
			workers := []*worker{newWorker(t, "w0"), newWorker(t, "w1"), newWorker(t, "w2")}
			var calls atomic.Int64
			for i, w := range workers {
				if i > 0 && !c.all {
					break
				}
				w.serve.Store(func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					calls.Add(1)
					w.Listener.Close()
					b.put(assignmentTo(int64(i+2), i+1, workers...))
					panic(http.ErrAbortHandler)
				})
			}
			for i, w := range workers {
				w.take(t, int64(i+1))
			}
			b.put(assignmentTo(1, 0, workers...))
			p := newProxy(t, b, route.ProxyOptions{Patience: time.Minute})
			if status := sendKind(t, c.kind, p.URL); status != c.status || calls.Load() != c.calls {
				t.Errorf("have %d after %d deaths, want %d after %d", status, calls.Load(), c.status, c.calls)
			}
		})
	}
}

// TestProxyLeavesADeadWorker sends even what may not be repeated again when it never left.
func TestProxyLeavesADeadWorker(t *testing.T) {
	t.Parallel()
	b, dead, alive := newBoard(), newWorker(t, "w0"), newWorker(t, "w1")
	dead.URL = "http://127.0.0.1:1" // nobody listens there; a port that was closed may be another test's by now
	alive.take(t, 2)
	b.put(assignmentTo(1, 0, dead, alive))
	p := newProxy(t, b, route.ProxyOptions{Patience: time.Minute})
	tried := make(chan struct{})
	go func() { <-tried; b.put(assignmentTo(2, 1, dead, alive)) }()
	close(tried)
	if status, have := send(t, "POST", p.URL+"/?key=user-1", strings.NewReader("x")); status != 200 || !strings.HasPrefix(have, "w1 ") {
		t.Errorf("have %d %s", status, have)
	}
}

// TestProxyLeavesAWorkerThatHangs stops waiting for it when the partition has moved.
func TestProxyLeavesAWorkerThatHangs(t *testing.T) {
	t.Parallel()
	b, hanging, alive := newBoard(), newWorker(t, "w0"), newWorker(t, "w1")
	came := make(chan struct{})
	hanging.serve.Store(func(_ http.ResponseWriter, r *http.Request) {
		close(came)
		<-r.Context().Done()
	})
	hanging.take(t, 1)
	b.put(assignmentTo(1, 0, hanging, alive))
	alive.take(t, 2)
	p := newProxy(t, b, route.ProxyOptions{Patience: time.Minute})
	go func() { <-came; b.put(assignmentTo(2, 1, hanging, alive)) }()
	if status, have := send(t, "GET", p.URL+"/?key=user-1", nil); status != 200 || !strings.HasPrefix(have, "w1 ") {
		t.Errorf("have %d %s", status, have)
	}
}

func TestProxyPassesOtherAnswersOn(t *testing.T) {
	t.Parallel()
	b, w := newBoard(), newWorker(t, "w0")
	w.take(t, 1)
	b.put(assignmentTo(1, 0, w))
	p := newProxy(t, b, route.ProxyOptions{})
	for _, status := range []int{421, 429, 500, 503} {
		w.serve.Store(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(status) })
		if have, _ := send(t, "GET", p.URL+"/?key=user-1", nil); have != status {
			t.Errorf("have %d, want %d as the worker says", have, status)
		}
	}
}

// TestProxyAnswersWhoClosesItsHalf speaks byte by byte: net/http cancels a request whose sender
// closes its half of the connection, and says 200 for a handler that says nothing then.
func TestProxyAnswersWhoClosesItsHalf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body           string
		hangs          bool // the worker
		want, observed int
	}{
		"a body that breaks off": {"abc", false, 400, 400},
		"a worker that is busy":  {"abcdefghij", true, 502, 499},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, w := newBoard(), newWorker(t, "w0")
			came, observed := make(chan struct{}), make(chan int, 1)
			if c.hangs {
				w.serve.Store(func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					close(came)
					<-r.Context().Done()
				})
			} else {
				close(came)
			}
			w.take(t, 1)
			b.put(assignmentTo(1, 0, w))
			p := newProxy(t, b, route.ProxyOptions{Observe: func(status, _ int) { observed <- status }})
			conn, err := net.Dial("tcp", p.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST /?key=user-1 HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n%s", c.body)
			<-came
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer reply.Body.Close()
			if status := <-observed; status != c.observed || reply.StatusCode != c.want {
				t.Errorf("have %s and observed %d, want %d and %d", reply.Status, status, c.want, c.observed)
			}
		})
	}
}
