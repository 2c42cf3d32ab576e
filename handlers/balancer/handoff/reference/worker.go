// Package reference is a reference worker. It serves partitions of a cluster, like a service with
// state in memory, and takes part in the hand-off.
package reference

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"procaas/engine"
	"procaas/handlers/balancer/handoff"
)

// Options configures a [Worker].
type Options struct {
	ID         string
	Cluster    string
	Partitions int // of the cluster

	// Capacity is how many requests to warm partitions it serves per second. It drops the rest.
	Capacity float64

	// Cold is how many times as much work a request to a cold partition is. ColdTime is how long it
	// takes until a third of that excess is left. A partition that was warmed is not cold when it
	// is taken.
	Cold     float64
	ColdTime time.Duration

	Window time.Duration // counting period of the healthcheck
	Heard  int64         // as in [handoff.HolderOptions]
	Token  string        // as in [handoff.HolderOptions]
	Now    func() time.Time
}

// DefaultOptions returns those of a small worker.
func DefaultOptions() Options {
	return Options{
		ID: "worker", Cluster: "demo", Partitions: 64, Capacity: 200,
		Cold: 3, ColdTime: 20 * time.Second, Window: 2 * time.Second, Now: time.Now,
	}
}

// Check refuses invalid options.
func (o Options) Check() error {
	switch {
	case o.Cluster == "":
		return fmt.Errorf("the cluster has no id")
	case o.Partitions < 1 || o.Partitions > 1_000_000:
		return fmt.Errorf("%d partitions: want 1 to 1000000", o.Partitions)
	case !(o.Capacity > 0) || math.IsInf(o.Capacity, 0):
		return fmt.Errorf("capacity %v: want a number above 0", o.Capacity)
	case !(o.Cold >= 1) || math.IsInf(o.Cold, 0):
		return fmt.Errorf("cold requests are %v times as much work: want 1 or more", o.Cold)
	case o.ColdTime <= 0 || o.Window <= 0:
		return fmt.Errorf("partitions get warm in %v, counts are over %v: want times above 0", o.ColdTime, o.Window)
	}
	return nil
}

// These are the paths of a worker, besides those of the hand-off.
const (
	PathHealthcheck = "/healthcheck"
	PathPing        = "/ping"
	PathKeys        = "/keys/" // followed by a key; with the partition header, any other path works, too
)

// HeaderDropped marks the answer to a dropped request.
const HeaderDropped = "Procaas-Dropped"

// A Worker serves partitions. Its state is the number of requests per key.
type Worker struct {
	o       Options
	holder  *handoff.Holder
	started time.Time

	mu       sync.Mutex // guards what follows
	caches   map[int]*cache
	budget   float64 // requests that it may serve at once
	filled   time.Time
	window   counts
	last     counts // of the previous window
	draining bool
}

// A cache is a worker's data of a partition.
type cache struct {
	since  time.Time // when it began to get warm
	served map[string]int64
}

// counts are those of one window.
type counts struct {
	from            time.Time
	requests, drops int64
	work            float64 // in requests to warm partitions
	partitions      map[int]int64
}

// New makes a worker without partitions.
func New(o Options) *Worker {
	w := &Worker{o: o, started: o.Now(), caches: map[int]*cache{}, budget: o.most(), filled: o.Now()}
	w.window = counts{from: w.started, partitions: map[int]int64{}}
	w.holder = handoff.NewHolder(handoff.HolderOptions{
		Cluster: o.Cluster, Partitions: o.Partitions, Load: w.load, Drop: w.drop, Heard: o.Heard, Token: o.Token, Now: o.Now,
	})
	return w
}

// Holder returns its part of the hand-off.
func (w *Worker) Holder() *handoff.Holder { return w.holder }

// Close ends loading.
func (w *Worker) Close() { w.holder.Close() }

// Drain announces that the worker is going to stop.
func (w *Worker) Drain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.draining = true
}

// Holds returns how many partitions are served here or still have requests in flight.
func (w *Worker) Holds() int {
	n := 0
	for _, p := range w.holder.State().Partitions {
		if p.Phase == handoff.Held || p.Phase == handoff.Releasing {
			n++
		}
	}
	return n
}

// warmUp is how long loading takes before a move.
const warmUp = 200 * time.Millisecond

// load warms a partition before it comes.
func (w *Worker) load(ctx context.Context, p int) {
	t := time.NewTimer(warmUp)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() == nil {
		w.caches[p] = &cache{since: w.o.Now().Add(-w.o.ColdTime), served: map[string]int64{}}
	}
}

// drop runs with the holder locked, so nothing here calls the holder with its own lock held.
func (w *Worker) drop(p int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.caches, p)
}

// Handler returns the worker's HTTP handler.
func (w *Worker) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(handoff.Root, w.holder.Routes())
	mux.Handle(handoff.Root+"/", w.holder.Routes())
	mux.HandleFunc("GET "+PathPing, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET "+PathHealthcheck, func(rw http.ResponseWriter, _ *http.Request) { reply(rw, http.StatusOK, w.Health()) })
	mux.HandleFunc(PathKeys+"{key}", w.serve)
	mux.HandleFunc("/", w.serve)
	return mux
}

// An Answer is the answer to a served request.
type Answer struct {
	Worker    string `json:"worker"`
	Partition int    `json:"partition"`
	Key       string `json:"key,omitempty"`
	Served    int64  `json:"served"` // requests for the key since the partition came
	Cold      bool   `json:"cold"`   // it was more work than for a warm partition
	Token     int64  `json:"token"`  // the version that brought the partition
}

func (w *Worker) serve(rw http.ResponseWriter, r *http.Request) {
	key := r.PathValue("key")
	partition, err := strconv.Atoi(r.Header.Get(engine.HeaderPartition))
	if err != nil || partition < 0 || partition >= w.o.Partitions {
		if key == "" {
			reply(rw, http.StatusBadRequest, handoff.Refusal{
				Title: "The request has no key", Status: http.StatusBadRequest, Code: "missing_key",
				Detail: "want " + PathKeys + "KEY, or the header " + engine.HeaderPartition,
			})
			return
		}
		partition = engine.PartitionOf(key, w.o.Partitions)
	}
	token, end, ok := w.holder.Begin(partition)
	if !ok {
		handoff.NotHeld(rw, partition, w.holder.State().Version)
		return
	}
	defer end()
	a := Answer{Worker: w.o.ID, Partition: partition, Key: key, Token: token}
	if !w.work(&a) {
		rw.Header().Set("Retry-After", "1")
		rw.Header().Set(HeaderDropped, "1")
		reply(rw, http.StatusServiceUnavailable, handoff.Refusal{
			Title: "The worker has too much to do", Status: http.StatusServiceUnavailable, Code: "dropped",
			Detail: fmt.Sprintf("%s serves %v requests in a second", w.o.ID, w.o.Capacity),
		})
		return
	}
	reply(rw, http.StatusOK, a)
}

// burst is for how many seconds an idle worker can catch up.
const burst = 0.25 // seconds

// most returns how many requests it may serve at once.
func (o Options) most() float64 { return max(o.Capacity*burst, o.Cold) }

// work does the work of a request, or reports that it is too much.
func (w *Worker) work(a *Answer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.o.Now()
	w.roll(now)
	w.budget = min(w.o.most(), w.budget+max(0, now.Sub(w.filled).Seconds())*w.o.Capacity)
	w.filled = now
	c := w.caches[a.Partition]
	if c == nil {
		c = &cache{since: now, served: map[string]int64{}}
		w.caches[a.Partition] = c
	}
	cost := 1 + (w.o.Cold-1)*math.Exp(-now.Sub(c.since).Seconds()/w.o.ColdTime.Seconds())
	w.window.partitions[a.Partition]++
	if w.budget < cost {
		w.window.drops++
		return false
	}
	w.budget -= cost
	w.window.requests++
	w.window.work += cost
	a.Cold = cost > 1.1
	if _, known := c.served[a.Key]; known || len(c.served) < mostKeys {
		c.served[a.Key]++
		a.Served = c.served[a.Key]
	}
	return true
}

// mostKeys bounds the counted keys of one partition.
const mostKeys = 10_000

// roll ends windows that are over.
func (w *Worker) roll(now time.Time) {
	passed := now.Sub(w.window.from)
	if passed < w.o.Window {
		return
	}
	whole := passed / w.o.Window
	w.last = w.window
	if whole > 1 { // the last one had no requests
		w.last = counts{partitions: map[int]int64{}}
	}
	w.window = counts{from: w.window.from.Add(whole * w.o.Window), partitions: map[int]int64{}}
}

// A Health is the extended healthcheck.
type Health struct {
	Requests   int64         `json:"requests"`   // served in the window
	Drops      int64         `json:"drops"`      // refused in the window because of overload
	Busy       float64       `json:"busy"`       // share of its capacity in use
	Age        float64       `json:"age_s"`      // of the process
	Window     float64       `json:"window_s"`   // length of the counting period, the last complete one
	Partitions map[int]int64 `json:"partitions"` // requests to each held partition, including dropped ones
	Draining   bool          `json:"draining"`   // the worker is going to stop
	Version    int64         `json:"version"`    // of the assignment that it knows
}

// Health returns the health of the worker.
func (w *Worker) Health() Health {
	state := w.holder.State()
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.o.Now()
	w.roll(now)
	h := Health{
		Requests: w.last.requests, Drops: w.last.drops, Busy: min(1, w.last.work/(w.o.Capacity*w.o.Window.Seconds())),
		Age: now.Sub(w.started).Seconds(), Window: w.o.Window.Seconds(), Partitions: map[int]int64{},
		Draining: w.draining, Version: state.Version,
	}
	maps.Copy(h.Partitions, w.last.partitions)
	for _, p := range state.Partitions {
		if p.Phase == handoff.Held {
			h.Partitions[p.Partition] += 0
		}
	}
	return h
}

func reply(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Errorf("encode a reply: %w", err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // an error means that the client has gone
}
