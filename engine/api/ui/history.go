package ui

import (
	"sync"
	"time"

	"procaas/engine/stats"
)

const (
	sampleEvery = 5 * time.Second
	sampleSpan  = 720 // samples: an hour
)

// A point is what one sample says about the whole node.
type point struct {
	At       time.Time
	Accepted float64 // events in a second
	Errors   float64 // share of calls that failed, in the minute before
	Out      int     // handlers that are out of the flow by themselves
}

// A handlerPoint is what one sample says about a handler; all are of the minute before.
type handlerPoint struct {
	At    time.Time
	Rate  float64 // calls in a second
	Ratio float64 // share that succeeded; -1 without calls
	P50   float64 // ms
	P99   float64
}

// A history keeps an hour of samples.
type history struct {
	mu       sync.RWMutex              // guards the following
	last     float64                   // events accepted at the sample before: counters are shown by their growth
	points   []point                   // of the node, the oldest first
	handlers map[string][]handlerPoint // by path
	clusters map[string][]clusterPoint // by id; nil before the first
}

// A clusterPoint is how even the load of a cluster was.
type clusterPoint struct {
	At       time.Time // of the balancer's reports
	Gini     float64   // 0 is even, 1 is all on one worker
	Requests float64   // in a second
	Drops    float64   // likewise
}

// sampleClusters takes a sample of clusters.
func (h *history) sampleClusters(now map[string]clusterPoint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clusters == nil {
		h.clusters = map[string][]clusterPoint{}
	}
	for id, p := range now {
		points := h.clusters[id]
		if n := len(points); n > 0 && !p.At.After(points[n-1].At) {
			continue // the balancer has seen nothing since
		}
		h.clusters[id] = keep(append(points, p))
	}
}

// ofCluster returns the samples of a cluster.
func (h *history) ofCluster(id string) []clusterPoint {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return append([]clusterPoint(nil), h.clusters[id]...)
}

// newHistory knows nothing: an hour after the start of the node it is full.
func newHistory() *history { return &history{handlers: map[string][]handlerPoint{}} }

// sample takes a sample.
func (h *history) sample(now time.Time, handlers []stats.HandlerInfo, n Numbers) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := point{At: now}
	if k := len(h.points); k > 0 {
		p.Accepted = perSecond(n.Accepted, h.last, now.Sub(h.points[k-1].At).Seconds())
	}
	known := make(map[string][]handlerPoint, len(handlers))
	calls, failed := 0.0, 0.0
	for _, i := range handlers {
		hp := handlerPoint{At: now, Rate: i.CallsPerS, Ratio: -1}
		if i.SuccessRatio != nil {
			hp.Ratio = *i.SuccessRatio
			calls += i.CallsPerS
			failed += i.CallsPerS * (1 - hp.Ratio)
		}
		if i.LatencyP50 != nil && i.LatencyP99 != nil {
			hp.P50, hp.P99 = *i.LatencyP50, *i.LatencyP99
		}
		if i.Fallback.IsOut() {
			p.Out++
		}
		known[i.Path] = keep(append(h.handlers[i.Path], hp))
	}
	if calls > 0 {
		p.Errors = failed / calls
	}
	// Handlers that the definition has not got any more are forgotten.
	h.handlers, h.last, h.points = known, n.Accepted, keep(append(h.points, p))
}

// perSecond is the growth of a counter; a counter that has begun anew grows by what it
// is.
func perSecond(now, before, span float64) float64 {
	if now < before {
		before = 0
	}
	if span <= 0 {
		return 0
	}
	return (now - before) / span
}

// keep drops what is too old.
func keep[T any](list []T) []T {
	if len(list) > sampleSpan {
		// A copy: behind a slice of the same array, what is dropped would stay in memory.
		list = append([]T(nil), list[len(list)-sampleSpan:]...)
	}
	return list
}

// all returns the samples of the node, the oldest first.
func (h *history) all() []point {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return append([]point(nil), h.points...)
}

// of returns those of a handler.
func (h *history) of(path string) []handlerPoint {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return append([]handlerPoint(nil), h.handlers[path]...)
}
