package core

import (
	"slices"

	"procaas/engine/checkpoint"
	"procaas/engine/model"
)

// This file keeps the outcomes of handlers inside ended calls, for people.

// trail returns the outcomes of the handlers inside an ended call.
func (r *Run) trail() []checkpoint.Record {
	var out []checkpoint.Record
	for i, s := range r.plan.Steps {
		if rec := &r.records[i]; rec.reached() {
			out = append(out, checkpoint.Record{
				Path: s.Path, Outcome: rec.outcome, Attempts: rec.attempts, Started: rec.started, Finished: rec.finished,
				Error: rec.err, Reason: rec.reason, Trail: rec.trail, Undo: rec.saveUndo(s),
			})
		}
	}
	return out
}

// joinTrails merges the trails of many items. For each handler it keeps the last item in which it
// was not skipped, or failed.
func joinTrails(items []record) []checkpoint.Record {
	var out []checkpoint.Record
	for i := range items {
		trail := items[i].trail
		if items[i].sub != nil {
			trail = items[i].sub.trail()
		}
		for _, saved := range trail {
			at := slices.IndexFunc(out, func(s checkpoint.Record) bool { return s.Path == saved.Path })
			switch {
			case at < 0:
				out = append(out, saved)
			case out[at].Outcome != model.OutcomeFailed && (saved.Outcome != model.OutcomeSkipped || out[at].Outcome == model.OutcomeSkipped):
				out[at] = saved
			}
		}
	}
	return out
}

// foldTrail merges the trail of a finished element with those of the others, so that there is one
// record per handler, not per element.
func (u unit) foldTrail() {
	u.of.trail = joinTrails([]record{{trail: u.of.trail}, {trail: u.rec.trail}})
	u.rec.trail = nil
}

// leftOut lists what the run has continued without, also inside calls, each path once.
func (r *Run) leftOut() (out []model.LeftOut) {
	note := func(path, outcome, reason string) {
		by := model.LeftBy(outcome, reason)
		if by != "" && !slices.ContainsFunc(out, func(l model.LeftOut) bool { return l.Path == path }) {
			out = append(out, model.LeftOut{Path: path, Reason: by})
		}
	}
	var inside func([]checkpoint.Record)
	inside = func(trail []checkpoint.Record) {
		for _, h := range trail {
			note(h.Path, h.Outcome, h.Reason)
			inside(h.Trail)
		}
	}
	for i, s := range r.plan.Steps {
		rec := &r.records[i]
		if !s.Loops {
			note(s.Path, rec.outcome, rec.reason)
		}
		inside(rec.trail)
	}
	return out
}
