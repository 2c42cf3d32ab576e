package replay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"procaas/dsl/expr"
	"procaas/engine/canary"
	"procaas/engine/clock"
	"procaas/engine/definitions"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// This file replays ended runs of a node with the version in the shadow. The flow does not wait for
// it: there is one replay at a time and a rest after each, and what has no room in the queue is
// skipped.

const (
	mostWaiting = 256                    // runs in the queue
	longestPlay = 30 * time.Second       // of one replay with its real calls
	rests       = 3                      // times as long as a replay took: it uses at most a quarter of a processor
	longestRest = 100 * time.Millisecond // real calls leave the processor alone
	muchSlower  = 0.5                    // a run may take longer by this share
	mostText    = 200                    // characters of a value that is shown
	mostTold    = 8                      // differences of one run that are counted
)

// A Shadow replays the ended runs of one node with the version in the shadow.
type Shadow struct {
	ShadowParts
	queue    chan over
	examples canary.Examples
	panicked time.Time // the trial in which a replay has panicked; logged once
}

// ShadowParts are the parts of a node that a [Shadow] uses.
type ShadowParts struct {
	Env     Env
	Library *definitions.Library
	Runs    *records.Runs
	Tally   func(...model.Tally)
	Now     func() time.Time // by the store's clock
	Metrics *stats.Metrics
	Log     *slog.Logger
}

// An over is a run that has ended.
type over struct {
	trial         *canary.State
	pipeline, run string
}

// NewShadow makes a Shadow. Set its ShadowParts before Run.
func NewShadow() *Shadow {
	return &Shadow{queue: make(chan over, mostWaiting)} // a burst of ends has room, and is replayed afterwards
}

// Ended takes a run that has ended and is in the share of a version in the shadow. It never blocks.
func (s *Shadow) Ended(t *canary.State, pipeline, run string) {
	e := over{t, pipeline, run}
	select {
	case s.queue <- e:
	default:
		s.report(e, Verdict{Why: "too many runs ended at the same time"})
	}
}

// Run replays runs until ctx ends.
func (s *Shadow) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-s.queue:
			if now := s.Library.Shadow(); now == nil || !now.Turned.Equal(e.trial.Turned) {
				continue // its version is not in the shadow any more
			}
			began := time.Now()
			v := s.replay(ctx, e)
			if ctx.Err() != nil {
				return
			}
			s.report(e, v)
			if !clock.Pause(ctx, min(rests*time.Since(began), longestRest)) {
				return
			}
		}
	}
}

// replay compares a run with its replay.
func (s *Shadow) replay(ctx context.Context, e over) (v Verdict) {
	ctx, cancel := context.WithTimeout(ctx, longestPlay)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			if !s.panicked.Equal(e.trial.Turned) {
				s.Log.Error("replay panicked, the run is skipped", "run", e.run, "panic", p, "stack", string(debug.Stack()))
			}
			s.panicked, v = e.trial.Turned, Verdict{Why: "the replay panicked; the log of its node has more"}
		}
	}()
	of, err := s.Runs.RecordedRun(ctx, e.run)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Verdict{Why: "it was deleted meanwhile"}
	case err != nil:
		return Verdict{Why: "the store could not be read"}
	case of != nil && of.Recording.Lost != "":
		return Verdict{Why: of.Recording.Lost}
	case of == nil:
		return Verdict{Why: "it began before its version was in the shadow"}
	}
	was, err := s.Library.Get(ctx, of.Bundle)
	if err != nil {
		return Verdict{Why: "its own version cannot be read"}
	}
	now, err := s.Library.Get(ctx, e.trial.New)
	if err != nil {
		return Verdict{Why: "the version in the shadow cannot be read"}
	}
	v, err = Judge(ctx, of, ProgramOf(was, s.Env), ProgramOf(now, s.Env), muchSlower)
	if err != nil {
		v = Verdict{Why: fmt.Sprintf("the replay takes longer than %s", longestPlay)}
	}
	return v
}

// report counts a result for all nodes, and for the metrics of this one.
func (s *Shadow) report(e over, v Verdict) {
	at, outcome := s.Now(), "same"
	one := canary.Replay{Pipeline: e.pipeline}
	switch {
	case v.Why != "":
		outcome, one.Skip = "skipped", brief(v.Why)
	case len(v.Found) > 0:
		outcome, one.Differs = "different", s.differs(e, v.Found)
	}
	s.Metrics.ShadowRuns.WithLabelValues(e.pipeline, outcome).Inc()
	s.Tally(e.trial.Tally(one, at))
	for range v.Live {
		s.Metrics.ShadowCalls.Inc()
		s.Tally(e.trial.Tally(canary.Replay{Call: true}, at))
	}
}

// differs returns the first differences of a run, each once.
func (s *Shadow) differs(e over, found []Difference) (out []canary.ShadowDifference) {
	seen := map[string]bool{}
	for _, d := range found {
		if seen[d.id()] || len(out) == mostTold {
			continue
		}
		seen[d.id()] = true
		one := canary.ShadowDifference{
			Pipeline: e.pipeline, Kind: d.Kind, Path: d.Path, At: brief(d.At), What: brief(d.String()), Was: brief(d.Was), Now: brief(d.Now),
			Examples: []string{e.run},
		}
		s.examples.Trim(e.trial, &one)
		s.Metrics.ShadowDifferences.WithLabelValues(e.pipeline, d.Kind).Inc()
		out = append(out, one)
	}
	return out
}

// brief bounds a text that is kept and shown.
func brief(text string) string { return expr.Shorten(text, mostText) }
