package core

import (
	"cmp"
	"errors"
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
		if rec.undo == nil {
			rec.undo = &record{}
			r.touch()
		}
		if rec.undo.due.After(live.Now) {
			break
		}
		t, ok := r.undoCall(unitOf(s.Undo, rec.undo), live)
		if ok {
			return append(tasks, t)
		}
		if !rec.undo.decided() {
			break // it is held
		}
	}
	return tasks
}

// undoCall makes the task of a compensation.
func (r *Run) undoCall(u unit, live Live) (Attempt, bool) {
	if !r.admitted(u, live) {
		return Attempt{}, false
	}
	rec := u.rec
	body, err := u.Handler.Body.Eval(r.scope.env(live))
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
	if err == nil && !o.Result.Until.IsZero() {
		err = model.Permanent(errors.New("want a call that undoes something, have a wait"))
	}
	var events []model.Event
	if err == nil {
		events, err = r.completeAll(u, o.Result.Emit, live)
	}
	switch {
	case err == nil:
		rec.outcome, rec.err, rec.reason = model.OutcomeSucceeded, "", ""
		r.emit(rec, events)
		r.closeUndo(u, live)
	case !r.repeats(u, err, o.Probe, live):
		r.undoFails(u, err, live)
	}
}

// undoFails records that a compensation has failed for good. The others are still tried.
func (r *Run) undoFails(u unit, err error, live Live) {
	u.rec.outcome, u.rec.err, u.rec.class = model.OutcomeFailed, model.CleanText(err.Error()), model.ClassOf(err)
	r.closeUndo(u, live)
}

func (r *Run) closeUndo(u unit, live Live) {
	u.rec.finished, u.rec.due = model.Stamp(live.Now), time.Time{}
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
