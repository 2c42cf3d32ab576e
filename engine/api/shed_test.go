package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/api"
	"procaas/engine/api/wire"
	"procaas/engine/budget"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/engine/writes"
)

// A flood is many clients that submit events at once.
type flood struct {
	n       node
	waiting sync.WaitGroup

	mu       sync.Mutex        // guards the following
	accepted map[string]bool   // event
	refused  map[string]string // event → Retry-After
}

// send submits events that are named after the request, and does not wait.
func (f *flood) send(ctx context.Context, request, events int) {
	f.waiting.Go(func() {
		list := make([]string, events)
		for i := range list {
			list[i] = fmt.Sprintf(`{"type": "new-order-created", "id": "%d-%d", "payload": {"order-id": "o/%d-%d"}}`, request, i, request, i)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.n.url+"/v1/events", strings.NewReader("["+strings.Join(list, ",")+"]"))
		if err != nil {
			panic(err) // the URL is the server's own
		}
		req.Header.Set("Content-Type", "application/json")
		reply, err := http.DefaultClient.Do(req)
		if err != nil {
			return // cancelled by the test
		}
		defer reply.Body.Close()
		body, _ := io.ReadAll(reply.Body)
		f.mu.Lock()
		defer f.mu.Unlock()
		switch {
		case reply.StatusCode == http.StatusAccepted:
			for i := range list {
				f.accepted[fmt.Sprintf("%d-%d", request, i)] = true
			}
		case strings.Contains(string(body), `"overloaded"`):
			for i := range list {
				f.refused[fmt.Sprintf("%d-%d", request, i)] = reply.Header.Get("Retry-After")
			}
		}
	})
}

func (f *flood) refusals() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.refused)
}

func TestOverloadIsRefusedBeforeItIsLatency(t *testing.T) {
	t.Parallel()
	stuck, entered := make(chan struct{}), make(chan struct{}, 1000)
	n := newNode(t, func(o *engine.Options) {
		o.Store = (&enginetest.Faulty{Store: o.Store, Before: func(op string) error {
			if op == "accept" {
				entered <- struct{}{}
				<-stuck
			}
			return nil
		}}).Ports()
	})
	f := &flood{n: n, accepted: map[string]bool{}, refused: map[string]string{}}
	began := time.Now()
	for i := range 5 {
		f.send(t.Context(), i, 80)
		if i < 2 {
			<-entered // all that comes later waits
		}
	}
	// Those that come later wait for their turn, or are refused; in the end they leave.
	const late = 1000
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	request := late
	n.until(t, "the node refuses events", func() bool {
		request++
		f.send(ctx, request, 1)
		return f.refusals() > 0
	})
	leave()
	n.until(t, "the node drops the events of those who have left", func() bool {
		return !strings.Contains(n.text(t, "/metrics"), `procaas_events_shed_total{reason="client_left"} 0`)
	})
	n.until(t, "the node tells that it refuses events", func() bool {
		return strings.Contains(n.text(t, "/readyz"), "some are refused") &&
			strings.Contains(n.text(t, "/metrics"), `procaas_events_shed_total{reason="overload"}`)
	})
	hung := time.Since(began)
	close(stuck)
	f.waiting.Wait()
	// On a slow machine the writes have hung for so long that their callers were told, and have left.
	if len(f.accepted) < 160 && hung < writes.FailFor-200*time.Millisecond {
		t.Errorf("want the events accepted that were there first, have %d", len(f.accepted))
	}
	for id, after := range f.refused {
		if after == "" {
			t.Errorf("want a Retry-After for %s", id)
		}
		if f.accepted[id] {
			t.Errorf("event %s is both accepted and refused", id)
		}
	}
	stored := map[string]model.Status{}
	n.until(t, "all runs have ended", func() bool {
		ended := true
		for cursor := ""; ; {
			page, err := n.Runs(t.Context(), store.RunFilter{Pipeline: "new-order-created", Limit: 1000, Cursor: cursor})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page.Items {
				stored[r.Event.ID] = r.Status
				ended = ended && r.Status.Ended()
			}
			if page.Next == nil {
				return ended
			}
			cursor = *page.Next
		}
	})
	for id := range stored {
		if number, _, _ := strings.Cut(id, "-"); len(number) >= len(fmt.Sprint(late)) {
			t.Errorf("event %s is stored, though its client left before its turn", id)
		}
	}
	for id := range f.accepted {
		if stored[id] != model.Succeeded {
			t.Errorf("event %s was accepted; want its run succeeded, have %q", id, stored[id])
		}
	}
	for id := range f.refused {
		if s, ok := stored[id]; ok {
			t.Errorf("event %s was refused, and has a run that is %s", id, s)
		}
	}
	if _, err := n.SubmitEvent(t.Context(),
		wire.Event{Type: "new-order-created", Payload: map[string]any{"order-id": "o/last"}}); err != nil {
		t.Errorf("want events accepted again, have %v", err)
	}
}

func (n node) text(t *testing.T, path string) string {
	t.Helper()
	reply, err := http.Get(n.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// Requests hold memory for the bytes that have come, and for what they are decoded. There is a bound
// for all of them together.
func TestBodiesOfAllRequestsAreBounded(t *testing.T) {
	t.Parallel()
	m := budget.New(8 << 20) // 1 MiB for requests
	h := api.New(api.Options{Engine: portsOf(newFake(taxi(t))), MaxBody: 32 << 20, Memory: m})
	// send announces a body, of which the first bytes come.
	send := func(bytes int) (w *httptest.ResponseRecorder, rest *io.PipeWriter, done chan struct{}) {
		body, rest := io.Pipe()
		r := httptest.NewRequest(http.MethodPost, "/v1/events", body)
		r.ContentLength = 30 << 20
		r.Header.Set("Content-Type", "application/json")
		w, done = httptest.NewRecorder(), make(chan struct{})
		go func() {
			h.ServeHTTP(w, r)
			body.Close()
			close(done)
		}()
		_, _ = rest.Write([]byte(strings.Repeat(" ", bytes))) // fails when the request is refused
		return w, rest, done
	}
	finish := func(rest *io.PipeWriter, done chan struct{}) {
		_, _ = rest.Write([]byte(`{"type": "new-order-created"}`))
		rest.Close()
		<-done
	}
	holds := func(bytes int64) { // memory is taken only behind the bytes, so the next request must wait for that
		t.Helper()
		patience.Until(t, "memory for what has come", func() bool { return int64(m.Usage().Used[budget.Requests]) >= bytes })
	}
	one, oneRest, oneDone := send(200 << 10)
	holds(200 << 10)
	two, twoRest, twoDone := send(1)
	holds(200<<10 + 1)
	w, _, done := send(900 << 10)
	<-done
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "overloaded") {
		t.Errorf("want 503 with a Retry-After, have %d %v %.200s", w.Code, w.Header(), w.Body)
	}
	finish(oneRest, oneDone)
	finish(twoRest, twoDone)
	for _, w := range []*httptest.ResponseRecorder{one, two} {
		if w.Code != http.StatusAccepted {
			t.Errorf("want 202 for those that there is memory for, have %d %.200s", w.Code, w.Body)
		}
	}
	if n := m.Usage().Used[budget.Requests]; n != 0 {
		t.Errorf("want all memory returned, have %d bytes used", n)
	}
	// 64 KiB of this are 3 MiB in memory.
	r := httptest.NewRequest(http.MethodPost, "/v1/events", strings.NewReader(
		`{"type": "new-order-created", "payload": {"list": [`+strings.Repeat(`{"a":0},`, 8<<10)+`0]}}`))
	r.Header.Set("Content-Type", "application/json")
	w = httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusRequestEntityTooLarge || !strings.Contains(w.Body.String(), "--memory") {
		t.Errorf("want 413 for what never fits when it is decoded, have %d %.300s", w.Code, w.Body)
	}
}

// Whoever has no token keeps nobody from writing, whatever he announces.
func TestStrangersKeepNobodyFromWriting(t *testing.T) {
	t.Parallel()
	const admin = "correct-horse-battery-staple"
	m := budget.New(512 << 20)
	h := api.New(api.Options{Engine: portsOf(newFake(taxi(t))), Token: admin, Memory: m})
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	strange := func(path, length, body string) net.Conn {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, err = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %s\r\n\r\n%s",
			path, length, body)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	write := func() {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, "/v1/events", strings.NewReader(`{"type": "new-order-created"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+admin)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusAccepted {
			t.Fatalf("want the event accepted, have %d %.300s", w.Code, w.Body)
		}
	}
	signIn := func() {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, "/console/sign-in", strings.NewReader("token="+admin))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusSeeOther {
			t.Fatalf("want people signed in, have %d %.300s", w.Code, w.Body)
		}
	}
	for range 70 {
		c := strange("/console/sign-in", "1048576", "t")
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil || !strings.Contains(line, "413") {
			t.Fatalf("want a large form of a stranger refused by what it announces, have %q, %v", line, err)
		}
	}
	for range 100 { // held up in the middle
		strange("/console/sign-in", "16000", "token="+strings.Repeat("x", 15_000))
		strange("/v1/events", "1048576", "{")
	}
	write()
	signIn()
	if used := m.Usage().Used; used[budget.Requests] != 0 {
		t.Errorf("want no memory held for strangers, have %v", used)
	}
	// A body of several parts is not read for a page, either.
	r := httptest.NewRequest(http.MethodGet, "/console/sign-in", strings.NewReader("--b\r\n"+
		"Content-Disposition: form-data; name=\"next\"\r\n\r\n/console/runs\r\n--b--\r\n"))
	r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `name="next" value="/">`) {
		t.Errorf("want the body of a GET unread, have %d %s", w.Code, w.Body)
	}
}
