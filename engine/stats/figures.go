package stats

import (
	"sync"
	"time"
)

// A period is one of the times that figures are of. It is counted in slots, and the slot of now is a part of it.
type period struct {
	name  string
	slot  time.Duration
	slots int
}

// periods are those of all figures, of handlers and of pipelines.
var periods = [...]period{{"10s", time.Second, 10}, {"1m", 5 * time.Second, 12}, {"10m", time.Minute, 10}, {"1h", 5 * time.Minute, 12}}

const tenMinutes = 2 // in periods

// Latencies are counted in bins that grow by a third each. That is precise enough for people and small enough for
// thousands of handlers.
const (
	statBins    = 52
	statBinBase = 50 * time.Microsecond // upper bound of the first bin
	statBinStep = 1.33                  // the last bin begins at about two minutes
)

// Unmeasured is the latency of what has taken no time that anybody wants to know of. It is in no quantile.
const Unmeasured time.Duration = -1

// A Window has the figures of a period on this node: the attempts of a handler, or the runs of a pipeline.
type Window struct {
	Period       string   `json:"period" doc:"10s, 1m, 10m or 1h."`
	Ended        int64    `json:"ended" doc:"What ended in the period."`
	Failed       int64    `json:"failed" doc:"How many of these failed."`
	PerS         float64  `json:"per_second" doc:"The rate of what ended."`
	SuccessRatio *float64 `json:"success_ratio" doc:"The share that succeeded; null if nothing ended."`
	LatencyP50   *float64 `json:"latency_p50_ms"`
	LatencyP99   *float64 `json:"latency_p99_ms"`
}

// Add adds the figures of another node. The larger quantiles stay.
func (w *Window) Add(o Window) {
	w.Ended += o.Ended
	w.Failed += o.Failed
	w.PerS += o.PerS
	if w.Ended > 0 {
		w.SuccessRatio = new(float64(w.Ended-w.Failed) / float64(w.Ended))
	}
	w.LatencyP50, w.LatencyP99 = larger(w.LatencyP50, o.LatencyP50), larger(w.LatencyP99, o.LatencyP99)
}

// larger returns the larger quantile; nil is none.
func larger(a, b *float64) *float64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

// figures count what ends, over all periods.
type figures struct {
	since time.Time // when it began to count; never changes

	mu    sync.Mutex // guards the following
	rings [len(periods)]ring[slotCounts]
}

// A slotCounts has what ended in one slot.
type slotCounts struct {
	succeeded int64
	failed    int64
	measured  int64            // have a latency
	bins      [statBins]uint32 // number of them per bin
}

// newFigures begins to count.
func newFigures(now time.Time) *figures {
	w := &figures{since: now}
	for i, p := range periods {
		w.rings[i] = newRing[slotCounts](p.slot, p.slots)
	}
	return w
}

// End counts what has ended.
func (w *figures) End(failed bool, took time.Duration, now time.Time) {
	bin := -1
	if took >= 0 {
		bin = latencyBin(took) // outside of the lock, as it takes a logarithm
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.rings {
		c := w.rings[i].at(now)
		if failed {
			c.failed++
		} else {
			c.succeeded++
		}
		if bin >= 0 {
			c.measured++
			c.bins[bin]++
		}
	}
}

// View returns the figures of all periods, the shortest first.
func (w *figures) View(now time.Time) []Window {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]Window, len(periods))
	for i, p := range periods {
		out[i] = w.view(p, &w.rings[i], now)
	}
	return out
}

func (w *figures) view(p period, r *ring[slotCounts], now time.Time) Window {
	v := Window{Period: p.name}
	var sum slotCounts
	for c := range r.last(p.slots, 0, now) {
		sum.succeeded += c.succeeded
		sum.failed += c.failed
		sum.measured += c.measured
		for b, n := range c.bins {
			sum.bins[b] += n
		}
	}
	v.Ended, v.Failed = sum.succeeded+sum.failed, sum.failed
	if v.Ended == 0 {
		return v
	}
	// Of the current slot only the elapsed part counts, and of something new only its lifetime.
	// Otherwise the rate would start too low.
	length := min(now.Sub(w.since), time.Duration(p.slots-1)*p.slot+time.Duration(now.UnixNano()%int64(p.slot)))
	v.PerS = float64(v.Ended) / max(length, time.Second).Seconds()
	v.SuccessRatio = new(float64(sum.succeeded) / float64(v.Ended))
	if sum.measured > 0 {
		v.LatencyP50 = new(quantile(sum.bins[:], statBinBase, sum.measured, 0.5))
		v.LatencyP99 = new(quantile(sum.bins[:], statBinBase, sum.measured, 0.99))
	}
	return v
}

// Periods returns the names of the periods, the shortest first.
func Periods() []string {
	names := make([]string, len(periods))
	for i, p := range periods {
		names[i] = p.name
	}
	return names
}

// slower returns how many of what ended in the last ten minutes took longer than a time, and how many were measured.
func (w *figures) slower(than time.Duration, now time.Time) (slower, measured int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.rings[tenMinutes].last(periods[tenMinutes].slots, 0, now) {
		measured += c.measured
		for _, n := range c.bins[latencyBin(than)+1:] {
			slower += int64(n)
		}
	}
	return slower, measured
}
