package core

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"procaas/engine/model"
)

// This file undoes what a run has done when it gives up for good.

// Stop lets an operator end a run that has something to undo. The run starts nothing more. After
// its calls in flight have ended it undoes what it has done, and then it is cancelled. Stop does
// not change a run that has ended, except a failed one.
func (r *Run) Stop(reason string, now time.Time) {
	if r.status.Ended() && r.status != model.Failed || r.stopping != "" {
		return
	}
	r.beginsAt(now)
	r.stopping, r.settled = cmp.Or(model.CleanText(reason), model.CancelReason), false
	if r.status == model.Failed && !r.undoing {
		r.status = model.Running
	}
	r.touch()
}

// surrender ends a run that has given up and has no calls in flight, unless there is something to
// undo.
func (r *Run) surrender() {
	switch {
	case r.undoing:
	case r.hasToUndo():
		r.undoing, r.settled = true, false
		r.touch()
	case r.stopping != "":
		r.reason = r.stopping
		r.close(model.Cancelled)
	default:
		r.close(model.Failed)
	}
}

// undo starts the next compensation if its time has come. It first gives up and undoes the runs
// inside calls. Each compensation is tried, also after another one has failed for good. Then the
// run is failed, and an operator's retry repeats only those that have failed.
func (r *Run) undo(tasks []Attempt, live Live) []Attempt {
	for sub := r.openCall(); sub != nil; sub = r.openCall() {
		if sub.failedPath == "" {
			sub.failedPath, sub.failure, sub.class = r.failedPath, r.failure, r.class
		}
		sub.stopping = r.stopping
		// Inside the call, too, only lost calls are repeated. Then its work is undone.
		before := sub.underway
		ready := sub.Ready(live)
		r.underway += sub.underway - before
		r.touch()
		tasks = append(tasks, ready...)
		if !sub.status.Ended() {
			return tasks
		}
	}
	// One at a time, the last one first: a compensation may rely on what handlers before its own have
	// done, and none of them may be undone before it has ended.
	for r.underway == 0 && !r.status.Ended() && r.closing == "" {
		s := r.toUndo()
		if s == nil && len(r.brokenUndos()) > 0 {
			r.close(model.Failed)
			break
		}
		if s == nil {
			r.reason = cmp.Or(r.stopping, model.CleanText("undone after "+r.failure))
			r.close(model.Cancelled)
			break
		}
		rec := &r.records[s.Position]
		if s.Undo == nil { // a call that has succeeded: its handlers are undone first
			r.reopen(rec.sub)
			return r.undo(tasks, live)
		}
		if rec.undo == nil {
			rec.undo = &record{}
			r.touch()
		}
		u := unitOf(s.Undo, rec.undo)
		if rec.undo.due.After(live.Now) && !r.limitOf(u).passed(live.Now) {
			break
		}
		t, ok := r.undoCall(u, live)
		if ok {
			return append(tasks, t)
		}
		if !rec.undo.decided() {
			break // it is held
		}
	}
	return tasks
}

// reopen lets the run inside a call that has succeeded undo what it has done.
func (r *Run) reopen(sub *Run) {
	sub.status, sub.undoing, sub.settled = model.Running, true, false
	sub.failedPath, sub.failure, sub.class = r.failedPath, r.failure, r.class
	r.touch()
}

// undoCall makes the task of a compensation.
func (r *Run) undoCall(u unit, live Live) (Attempt, bool) {
	rec := u.rec
	r.startClock(u, live)
	if l := r.limitOf(u); l.passed(live.Now) {
		r.settleUndo(u, l.error(u, "has passed "+rec.waited(u), nil), live)
		return Attempt{}, false
	}
	if reason, off := live.off(u.Step); off {
		// It counts as failed, or the run would end as if everything were undone. A retry makes it.
		r.undoFails(u, errors.New("not called: "+reason), live)
		return Attempt{}, false
	}
	if !r.admitted(u, live) {
		return Attempt{}, false
	}
	body, err := u.Handler.Body.Share(r.scope.env(live))
	if err != nil {
		r.undoFails(u, err, live)
		return Attempt{}, false
	}
	rec.attempts++
	r.whole.extent.starts(u)
	r.touch()
	key := idempotencyKey(r.start.identity(), r.whole.redone.keyed(r.within+u.Path), 0)
	return r.launch(u, Attempt{Type: u.Type, Body: body, IdempotencyKey: key}, live), true
}

// undone records the outcome of an attempt of a compensation.
func (r *Run) undone(u unit, o Outcome, live Live) {
	rec, err := u.rec, o.Err
	if err == nil && (!o.Result.Until.IsZero() || o.Result.Again != "") {
		err = model.Permanent(errors.New("want a call that undoes something, have a wait"))
	}
	var events []model.Event
	if err == nil {
		events, err = r.completeAll(u, o.Result.Emit, live)
	}
	if err == nil {
		rec.outcome, rec.err, rec.reason = model.OutcomeSucceeded, "", ""
		r.emit(rec, events)
		r.closeUndo(u, live)
		return
	}
	again := r.repeats(u, err, o.Probe, live)
	if late := r.late(u, err, again, live); late != nil {
		again, err = false, late
	}
	if !again {
		r.settleUndo(u, err, live)
	}
}

// settleUndo gives a compensation up, unless a rule of on-error counts it as done.
func (r *Run) settleUndo(u unit, err error, live Live) {
	env := r.scope.env(live)
	env["error"] = u.rec.errorData(err)
	rule, broken := ruleFor(u.Handler.OnError, err, env)
	switch {
	case broken != nil:
		r.undoFails(u, fmt.Errorf("%w; on-error: %s", err, broken.Error()), live)
	case rule == nil:
		r.undoFails(u, err, live)
	case rule.GoesOn():
		u.rec.outcome, u.rec.err, u.rec.reason = model.OutcomeSucceeded, "", goneOn+model.ClassOf(err)
		r.closeUndo(u, live)
	default:
		r.undoFails(u, explained(rule, err, env), live)
	}
}

// undoFails records that a compensation has failed for good. The others are still tried.
func (r *Run) undoFails(u unit, err error, live Live) {
	u.rec.outcome, u.rec.err, u.rec.class = model.OutcomeFailed, model.CleanText(err.Error()), model.ClassOf(err)
	r.closeUndo(u, live)
}

func (r *Run) closeUndo(u unit, live Live) {
	u.rec.finished, u.rec.due = model.Stamp(live.Now), time.Time{}
	u.rec.hold, u.rec.cause, u.rec.held = time.Time{}, "", time.Time{}
	r.touch()
	r.tell(u)
}

// redriveUndo lets failed compensations run again. A run that has begun to undo never goes forward
// again, because handlers that are undone would be missing.
func (r *Run) redriveUndo() {
	r.status, r.undoing = model.Running, true
	r.touch()
	for i := range r.records {
		rec := &r.records[i]
		if rec.undo != nil && rec.undo.outcome == model.OutcomeFailed {
			rec.undo = &record{}
		}
		for sub := range rec.calls() {
			if len(sub.brokenUndos()) > 0 {
				sub.redriveUndo()
			}
		}
	}
}
