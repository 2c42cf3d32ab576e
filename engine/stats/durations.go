package stats

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine/definitions"
	"procaas/engine/store"
)

// This file counts how long runs and stages take. Only what has succeeded counts: a failure that
// comes early is no speed, and one that waits for an operator is no slowness.

// mostTook is how many pipelines and stages have durations of their own.
const mostTook = 1000

// These are the values of the label from: where a duration begins.
const (
	fromAccepted = "accepted"
	fromBegun    = "begun"
)

// A Span has the durations of one window.
type Span struct {
	Ended int64    `json:"ended" doc:"How many succeeded."`
	P50   *float64 `json:"p50_ms" doc:"The median in milliseconds; null without any. It may be off by a sixth."`
	P99   *float64 `json:"p99_ms" doc:"The 99th percentile in milliseconds; null without any. It may be off by a sixth."`
	Late  int64    `json:"late" doc:"How many took longer than the target that held then: of a run from the acceptance, of a stage from its begin."`
}

// Spans are the durations of the last minute, ten minutes and hour, and of the hour before.
type Spans struct {
	Minute     Span `json:"minute"`
	TenMinutes Span `json:"ten_minutes"`
	Hour       Span `json:"hour"`
	HourBefore Span `json:"hour_before" doc:"The hour before the last one, to compare with."`
}

// add adds the durations of another node. The larger quantiles stay.
func (s *Span) add(o Span) {
	s.Ended += o.Ended
	s.Late += o.Late
	s.P50, s.P99 = larger(s.P50, o.P50), larger(s.P99, o.P99)
}

func (s *Spans) add(o Spans) {
	s.Minute.add(o.Minute)
	s.TenMinutes.add(o.TenMinutes)
	s.Hour.add(o.Hour)
	s.HourBefore.add(o.HourBefore)
}

// A DurationView has how long the runs of a pipeline took on this node, or one of its stages.
type DurationView struct {
	Path     string `json:"path" doc:"pipeline, or pipeline/stage."`
	Owner    string `json:"owner"`
	Accepted Spans  `json:"from_acceptance" doc:"From the acceptance of the event to the end of the run, or of the stage. Of an event with a time, from that time."`
	Begun    Spans  `json:"from_begin" doc:"From the begin of the run to its end. Of a stage, from the end of the stage before it."`

	Target *TargetView `json:"target,omitempty" doc:"Absent without a target."`
}

// Add adds the durations of another node. The larger quantiles stay.
func (v *DurationView) Add(o DurationView) {
	v.Accepted.add(o.Accepted)
	v.Begun.add(o.Begun)
	if v.Target != nil && o.Target != nil {
		v.Target.add(o.Target, v.counted().TenMinutes)
	}
}

// counted are the durations that a target is about: of runs from their acceptance, of stages from their begin.
func (v *DurationView) counted() *Spans {
	if strings.Contains(v.Path, "/") {
		return &v.Begun
	}
	return &v.Accepted
}

// durations are those of all paths. Runs of one pipeline end at the same time on many goroutines, so each path has a lock of its own.
type durations struct {
	mu sync.RWMutex // guards of, but not what it points to
	of map[tookPath]*pathTook
}

// A tookPath is a pipeline, or one of its stages.
type tookPath struct{ pipeline, stage string }

func (p tookPath) String() string {
	if p.stage == "" {
		return p.pipeline
	}
	return p.pipeline + "/" + p.stage
}

// A pathTook has the durations of a pipeline or of a stage.
type pathTook struct {
	acceptedSeconds, begunSeconds prometheus.Observer // they never change

	isOther bool // it stands for all paths beyond mostTook, and has only the metrics

	mu              sync.Mutex // guards the following
	accepted, begun windows
	slow            ring[[]SlowRun] // of a pipeline: the slowest of each slot, the slowest first
}

// find returns the durations of a path, or nil if it has none of its own.
func (d *durations) find(path tookPath) *pathTook {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.of[path]
}

// at returns the durations of a path. It adds them if there is room.
func (d *durations) at(path tookPath, m *Metrics) *pathTook {
	if p := d.find(path); p != nil {
		return p
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.of[path]; p != nil {
		return p
	}
	if len(d.of) >= mostTook {
		return newPathTook(path.other(), m, true)
	}
	if d.of == nil {
		d.of = map[tookPath]*pathTook{}
	}
	p := newPathTook(path, m, false)
	d.of[path] = p
	return p
}

// other returns the path of all others of its kind.
func (p tookPath) other() tookPath {
	other := tookPath{pipeline: othersPath[0]}
	if p.stage != "" {
		other.stage = othersPath[1]
	}
	return other
}

func newPathTook(path tookPath, m *Metrics, isOther bool) *pathTook {
	seconds, labels := m.RunSeconds, []string{path.pipeline}
	if path.stage != "" {
		seconds, labels = m.StageSeconds, append(labels, path.stage)
	}
	p := &pathTook{
		acceptedSeconds: seconds.WithLabelValues(append(labels, fromAccepted)...),
		begunSeconds:    seconds.WithLabelValues(append(labels, fromBegun)...),
		isOther:         isOther,
	}
	if !isOther {
		p.accepted, p.begun = newWindows(), newWindows()
		p.slow = newRing[[]SlowRun](hourSlot, slowSlots)
	}
	return p
}

// add counts a duration.
func (p *pathTook) add(t *Took, now time.Time) {
	observe(p.acceptedSeconds, t.Accepted.Seconds(), t.Trace)
	observe(p.begunSeconds, t.Begun.Seconds(), t.Trace)
	if p.isOther {
		return
	}
	accepted, begun, late := tookBin(t.Accepted), tookBin(t.Begun), t.late()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accepted.add(accepted, late, now)
	p.begun.add(begun, late, now)
}

// A Took is a duration of a run or of a stage that succeeded.
type Took struct {
	Pipeline, Stage string // no stage: it is that of the run
	Accepted, Begun time.Duration
	Target          time.Duration // 0 for none
	Trace           string        // id of the trace that has it; empty if none is exported
}

// late reports whether it is longer than its target.
func (t *Took) late() bool {
	if t.Stage != "" {
		return t.Target > 0 && t.Begun > t.Target
	}
	return t.Target > 0 && t.Accepted > t.Target
}

// Took counts a duration.
func (s *Stats) Took(t Took, now time.Time) {
	t.Accepted, t.Begun = max(t.Accepted, 0), max(t.Begun, 0) // clocks of two nodes may differ
	path := tookPath{t.Pipeline, t.Stage}
	if t.Target > 0 {
		counts := store.UseCounts{Timed: 1}
		if t.late() {
			counts.Late = 1
			s.Metrics.late(&t)
		}
		s.used.add(path.String(), now, counts)
	}
	if t.Stage == "" {
		s.totals.lasted(t.Accepted.Seconds())
	}
	s.took.at(path, s.Metrics).add(&t, now)
}

// Durations lists the pipelines of a definition with their stages, in order, as far as any run of
// them has succeeded.
func (s *Stats) Durations(d *definitions.Definition, now time.Time) []DurationView {
	out := []DurationView{}
	add := func(path tookPath, owner string, target time.Duration) {
		p := s.took.find(path)
		if p == nil {
			return
		}
		p.mu.Lock()
		v := DurationView{Path: path.String(), Owner: owner, Accepted: p.accepted.spans(now), Begun: p.begun.spans(now)}
		p.mu.Unlock()
		v.Target = s.target(v.Path, target, v.counted().TenMinutes, now)
		out = append(out, v)
	}
	for _, p := range d.Plans {
		add(tookPath{pipeline: p.Pipeline.ID}, p.Pipeline.Owner, p.Pipeline.Target)
		for _, g := range p.Stages {
			add(tookPath{p.Pipeline.ID, g.ID}, p.Pipeline.Owner, g.Declared.Target)
		}
	}
	return out
}

// forgetTook drops the durations and the series of a pipeline, in one step: whoever counts one later makes both anew.
func (s *Stats) forgetTook(pipeline string) {
	s.took.mu.Lock()
	defer s.took.mu.Unlock()
	for path := range s.took.of {
		if path.pipeline == pipeline {
			delete(s.took.of, path)
		}
	}
	s.Metrics.RunSeconds.DeletePartialMatch(prometheus.Labels{"pipeline": pipeline})
	s.Metrics.StageSeconds.DeletePartialMatch(prometheus.Labels{"pipeline": pipeline})
	s.Metrics.LateTotal.DeletePartialMatch(prometheus.Labels{"pipeline": pipeline})
}
