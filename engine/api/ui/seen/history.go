package seen

import (
	"maps"
	"slices"
	"sync"
	"time"

	"procaas/engine/stats"
)

const (
	SampleEvery = 5 * time.Second
	sampleSpan  = 720 // samples: an hour
)

// A Point is what one sample says about the whole node.
type Point struct {
	At       time.Time
	Accepted float64 // events in a second
	Errors   float64 // share of calls that failed, in the minute before
	Out      int     // handlers that are out of the flow by themselves
}

// A HandlerPoint is what one sample says about a handler. All are of the minute before.
type HandlerPoint struct {
	At    time.Time
	Rate  float64 // calls in a second
	Ratio float64 // share that succeeded; -1 without calls
	P50   float64 // ms
	P99   float64
}

// A History keeps an hour of samples.
type History struct {
	mu       sync.RWMutex              // guards the following
	last     Numbers                   // at the last sample: counters are shown by their growth
	points   []Point                   // of the node, the oldest first
	handlers map[string][]HandlerPoint // by path
}

// NewHistory knows nothing: an hour after the start of the node it is full.
func NewHistory() *History { return &History{handlers: map[string][]HandlerPoint{}} }

// Sample takes a sample.
func (h *History) Sample(now time.Time, handlers []stats.HandlerInfo, n Numbers) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := Point{At: now}
	if k := len(h.points); k > 0 {
		p.Accepted = perSecond(n.Accepted, h.last.Accepted, now.Sub(h.points[k-1].At).Seconds())
	}
	known := make(map[string][]HandlerPoint, len(handlers))
	calls, failed := 0.0, 0.0
	for _, i := range handlers {
		hp := HandlerPoint{At: now, Rate: i.CallsPerS, Ratio: -1}
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
		known[i.Path] = Keep(append(h.handlers[i.Path], hp))
	}
	if calls > 0 {
		p.Errors = failed / calls
	}
	// Handlers that the definition has not got any more are forgotten.
	h.handlers, h.last, h.points = known, n, Keep(append(h.points, p))
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

// Keep drops samples that are too old.
func Keep[T any](list []T) []T {
	if len(list) > sampleSpan {
		// A copy: behind a slice of the same array, what is dropped would stay in memory.
		list = append([]T(nil), list[len(list)-sampleSpan:]...)
	}
	return list
}

// All returns the samples of the node, the oldest first.
func (h *History) All() []Point {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return append([]Point(nil), h.points...)
}

// Numbers returns the counters of the node at the last sample.
func (h *History) Numbers() Numbers {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.last
}

// Of returns those of a handler.
func (h *History) Of(path string) []HandlerPoint {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return append([]HandlerPoint(nil), h.handlers[path]...)
}

// Numbers are counters of the node since its start, and the inbox as it is.
type Numbers struct {
	Accepted float64            // events
	Runs     map[string]float64 // ended, by status
	Waiting  float64            // events of the whole inbox
	Oldest   float64            // seconds
	LeftOut  float64            // runs that went on without a handler
	Took     map[float64]uint64 // runs that succeeded within seconds of their acceptance; each counts also in longer times
}

// P99 returns within how many ms 99 of 100 runs ended that succeeded since earlier numbers. It is 0 if there are none.
func (n Numbers) P99(before Numbers) float64 {
	bounds := slices.Sorted(maps.Keys(n.Took))
	grown := func(bound float64) uint64 {
		if n.Took[bound] < before.Took[bound] {
			return n.Took[bound] // counted anew
		}
		return n.Took[bound] - before.Took[bound]
	}
	if len(bounds) == 0 {
		return 0
	}
	all, low, under := grown(bounds[len(bounds)-1]), 0.0, uint64(0)
	for _, bound := range bounds {
		if count := grown(bound); count > 0 && float64(count) >= 0.99*float64(all) {
			share := (0.99*float64(all) - float64(under)) / float64(count-under)
			return 1000 * (low + share*(bound-low))
		} else {
			low, under = bound, count
		}
	}
	return 0
}
