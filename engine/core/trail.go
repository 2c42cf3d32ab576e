package core

import (
	"slices"

	"procaas/engine/checkpoint"
	"procaas/engine/model"
)

// This file keeps what became of handlers inside of calls that have ended, for people.

// trail is what people are told of a call that has ended: what became of its handlers.
func (r *progress) trail() []checkpoint.Record {
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

// joinTrails makes one trail of those of many items: of each handler, what became of it
// in the last item in which it was not skipped, or failed.
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

// foldTrail keeps what became of the handlers of an element that is done with those of
// the others: one record by handler, and not one by element.
func (u unit) foldTrail() {
	u.of.trail = joinTrails([]record{{trail: u.of.trail}, {trail: u.rec.trail}})
	u.rec.trail = nil
}

// leftOut lists what the run has gone on without, each path once, inside of calls, too.
func (r *progress) leftOut() (out []model.LeftOut) {
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
