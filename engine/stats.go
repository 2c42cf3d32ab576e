package engine

import (
	"math"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Statistics look back one minute, in slots of five seconds. Latencies fall into
// bins that grow by a third each: fine enough for people, small enough for
// thousands of handlers.
const (
	statSlots   = 12
	statSlot    = 5 * time.Second
	statBins    = 52
	statBinBase = 50 * time.Microsecond // upper bound of the first bin
	statBinStep = 1.33                  // the last bin begins at about two minutes
)

// stats counts what this node has seen of each handler.
type stats struct {
	metrics *Metrics
	paths   sync.Map // path → *pathStats
}

// path gives the statistics of one handler.
func (s *stats) path(path string) *pathStats {
	if p, ok := s.paths.Load(path); ok {
		return p.(*pathStats)
	}
	parts := append(strings.SplitN(path, "/", 3), "", "")
	label := func(outcome string) prometheus.Counter {
		return s.metrics.HandlerCalls.WithLabelValues(parts[0], parts[1], parts[2], outcome)
	}
	p, _ := s.paths.LoadOrStore(path, &pathStats{
		succeeded: label("succeeded"), failed: label("failed"), skipped: label("skipped"),
		givenUp:   s.metrics.HandlerGivenUp.WithLabelValues(parts[0], parts[1], parts[2]),
		switchOff: s.metrics.SwitchOff.WithLabelValues(parts[0], parts[1], parts[2]),
		seconds:   s.metrics.HandlerSeconds.WithLabelValues(parts[0], parts[1], parts[2]),
	})
	return p.(*pathStats)
}

// A pathStats is a ring of the last minute of one handler.
type pathStats struct {
	succeeded, failed, skipped, givenUp prometheus.Counter
	switchOff                           prometheus.Gauge
	seconds                             prometheus.Observer

	mu        sync.Mutex // guards the following
	ring      [statSlots]statSlotCounts
	lastError string
}

// A statSlotCounts holds the attempts that ended in one slot of time.
type statSlotCounts struct {
	slot      int64 // number of the slot since the Unix epoch; another one is stale
	succeeded int64
	failed    int64
	bins      [statBins]uint32
}

// ended counts an attempt.
func (p *pathStats) ended(err error, took time.Duration, now time.Time) {
	p.seconds.Observe(took.Seconds())
	p.mu.Lock()
	defer p.mu.Unlock()
	slot := now.UnixNano() / int64(statSlot)
	c := &p.ring[slot%statSlots]
	if c.slot != slot {
		*c = statSlotCounts{slot: slot}
	}
	c.bins[latencyBin(took)]++
	if err == nil {
		c.succeeded++
		p.succeeded.Inc()
		return
	}
	c.failed++
	p.failed.Inc()
	p.lastError = err.Error()
}

// fill completes a view with the last minute.
func (p *pathStats) fill(h *HandlerInfo, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h.LastError = p.lastError
	slot := now.UnixNano() / int64(statSlot)
	var succeeded int64
	var bins [statBins]uint32
	for i := range p.ring {
		c := &p.ring[i]
		if c.slot <= slot-statSlots || c.slot > slot {
			continue
		}
		h.Calls += c.succeeded + c.failed
		succeeded += c.succeeded
		for b, n := range c.bins {
			bins[b] += n
		}
	}
	if h.Calls == 0 {
		return
	}
	ratio := float64(succeeded) / float64(h.Calls)
	p50, p99 := quantile(&bins, h.Calls, 0.5), quantile(&bins, h.Calls, 0.99)
	h.SuccessRatio, h.LatencyP50, h.LatencyP99 = &ratio, &p50, &p99
}

// latencyBin finds the bin of a duration.
func latencyBin(d time.Duration) int {
	if d <= statBinBase {
		return 0
	}
	bin := math.Ceil(math.Log(float64(d)/float64(statBinBase)) / math.Log(statBinStep))
	return min(int(bin), statBins-1)
}

// quantile gives the middle of the bin in which the q-th part of all latencies
// ends, in milliseconds.
func quantile(bins *[statBins]uint32, total int64, q float64) float64 {
	rank := int64(math.Ceil(q * float64(total)))
	for b, n := range bins {
		if rank -= int64(n); rank > 0 {
			continue
		}
		upper := float64(statBinBase) * math.Pow(statBinStep, float64(b))
		return upper * (1 + 1/statBinStep) / 2 / float64(time.Millisecond)
	}
	return 0
}
