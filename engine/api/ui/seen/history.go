package seen

import (
	"maps"
	"sync"
	"time"

	"procaas/engine/stats"
)

const (
	SampleEvery = 5 * time.Second
	sampleSpan  = 720 // samples: an hour
	pruneEvery  = time.Minute
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
	last     stats.Numbers             // at the last sample: counters are shown by their growth
	points   []Point                   // of the node, the oldest first
	pruned   time.Time                 // up to when old points of handlers were dropped
	handlers map[string][]HandlerPoint // by path, of the minutes with calls
}

// NewHistory knows nothing: an hour after the start of the node it is full.
func NewHistory() *History { return &History{handlers: map[string][]HandlerPoint{}} }

// Sample takes a sample. The handlers are those that were called in the last minute, and may be more.
func (h *History) Sample(now time.Time, handlers []stats.HandlerInfo, n stats.Numbers) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := Point{At: now}
	if k := len(h.points); k > 0 {
		p.Accepted = perSecond(n.Accepted, h.last.Accepted, now.Sub(h.points[k-1].At).Seconds())
	}
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
		if hp.Ratio >= 0 {
			h.handlers[i.Path] = Keep(append(h.handlers[i.Path], hp))
		}
	}
	if calls > 0 {
		p.Errors = failed / calls
	}
	h.last, h.points = n, Keep(append(h.points, p))
	if oldest := h.points[0].At; oldest.After(h.pruned.Add(pruneEvery)) {
		h.pruned = oldest
		h.prune(oldest)
	}
}

// prune drops what is older than the oldest sample of the node.
func (h *History) prune(oldest time.Time) {
	maps.DeleteFunc(h.handlers, func(_ string, points []HandlerPoint) bool { return points[len(points)-1].At.Before(oldest) })
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
	// The array behind the list is replaced when it is full. Until then what is dropped stays in memory, which is at most a third of it.
	return list[max(0, len(list)-sampleSpan):]
}

// All returns the samples of the node, the oldest first.
func (h *History) All() []Point {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return append([]Point(nil), h.points...)
}

// Numbers returns the counters of the node at the last sample.
func (h *History) Numbers() stats.Numbers {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.last
}

// Of returns those of a handler, also of the minutes without calls.
func (h *History) Of(path string) []HandlerPoint {
	h.mu.RLock()
	defer h.mu.RUnlock()
	known, out := h.handlers[path], make([]HandlerPoint, len(h.points))
	for i, p := range h.points {
		for len(known) > 0 && known[0].At.Before(p.At) {
			known = known[1:]
		}
		out[i] = HandlerPoint{At: p.At, Ratio: -1}
		if len(known) > 0 && known[0].At.Equal(p.At) {
			out[i] = known[0]
		}
	}
	return out
}
