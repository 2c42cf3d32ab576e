package stats

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine/definitions"
	"procaas/engine/guard"
	"procaas/engine/model"
)

// forgetAfter is how long a handler is kept that the current definition does not have. Runs with
// another definition may still call it.
const forgetAfter = time.Hour

// walkEvery is how often a node looks at the handlers of a definition that stays the same. There may be thousands.
const walkEvery = time.Minute

// MostNamed is how many handlers have series of their own in the metrics, and how many things each
// live gauge shows. Files may have any number of handlers, but /metrics must stay readable.
const MostNamed = 10_000

// othersPath has the labels of all other handlers. No id has a space.
var othersPath = [3]string{"other pipelines", "other stages", "other handlers"}

// Stats counts what this node has seen of each handler. The definitions of the last hour bound what
// it keeps and what the metrics show.
type Stats struct {
	Metrics   *Metrics
	paths     sync.Map // path → *pathStats
	recent    recent
	making    sync.Mutex // guards named, and is held to add and delete paths
	named     int        // handlers that have series of their own
	took      durations
	used      usage
	followed  *definitions.Definition // by Follow; only its goroutine uses this and the following
	walked    time.Time               // when Follow last looked at all handlers
	pipelines map[string]time.Time
	runs      sync.Map // id of a pipeline → *runStats
	totals    totals
}

// Path returns the statistics of one handler.
func (s *Stats) Path(path string) *pathStats {
	if p, ok := s.paths.Load(path); ok {
		return p.(*pathStats)
	}
	s.making.Lock()
	defer s.making.Unlock()
	if p, ok := s.paths.Load(path); ok {
		return p.(*pathStats)
	}
	parts := othersPath
	if s.named < MostNamed {
		s.named++
		parts = model.SplitPath(path)
	}
	label := func(outcome string) prometheus.Counter {
		return s.Metrics.HandlerCalls.WithLabelValues(parts[0], parts[1], parts[2], outcome)
	}
	now := time.Now()
	fresh := &pathStats{
		path: path, recent: &s.recent, labels: parts, succeeded: label("succeeded"), failed: label("failed"), Skipped: label("skipped"),
		GivenUp: s.Metrics.HandlerGivenUp.WithLabelValues(parts[:]...),
		seconds: s.Metrics.HandlerSeconds.WithLabelValues(parts[:]...),
		asked:   now, attempts: newFigures(now),
	}
	s.paths.Store(path, fresh)
	return fresh
}

// forget drops the statistics and the series of a handler.
func (s *Stats) forget(path string, p *pathStats) {
	s.making.Lock()
	defer s.making.Unlock()
	s.paths.Delete(path)
	if p.labels != othersPath {
		s.named--
		s.Metrics.forget(p.labels)
	}
}

// IsFull reports whether further handlers have no series of their own.
func (s *Stats) IsFull() bool {
	s.making.Lock()
	defer s.making.Unlock()
	return s.named >= MostNamed
}

// LeftOut counts a run that left the handler out.
func (s *Stats) LeftOut(path, by string) {
	labels := s.Path(path).labels
	s.Metrics.HandlerLeftOut.WithLabelValues(labels[0], labels[1], labels[2], by).Inc()
	s.totals.leftOut.Add(1)
}

// Follow adjusts the statistics to the current definition. It shows all handlers from the start, so
// that the first failure is an increase. It forgets handlers of old definitions once they are
// quiet. A definition that it has followed before costs nothing but a walk now and then.
func (s *Stats) Follow(d *definitions.Definition, now time.Time) {
	if d == s.followed && now.Sub(s.walked) < walkEvery {
		return
	}
	s.walked = now
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
	if d != s.followed {
		eachTarget(d, func(path, _ string, _ time.Duration) {
			pipeline, stage, _ := strings.Cut(path, "/")
			s.Metrics.LateTotal.WithLabelValues(pipeline, stage)
		})
	}
	s.followed = d
	s.paths.Range(func(path, seen any) bool {
		if p := seen.(*pathStats); p.quiet(now) {
			s.forget(path.(string), p)
		}
		return true
	})
	for pipeline, last := range s.pipelines {
		if now.Sub(last) >= forgetAfter {
			delete(s.pipelines, pipeline)
			s.Metrics.Runs.DeletePartialMatch(prometheus.Labels{"pipeline": pipeline})
			for _, cost := range []*prometheus.CounterVec{
				s.Metrics.CallSeconds, s.Metrics.CPUSeconds, s.Metrics.RequestBytes, s.Metrics.ReplyBytes, s.Metrics.StoredBytes,
			} {
				cost.DeleteLabelValues(pipeline)
			}
			s.paths.Range(func(path, seen any) bool {
				if model.PipelineOf(path.(string)) == pipeline {
					seen.(*pathStats).costs.Store(nil)
				}
				return true
			})
			s.forgetTook(pipeline)
			s.runs.Delete(pipeline)
		}
	}
}

// A pathStats has the figures of one handler.
type pathStats struct {
	path                                string // never changes, as the following
	recent                              *recent
	labels                              [3]string
	succeeded, failed, Skipped, GivenUp prometheus.Counter
	seconds                             prometheus.Observer

	costs    atomic.Pointer[costSeries] // those of its pipeline; nil before the first call
	attempts *figures                   // guards itself
	isRecent atomic.Bool                // recent has it
	Underway atomic.Int64               // calls in flight
	Waiting  atomic.Int64               // runs that the guard makes wait

	mu          sync.Mutex   // guards the following
	asked       time.Time    // when the definition last had the handler
	gone        guard.Budget // bad: runs that continued without the handler because it waited too long
	lastError   string       // of the attempt of lastFailure; later successes keep it
	lastSuccess time.Time    // zero before the first
	lastFailure time.Time    // zero before the first

	Teller // of final failures of the handler
}

// calledSince reports whether an attempt has ended since a time.
func (p *pathStats) calledSince(t time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastSuccess.After(t) || p.lastFailure.After(t)
}

// Active returns the paths of the handlers that have an attempt in the windows of up to a minute. It looks only at those that
// were called since the last time, however many handlers there are.
func (s *Stats) Active(now time.Time) map[string]bool { return s.recent.since(now.Add(-time.Minute)) }

// recent has the handlers that were called in the last minute. It may have more.
type recent struct {
	mu sync.Mutex // guards of
	of map[string]*pathStats
}

// add notes that an attempt of a handler has ended.
func (r *recent) add(p *pathStats) {
	if p.isRecent.Swap(true) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[string]*pathStats{}
	}
	r.of[p.path] = p
}

// since returns the paths of handlers that were called since a time, and forgets the others.
func (r *recent) since(t time.Time) map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	active := map[string]bool{}
	for path, p := range r.of {
		if !p.calledSince(t) {
			p.isRecent.Store(false) // before the second look: an attempt that ends now either finds it false, or is seen
			if !p.calledSince(t) {
				delete(r.of, path)
				continue
			}
			p.isRecent.Store(true)
		}
		active[path] = true
	}
	return active
}

// quiet reports whether the handler has not been needed for long.
func (p *pathStats) quiet(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Runs that began with an old definition may still call its handlers.
	for _, last := range []time.Time{p.asked, p.lastSuccess, p.lastFailure} {
		if now.Sub(last) < forgetAfter {
			return false
		}
	}
	return p.Underway.Load() == 0 && p.Waiting.Load() == 0
}

// Ended counts an attempt, and what failed without one, whose latency is [Unmeasured]. trace is the id of the trace that has it. It is
// empty if none is exported.
func (p *pathStats) Ended(err error, took time.Duration, now time.Time, trace string) {
	if took >= 0 {
		observe(p.seconds, took.Seconds(), trace)
	}
	p.attempts.End(err != nil, took, now)
	p.ended(err, now)
	p.recent.add(p)
}

// ended notes the outcome of an attempt.
func (p *pathStats) ended(err error, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.succeeded.Inc()
		p.lastSuccess = now
		return
	}
	p.failed.Inc()
	p.lastError, p.lastFailure = err.Error(), now
}

// Waited counts a run that continued without the handler because it waited too long.
func (p *pathStats) Waited(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone.End(false, now)
}

// Slower returns how many attempts of the last ten minutes took longer than a time, and how many there were. The first is
// off by those whose time is within a third of it.
func (p *pathStats) Slower(than time.Duration, now time.Time) (slower, all int64) {
	return p.attempts.slower(than, now)
}

// Fill adds the figures to a view.
func (p *pathStats) Fill(h *HandlerInfo, now time.Time) {
	windows := p.attempts.View(now)
	p.mu.Lock()
	defer p.mu.Unlock()
	h.InFlight, h.Waiting = p.Underway.Load(), p.Waiting.Load()
	h.LastError, h.LastSuccess, h.LastFailure = p.lastError, model.Moment(p.lastSuccess), model.Moment(p.lastFailure)
	_, gone := p.gone.Outcomes(now)
	h.LeftOut = int64(gone)
	h.TakeWindows(windows)
}

// latencyBin returns the bin of a duration of a call.
func latencyBin(d time.Duration) int { return binOf(d, statBinBase, statBins) }

// binOf returns the bin of a duration. base is the upper bound of the first bin, and the last one
// takes all longer durations.
func binOf(d, base time.Duration, bins int) int {
	if d <= base {
		return 0
	}
	bin := math.Ceil(math.Log(float64(d)/float64(base)) / math.Log(statBinStep))
	return min(int(bin), bins-1)
}

// quantile returns the middle of the bin in which the q-th part of all durations ends, in
// milliseconds. base is that of binOf.
func quantile(bins []uint32, base time.Duration, total int64, q float64) float64 {
	rank := int64(math.Ceil(q * float64(total)))
	for b, n := range bins {
		rank -= int64(n)
		if rank > 0 {
			continue
		}
		// The bin is the range from upper/statBinStep to upper.
		upper := float64(base) * math.Pow(statBinStep, float64(b))
		return upper * (1 + 1/statBinStep) / 2 / float64(time.Millisecond)
	}
	return 0
}
