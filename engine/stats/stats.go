package stats

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine/definitions"
	"procaas/engine/guard"
	"procaas/engine/model"
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

// forgetAfter is how long a handler that the present definition does not have is
// still counted: runs that began with another one may call it.
const forgetAfter = time.Hour

// Stats counts what this node has seen of each handler. What it keeps, and what
// the metrics show, is bounded by the definitions of the last hour.
type Stats struct {
	Metrics   *Metrics
	paths     sync.Map                // path → *pathStats
	followed  *definitions.Definition // by follow, whose goroutine alone touches these
	pipelines map[string]time.Time
}

// Path returns the statistics of one handler.
func (s *Stats) Path(path string) *pathStats {
	if p, ok := s.paths.Load(path); ok {
		return p.(*pathStats)
	}
	parts := model.SplitPath(path)
	label := func(outcome string) prometheus.Counter {
		return s.Metrics.HandlerCalls.WithLabelValues(parts[0], parts[1], parts[2], outcome)
	}
	now := time.Now()
	fresh := &pathStats{
		succeeded: label("succeeded"), failed: label("failed"), Skipped: label("skipped"),
		GivenUp: s.Metrics.HandlerGivenUp.WithLabelValues(parts[:]...),
		seconds: s.Metrics.HandlerSeconds.WithLabelValues(parts[:]...),
		since:   now, asked: now,
	}
	// Two may come at once: the first one stays, and the counters are the same ones.
	p, _ := s.paths.LoadOrStore(path, fresh)
	return p.(*pathStats)
}

// Follow keeps what is counted to what the present definition has: all of that
// is shown from the beginning, so that the first failure is an increase, and
// what only old definitions have is forgotten once it is quiet.
func (s *Stats) Follow(d *definitions.Definition, now time.Time) {
	if s.pipelines == nil {
		s.pipelines = map[string]time.Time{}
	}
	for _, p := range d.Plans {
		s.pipelines[p.Pipeline.ID] = now
		for _, step := range p.Written {
			seen := s.Path(step.Path)
			seen.mu.Lock()
			seen.asked = now
			seen.mu.Unlock()
		}
		if d != s.followed {
			for _, status := range []model.Status{model.Succeeded, model.Failed, model.Cancelled, model.Ignored} {
				s.Metrics.Runs.WithLabelValues(p.Pipeline.ID, string(status))
			}
		}
	}
	s.followed = d
	s.paths.Range(func(path, seen any) bool {
		if seen.(*pathStats).quiet(now) {
			s.paths.Delete(path)
			s.Metrics.forget(model.SplitPath(path.(string)))
		}
		return true
	})
	for pipeline, last := range s.pipelines {
		if now.Sub(last) >= forgetAfter {
			delete(s.pipelines, pipeline)
			s.Metrics.Runs.DeletePartialMatch(prometheus.Labels{"pipeline": pipeline})
		}
	}
}

// A pathStats is a ring of the last minute of one handler.
type pathStats struct {
	succeeded, failed, Skipped, GivenUp prometheus.Counter
	seconds                             prometheus.Observer

	since    time.Time    // when it was first looked at; it never changes
	Underway atomic.Int64 // calls
	Waiting  atomic.Int64 // runs that the guard lets wait

	mu          sync.Mutex // guards the following
	ring        [statSlots]statSlotCounts
	recent      guard.Budget // of the last seconds: a minute shows an outage late
	asked       time.Time    // when the definition had it last
	gone        guard.Budget // bad: runs that went on without the handler, since it had to wait for too long
	lastError   string       // of the attempt of lastFailure; it stays when others succeed
	lastSuccess time.Time    // zero before the first
	lastFailure time.Time    // likewise
	said        time.Time    // that the handler failed for good
	unsaid      int          // such failures since, of which the next line in the log tells
}

// sayEvery is how often it is logged that a handler failed for good.
const sayEvery = 10 * time.Second

// Say reports whether to log that the handler failed for good, and how often it was
// not logged since.
func (p *pathStats) Say(now time.Time) (unsaid int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.said.IsZero() && now.Sub(p.said) < sayEvery {
		p.unsaid++
		return 0, false
	}
	unsaid, p.said, p.unsaid = p.unsaid, now, 0
	return unsaid, true
}

// quiet reports whether nobody has needed the handler for long.
func (p *pathStats) quiet(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	// A definition that is gone may still be called: by runs that began with it.
	for _, last := range []time.Time{p.asked, p.lastSuccess, p.lastFailure} {
		if now.Sub(last) < forgetAfter {
			return false
		}
	}
	return p.Underway.Load() == 0 && p.Waiting.Load() == 0
}

// A statSlotCounts holds the attempts that ended in one slot of time.
type statSlotCounts struct {
	slot      int64 // number of the slot since the Unix epoch; another one is stale
	succeeded int64
	failed    int64
	bins      [statBins]uint32 // how many took so long
}

// Ended counts an attempt.
func (p *pathStats) Ended(err error, took time.Duration, now time.Time) {
	p.seconds.Observe(took.Seconds())
	p.mu.Lock()
	defer p.mu.Unlock()
	slot := now.UnixNano() / int64(statSlot)
	c := &p.ring[slot%statSlots]
	if c.slot != slot {
		*c = statSlotCounts{slot: slot}
	}
	c.bins[latencyBin(took)]++
	p.recent.End(err == nil, now)
	if err == nil {
		c.succeeded++
		p.succeeded.Inc()
		p.lastSuccess = now
		return
	}
	c.failed++
	p.failed.Inc()
	p.lastError, p.lastFailure = err.Error(), now
}

// Waited counts a run that went on without the handler, since it had to wait for too long.
func (p *pathStats) Waited(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone.End(false, now)
}

// Fill completes a view with the last minute.
func (p *pathStats) Fill(h *HandlerInfo, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h.InFlight, h.Waiting = p.Underway.Load(), p.Waiting.Load()
	h.LastError, h.LastSuccess, h.LastFailure = p.lastError, model.Moment(p.lastSuccess), model.Moment(p.lastFailure)
	if good, bad := p.recent.Outcomes(now); good+bad > 0 {
		ratio := float64(good) / float64(good+bad)
		h.RecentCalls, h.RecentRatio = int64(good+bad), &ratio
	}
	_, gone := p.gone.Outcomes(now)
	h.LeftOut = int64(gone)
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
	// Of the present slot only the part that has passed counts, and of a handler that is new
	// only its life: otherwise the rate would begin too low.
	window := min(now.Sub(p.since), (statSlots-1)*statSlot+time.Duration(now.UnixNano()%int64(statSlot)))
	h.CallsPerS = float64(h.Calls) / max(window, time.Second).Seconds()
	ratio := float64(succeeded) / float64(h.Calls)
	p50, p99 := quantile(&bins, h.Calls, 0.5), quantile(&bins, h.Calls, 0.99)
	h.SuccessRatio, h.LatencyP50, h.LatencyP99 = &ratio, &p50, &p99
}

// latencyBin finds the bin of a duration. The last one takes all that is longer.
func latencyBin(d time.Duration) int {
	if d <= statBinBase {
		return 0
	}
	bin := math.Ceil(math.Log(float64(d)/float64(statBinBase)) / math.Log(statBinStep))
	return min(int(bin), statBins-1)
}

// quantile returns the middle of the bin in which the q-th part of all latencies
// ends, in milliseconds.
func quantile(bins *[statBins]uint32, total int64, q float64) float64 {
	rank := int64(math.Ceil(q * float64(total)))
	for b, n := range bins {
		if rank -= int64(n); rank > 0 {
			continue
		}
		// The bin goes from upper/statBinStep to upper.
		upper := float64(statBinBase) * math.Pow(statBinStep, float64(b))
		return upper * (1 + 1/statBinStep) / 2 / float64(time.Millisecond)
	}
	return 0
}
