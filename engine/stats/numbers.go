package stats

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	dto "github.com/prometheus/client_model/go"

	"procaas/engine/model"
)

// Numbers are counters of a node since its start, and the inbox as it is.
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

// totals count for all pipelines what the metrics count for each. So nobody has to add up thousands of series.
type totals struct {
	leftOut atomic.Int64
	took    [tookBounds + 1]atomic.Uint64 // by the first bucket of the metric that has the duration; the last has those beyond all

	mu   sync.Mutex // guards runs
	runs map[model.Status]float64
}

func (t *totals) ended(status model.Status) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.runs == nil {
		t.runs = map[model.Status]float64{}
	}
	t.runs[status]++
}

func (t *totals) lasted(seconds float64) {
	bucket := 0
	for bound := tookFirst; bucket < tookBounds && seconds > bound; bound *= tookFactor {
		bucket++
	}
	t.took[bucket].Add(1)
}

// Numbers returns what the node has counted.
func (s *Stats) Numbers() Numbers {
	var accepted, waiting, oldest dto.Metric
	// Writing a metric that has no labels cannot fail.
	_, _, _ = s.Metrics.Accepted.Write(&accepted), s.Metrics.InboxWaiting.Write(&waiting), s.Metrics.InboxOldest.Write(&oldest)
	n := Numbers{
		Accepted: accepted.GetCounter().GetValue(), Waiting: waiting.GetGauge().GetValue(), Oldest: oldest.GetGauge().GetValue(),
		Runs: map[string]float64{}, Took: map[float64]uint64{},
	}
	t := &s.totals
	n.LeftOut = float64(t.leftOut.Load())
	within := uint64(0)
	for i, bound := range tookBuckets() {
		within += t.took[i].Load()
		n.Took[bound] = within
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for status, count := range t.runs {
		n.Runs[string(status)] = count
	}
	return n
}
