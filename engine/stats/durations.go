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

// durations are those of all paths.
type durations struct {
	mu   sync.Mutex // guards all
	byID map[string]*pathTook
}

// A pathTook has the durations of a pipeline or of a stage.
type pathTook struct {
	accepted, begun windows
	slow            ring[[]SlowRun] // of a pipeline: the slowest of each slot, the slowest first
	series          tookSeries
}

// A tookSeries are the metrics of a pipeline or of a stage.
type tookSeries struct{ accepted, begun prometheus.Observer }

// took returns the metrics of a pipeline, or of a stage if there is one.
func (m *Metrics) took(pipeline, stage string) tookSeries {
	if stage == "" {
		return tookSeries{m.RunSeconds.WithLabelValues(pipeline, fromAccepted), m.RunSeconds.WithLabelValues(pipeline, fromBegun)}
	}
	return tookSeries{m.StageSeconds.WithLabelValues(pipeline, stage, fromAccepted), m.StageSeconds.WithLabelValues(pipeline, stage, fromBegun)}
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
	path := t.Pipeline
	if t.Stage != "" {
		path += "/" + t.Stage
	}
	if t.Target > 0 {
		counts := store.UseCounts{Timed: 1}
		if t.late() {
			counts.Late = 1
			s.Metrics.late(&t)
		}
		s.used.add(path, now, counts)
	}
	d := &s.took
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.byID[path]
	if p == nil && len(d.byID) < mostTook {
		if d.byID == nil {
			d.byID = map[string]*pathTook{}
		}
		p = &pathTook{
			accepted: newWindows(), begun: newWindows(), slow: newRing[[]SlowRun](hourSlot, slowSlots), series: s.Metrics.took(t.Pipeline, t.Stage),
		}
		d.byID[path] = p
	}
	var series tookSeries
	if p != nil {
		series = p.series
		p.accepted.add(t.Accepted, t.late(), now)
		p.begun.add(t.Begun, t.late(), now)
	} else {
		t.Pipeline = othersPath[0]
		if t.Stage != "" {
			t.Stage = othersPath[1]
		}
		series = s.Metrics.took(t.Pipeline, t.Stage)
	}
	if t.Stage == "" {
		s.totals.lasted(t.Accepted.Seconds())
	}
	observe(series.accepted, t.Accepted.Seconds(), t.Trace)
	observe(series.begun, t.Begun.Seconds(), t.Trace)
}

// Durations lists the pipelines of a definition with their stages, in order, as far as any run of
// them has succeeded.
func (s *Stats) Durations(d *definitions.Definition, now time.Time) []DurationView {
	out := []DurationView{}
	s.took.mu.Lock()
	defer s.took.mu.Unlock()
	add := func(path, owner string, target time.Duration) {
		if p := s.took.byID[path]; p != nil {
			v := DurationView{Path: path, Owner: owner, Accepted: p.accepted.spans(now), Begun: p.begun.spans(now)}
			v.Target = s.target(path, target, v.counted().TenMinutes, now)
			out = append(out, v)
		}
	}
	for _, p := range d.Plans {
		add(p.Pipeline.ID, p.Pipeline.Owner, p.Pipeline.Target)
		for _, g := range p.Stages {
			add(p.Pipeline.ID+"/"+g.ID, p.Pipeline.Owner, g.Declared.Target)
		}
	}
	return out
}

// forgetTook drops the durations of a pipeline. The caller must not hold the lock.
func (s *Stats) forgetTook(pipeline string) {
	s.took.mu.Lock()
	defer s.took.mu.Unlock()
	for path := range s.took.byID {
		if path == pipeline || strings.HasPrefix(path, pipeline+"/") {
			delete(s.took.byID, path)
		}
	}
	s.Metrics.RunSeconds.DeletePartialMatch(prometheus.Labels{"pipeline": pipeline})
	s.Metrics.StageSeconds.DeletePartialMatch(prometheus.Labels{"pipeline": pipeline})
	s.Metrics.LateTotal.DeletePartialMatch(prometheus.Labels{"pipeline": pipeline})
}
