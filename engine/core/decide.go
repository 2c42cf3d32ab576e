package core

import (
	"cmp"
	"fmt"
	"time"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file decides handlers for good. A decided handler is never decided again, except that an
// operator's retry restarts critical ones that have failed. Later handlers depend on the outcome,
// and may have begun already.

// succeed applies the result of a successful call and decides the handler.
func (r *Run) succeed(s *planner.Step, live Live) {
	rec := &r.records[s.Position]
	rec.outcome = model.OutcomeSucceeded
	r.scope.publish(s.Handler.ID, rec) // its own result reads it
	if err := r.scope.assign(rec, s.Handler.Result, live); err != nil {
		r.giveUp(s, err, live)
		return
	}
	rec.err, rec.reason = "", rec.each.without()
	r.decide(s, live)
}

// giveUp decides that a handler has failed for good. If it is critical, the run fails as soon as no
// call is in flight.
func (r *Run) giveUp(s *planner.Step, err error, live Live) {
	rec := &r.records[s.Position]
	rec.outcome, rec.err, rec.reason = model.OutcomeFailed, model.CleanText(err.Error()), ""
	rec.response, rec.raw, rec.status = nil, nil, statusOf(err)
	r.decide(s, live)
	if !s.Handler.IsCritical() {
		r.standIn(s, live)
		return
	}
	if r.closing != "" {
		rec.class = model.ClassOf(err)
		return // it decides how the run ends only when all of finally is done
	}
	if r.failedPath == "" { // the first one is the cause; what fails after it may only follow from it
		r.failedPath, r.class = s.Path, model.ClassOf(err)
		if s.Loops {
			r.failedPath = cmp.Or(rec.failedElement(), s.Path)
		}
		r.failure = s.Path + ": " + rec.err
		if rec.attempts > 0 && rec.each == nil && s.Callee == nil {
			r.failure = fmt.Sprintf("%s: attempt %d: %s", s.Path, rec.attempts, rec.err)
		}
	}
}

// skip decides that a handler is skipped.
func (r *Run) skip(s *planner.Step, reason string, live Live) {
	rec := &r.records[s.Position]
	rec.outcome, rec.reason = model.OutcomeSkipped, reason
	r.decide(s, live)
}

// standIn sets the fallback result of a handler that is off or has failed. If the fallback result
// cannot be computed, the run continues as if there were none, and the error is kept for people.
func (r *Run) standIn(s *planner.Step, live Live) {
	if !s.StandsIn() {
		return
	}
	if err := r.scope.assign(&r.records[s.Position], s.Handler.Fallback.Result, live); err != nil {
		rec := &r.records[s.Position]
		text := "fallback: " + err.Error()
		if rec.err != "" {
			text = rec.err + "; " + text
		}
		rec.err = model.CleanText(text)
		r.whole.ended[len(r.whole.ended)-1].Error = rec.err
	}
}

// decide completes the record of a handler. The outcome is set already.
func (r *Run) decide(s *planner.Step, live Live) {
	r.whole.further = true
	rec := &r.records[s.Position]
	rec.finished = model.Stamp(live.Now)
	rec.due = time.Time{}
	rec.body, rec.bodySize, rec.ready = nil, 0, false // no attempt sends it any more
	// A handler that failed the run continues when an operator retries it.
	goesOn := rec.outcome == model.OutcomeFailed && s.Handler.IsCritical()
	kept := rec.keepsCall(s)
	if r.within != "" && !goesOn && !kept {
		// Forgetting the calls in here also forgets what they have undone. It is done again when
		// the call around this run restarts.
		for sub := range rec.calls() {
			sub.forgetUndone()
		}
	}
	if rec.each != nil {
		rec.sum()
		rec.forgetItems(goesOn)
	}
	if !s.Keeps {
		rec.response, rec.raw = nil, nil
	}
	r.touch()
	r.scope.publish(s.Handler.ID, rec)
	// The rank is by the end of the calls, not by their order in the file: a handler that ended
	// later may have used what an earlier one did, so it is undone first.
	if kept || s.Undo != nil && rec.outcome == model.OutcomeSucceeded {
		r.undoable++
		rec.done = r.undoable
	}
	if !goesOn && !kept {
		rec.sub = nil
	}
	if s.Loops {
		return // its handlers are reported one by one
	}
	r.tell(unitOf(s, rec))
}

// giveUpUnit decides that a handler or an item has failed for good. It ignores the rules of
// on-error.
func (r *Run) giveUpUnit(u unit, err error, live Live) {
	if u.item > 0 {
		r.itemFailed(u, err)
		return
	}
	r.giveUp(u.Step, err, live)
}
