package core

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file tells what there is to undo when a run gives up.

// givesUp reports whether the run starts nothing more, but to undo.
func (r *progress) givesUp() bool { return r.failedPath != "" || r.stopping != "" }

// lost reports whether nobody knows how the last call of a handler ended that can be
// undone. It is made once more, with the same key, though the run gives up: what it has
// done has to be known, to be undone.
func (r *record) lost(s *planner.Step) bool {
	return s.Undo != nil && s.Callee == nil && s.Handler.ForEach == nil && r.inFlight()
}

// firstLost finds a handler of the present stage that is lost; nil when there is none.
func (r *progress) firstLost() *planner.Step {
	if r.stage == len(r.plan.Stages) {
		return nil
	}
	for _, s := range r.plan.Stages[r.stage].Steps {
		if r.records[s.Position].lost(s) {
			return s
		}
	}
	return nil
}

// toUndo finds the handler to undo next: the last one that has succeeded; nil when there
// is none.
func (r *progress) toUndo() *planner.Step {
	var last *planner.Step
	for i, s := range r.plan.Steps {
		rec := &r.records[i]
		if s.Undo == nil || rec.borrowed || rec.outcome != model.OutcomeSucceeded || rec.wentOn() ||
			rec.undo != nil && rec.undo.decided() {
			continue
		}
		// Several have no place when they came to have a compensation after they had
		// succeeded, by a newer definition. Of these, the last declared one is the first.
		if last == nil || rec.done >= r.records[last.Position].done {
			last = s
		}
	}
	return last
}

// hasToUndo reports whether anything is to be undone, or to be found out for that, when the
// run gives up.
func (r *progress) hasToUndo() bool {
	return r.plan.Undoes && (r.undoing || r.toUndo() != nil || r.firstLost() != nil || r.openCall() != nil)
}

// openCall finds the last call of a pipeline that has not come to an end, and has
// something to undo; nil when there is none.
func (r *progress) openCall() *Run {
	var open *Run
	for i, s := range r.plan.Steps {
		if s.Callee == nil || !s.Callee.Undoes {
			continue
		}
		for sub := range r.records[i].calls() {
			if !sub.status.Ended() && sub.hasToUndo() {
				open = sub
			}
		}
	}
	return open
}

// A brokenUndo is a compensation that has failed for good.
type brokenUndo struct{ path, err, class string }

// brokenUndo finds the compensation that the run has failed with; nil when there is none.
func (r *progress) brokenUndo() *brokenUndo {
	for i, s := range r.plan.Steps {
		rec := &r.records[i]
		if rec.undo != nil && rec.undo.outcome == model.OutcomeFailed {
			return &brokenUndo{s.Undo.Path, rec.undo.err, rec.undo.class}
		}
		for sub := range rec.calls() {
			if inside := sub.brokenUndo(); inside != nil {
				return inside
			}
		}
	}
	return nil
}

// failed returns where and why a run has given up that has ended without success.
func (r *progress) gaveUp() (path, failure, class string) {
	if broken := r.brokenUndo(); broken != nil && r.undoing {
		what := broken.path + ": " + broken.err
		if strings.Contains(r.failure, what) {
			return broken.path, r.failure, broken.class // of a call that could not undo its own
		}
		after := cmp.Or(r.failure, "the run was cancelled: "+r.stopping)
		return broken.path, model.CleanText(fmt.Sprintf("%s; it was to be undone after %s", what, after)), broken.class
	}
	return r.failedPath, r.failure, r.class
}

// waitsToUndo returns when a compensation is to be made again, and what it waits for besides
// that time; zero when none waits.
func (r *progress) waitsToUndo() (due time.Time, cause string) {
	if sub := r.openCall(); sub != nil {
		return sub.Next(), sub.Cause()
	}
	if s := r.toUndo(); s != nil {
		if rec := r.records[s.Position].undo; rec != nil {
			return rec.next(), rec.cause
		}
	}
	return time.Time{}, ""
}
