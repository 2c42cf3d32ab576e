package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file finds what a run has to undo when it gives up.

// givesUp reports whether the run starts nothing more, except to undo. The stage of finally runs whatever happened before.
func (r *Run) givesUp() bool { return r.closing == "" && (r.failedPath != "" || r.stopping != "") }

// lost reports whether the last call of a handler that can be undone has an unknown outcome. The
// call is repeated with the same key although the run gives up, because the outcome must be known
// in order to undo it.
func (r *record) lost(s *planner.Step) bool {
	return s.Undo != nil && s.Callee == nil && s.Handler.ForEach == nil && r.inFlight()
}

// firstLost returns a lost handler of the current stage, or nil.
func (r *Run) firstLost() *planner.Step {
	if r.stage == r.plan.Regular() {
		return nil
	}
	for _, s := range r.plan.Stages[r.stage].Steps {
		if r.records[s.Position].lost(s) {
			return s
		}
	}
	return nil
}

// keepsCall reports whether a call that has succeeded stays in the run, because its handlers are undone one by one if the
// run gives up later. A compensation of the calling handler undoes the call as a whole. The elements of a list are
// forgotten.
func (r *record) keepsCall(s *planner.Step) bool {
	return s.Undo == nil && s.Handler.ForEach == nil && !s.Final && r.outcome == model.OutcomeSucceeded && !r.wentOn() &&
		r.sub != nil && r.sub.toUndo() != nil
}

// forgetCalls drops the calls that a run has kept in order to undo them. It has succeeded, so nothing undoes it any more.
func (r *Run) forgetCalls() {
	for i := range r.records {
		if rec := &r.records[i]; rec.sub != nil && rec.decided() {
			rec.trail, rec.sub = rec.sub.trail(), nil
		}
	}
}

// toUndo returns the handler to undo next, which is the last one that has succeeded, or nil.
func (r *Run) toUndo() *planner.Step {
	var last *planner.Step
	for i, s := range r.plan.Steps {
		rec := &r.records[i]
		done := rec.outcome == model.OutcomeSucceeded && !rec.wentOn() && !rec.borrowed
		undone := rec.undo != nil && rec.undo.decided()
		if s.Undo == nil {
			undone = rec.sub == nil || rec.sub.status != model.Succeeded
		}
		if !done || undone {
			continue
		}
		// Several have no rank if a newer definition gave them a compensation after they had
		// succeeded. Of these, the last declared one is undone first.
		if last == nil || rec.done >= r.records[last.Position].done {
			last = s
		}
	}
	return last
}

// hasToUndo reports whether the run has something to undo when it gives up, or must find out.
func (r *Run) hasToUndo() bool {
	if !r.plan.Undoes {
		return false // the most common case, and cheap to tell
	}
	return r.undoing || r.toUndo() != nil || r.firstLost() != nil || r.openCall() != nil
}

// openCall returns the last call of a pipeline that has not ended and has something to undo, or
// nil.
func (r *Run) openCall() *Run {
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

// brokenUndos returns the compensations that have failed for good, also inside calls: those of the
// run itself the latest first.
func (r *Run) brokenUndos() (broken []brokenUndo) {
	for _, s := range slices.Backward(r.plan.Steps) {
		rec := &r.records[s.Position]
		if rec.undo != nil && rec.undo.outcome == model.OutcomeFailed {
			broken = append(broken, brokenUndo{s.Undo.Path, rec.undo.err, rec.undo.class})
		}
		for sub := range rec.calls() {
			broken = append(broken, sub.brokenUndos()...)
		}
	}
	return broken
}

// gaveUp returns where and why a run that ended without success has given up.
func (r *Run) gaveUp() (path, failure, class string) {
	if s := r.brokenFinally(); s != nil && r.status == model.Failed && r.closing != model.Failed {
		rec := &r.records[s.Position]
		return s.Path, model.CleanText(fmt.Sprintf("%s: %s; all else is done, and the run was to end as %s", s.Path, rec.err, r.closing)),
			rec.class
	}
	broken := r.brokenUndos()
	if len(broken) == 0 {
		return r.failedPath, r.failure, r.class
	}
	first := broken[0]
	var what []string
	for _, b := range broken {
		if text := b.path + ": " + b.err; !strings.Contains(r.failure, text) { // else it is of a call that could not undo its own work
			what = append(what, text)
		}
	}
	after := cmp.Or(r.failure, "the run was cancelled: "+r.stopping)
	switch len(what) {
	case 0:
		return first.path, r.failure, first.class
	case 1:
		after = fmt.Sprintf("%s; it was to be undone after %s", what[0], after)
	default:
		after = fmt.Sprintf("%d are not undone: %s; they were to be undone after %s", len(what), strings.Join(what, "; "), after)
	}
	return first.path, model.CleanText(after), first.class
}

// waitsToUndo returns when to retry a compensation, and what it waits for other than that time. It
// is zero if none waits.
func (r *Run) waitsToUndo() (due time.Time, cause string) {
	if sub := r.openCall(); sub != nil {
		return sub.Next(), sub.Cause()
	}
	if s := r.toUndo(); s != nil {
		if rec := r.records[s.Position].undo; rec != nil {
			return r.nextOf(unitOf(s.Undo, rec)), rec.cause
		}
	}
	return time.Time{}, ""
}
