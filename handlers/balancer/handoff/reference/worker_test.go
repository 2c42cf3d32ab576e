package reference_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/engine"
	"procaas/handlers/balancer/handoff"
	"procaas/handlers/balancer/handoff/reference"
)

// A clock is moved by the test.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newWorker(t *testing.T) (*reference.Worker, *clock) {
	t.Helper()
	c := &clock{now: time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)}
	o := reference.DefaultOptions()
	o.ID, o.Partitions, o.Capacity, o.Cold, o.Now = "w0", 4, 40, 4, c.read
	w := reference.New(o)
	t.Cleanup(w.Close)
	return w, c
}

func order(t *testing.T, follow func(handoff.Order) (handoff.State, error), version int64, partitions ...int) handoff.State {
	t.Helper()
	s, err := follow(handoff.Order{Cluster: "demo", Version: version, Partitions: partitions})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// call sends a request for partition 0, and returns the status.
func call(t *testing.T, w *reference.Worker, path string) (int, reference.Answer, http.Header) {
	t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	r.Header.Set(engine.HeaderPartition, "0")
	rec := httptest.NewRecorder()
	w.Handler().ServeHTTP(rec, r)
	var a reference.Answer
	if err := json.Unmarshal(rec.Body.Bytes(), &a); err != nil {
		t.Fatalf("%s: %v in %s", path, err, rec.Body)
	}
	return rec.Code, a, rec.Header()
}

func TestWorkerServesOnlyWhatItHolds(t *testing.T) {
	t.Parallel()
	w, c := newWorker(t)
	status, _, header := call(t, w, "/keys/a")
	if status != http.StatusMisdirectedRequest || header.Get(engine.HeaderAssignment) != "0" {
		t.Errorf("before it is taken: have %d, %v", status, header)
	}
	order(t, w.Holder().Take, 3, 0)
	for want := range int64(2) {
		status, a, _ := call(t, w, "/keys/a")
		if status != http.StatusOK || a.Served != want+1 || a.Worker != "w0" || a.Token != 3 || a.Key != "a" {
			t.Errorf("have %d, %+v", status, a)
		}
	}
	release := func(o handoff.Order) (handoff.State, error) { return w.Holder().Release(t.Context(), o) }
	order(t, release, 4, 0)
	if status, _, header := call(t, w, "/keys/a"); status != http.StatusMisdirectedRequest || header.Get(engine.HeaderAssignment) != "4" {
		t.Errorf("after it was released: have %d, %v", status, header)
	}
	c.move(time.Second)
	order(t, w.Holder().Take, 5, 0)
	if _, a, _ := call(t, w, "/keys/a"); a.Served != 1 || a.Token != 5 {
		t.Errorf("when it is back: have %+v, want nothing left of before", a)
	}
}

func TestWorkerDropsWhatIsTooMuch(t *testing.T) {
	t.Parallel()
	w, c := newWorker(t)
	order(t, w.Holder().Take, 1, 0)
	serve := func(cold bool) (served, dropped int64) {
		for range 100 {
			status, a, _ := call(t, w, "/any/path")
			switch status {
			case http.StatusOK:
				served++
				if a.Cold != cold {
					t.Errorf("cold: have %v, want %v", a.Cold, cold)
				}
			case http.StatusServiceUnavailable:
				dropped++
			default:
				t.Fatalf("status %d", status)
			}
			c.move(10 * time.Millisecond) // so 100 come in a second
		}
		return served, dropped
	}
	served, dropped := serve(true) // each four times as much work, of 40 in a second
	if served > 15 || served < 9 {
		t.Errorf("cold: %d served, %d dropped, want about 10 and what the burst gives", served, dropped)
	}
	c.move(10 * time.Minute)
	if served, dropped = serve(false); served < 40 || served > 51 {
		t.Errorf("warm: %d served, %d dropped, want about 40 and what the burst gives", served, dropped)
	}
	// The window of two seconds in which all that was.
	c.move(time.Second)
	h := w.Health()
	if h.Requests != served || h.Drops != dropped || h.Partitions[0] != 100 || h.Busy < 0.5 || h.Busy > 0.7 || h.Window != 2 || h.Age < 600 {
		t.Errorf("have %+v after %d served and %d dropped", h, served, dropped)
	}
	c.move(2 * time.Second)
	if h = w.Health(); h.Requests != 0 || h.Busy != 0 || len(h.Partitions) != 1 || h.Partitions[0] != 0 || h.Version != 1 {
		t.Errorf("in a window without requests: have %+v", h)
	}
}

func TestWarmingMakesTheFirstRequestsCheaper(t *testing.T) {
	t.Parallel()
	w, _ := newWorker(t)
	order(t, w.Holder().Warm, 1, 0)
	for w.Holder().State().Partitions[0].Phase != handoff.Warm {
		time.Sleep(time.Millisecond)
	}
	order(t, w.Holder().Take, 2, 0)
	served := 0
	for range 100 {
		if status, _, _ := call(t, w, "/keys/a"); status == http.StatusOK {
			served++
		}
	}
	// The burst is 10 requests to a warm partition; one that was warmed costs about 2.1.
	if served != 4 {
		t.Errorf("%d served of a burst, want 4; it would be 2 if all were cold", served)
	}
}

func TestWorkerTellsThatItStops(t *testing.T) {
	t.Parallel()
	w, _ := newWorker(t)
	w.Drain()
	rec := httptest.NewRecorder()
	w.Handler().ServeHTTP(rec, httptest.NewRequest("GET", reference.PathHealthcheck, nil))
	if !strings.Contains(rec.Body.String(), `"draining":true`) {
		t.Errorf("have %s", rec.Body)
	}
	rec = httptest.NewRecorder()
	w.Handler().ServeHTTP(rec, httptest.NewRequest("GET", reference.PathPing, nil))
	if rec.Code != http.StatusOK {
		t.Errorf("ping: have %d", rec.Code)
	}
	rec = httptest.NewRecorder()
	w.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/no/key", nil))
	if rec.Code != http.StatusBadRequest {
		t.Errorf("without a key: have %d", rec.Code)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	if err := reference.DefaultOptions().Check(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*reference.Options){
		"cluster": func(o *reference.Options) { o.Cluster = "" }, "partitions": func(o *reference.Options) { o.Partitions = 0 },
		"capacity": func(o *reference.Options) { o.Capacity = 0 }, "cold": func(o *reference.Options) { o.Cold = 0.5 },
		"cold time": func(o *reference.Options) { o.ColdTime = 0 }, "window": func(o *reference.Options) { o.Window = -1 },
	} {
		o := reference.DefaultOptions()
		spoil(&o)
		if err := o.Check(); err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
}
