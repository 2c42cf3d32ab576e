package core

import (
	"fmt"
	"time"

	"procaas/engine/checkpoint"
	"procaas/engine/model"
)

// This file advances a run: it returns what may start, and takes what has ended.

// Ready returns the tasks of the present stage that may start now, in parallel. It returns each task once. It also
// decides about skipped handlers and ended waits, so the run may have ended afterwards: check [Run.Status].
//
// Ready evaluates the body of a handler at its first attempt, and keeps it for all attempts in this process. After a
// resume it evaluates the body again, with the same result unless configs have changed. It does not evaluate enabled
// again after the first attempt.
func (r *Run) Ready(live Live) (tasks []Attempt) {
	if r.within == "" && r.start.Record && r.began.IsZero() {
		r.whole.recording.RunRecording = checkpoint.NewRecording(live.Configs, r.start.Shared)
	}
	r.beginsAt(live.Now)
	if r.within == "" {
		r.whole.extent.flying = r.underway
		// Last, because a handler that is held stops the clock of deadlines for all attempts of this
		// Ready, also for those that were made before it was looked at.
		defer func() { r.bound(tasks, live) }()
	}
	// A stage whose handlers are all decided without a call, such as skipped ones, leads on
	// to the next at once.
	for moved := true; moved; {
		r.advance(live)
		if r.status.Ended() {
			break
		}
		r.startClocks(live)
		r.enter(live)
		for _, s := range r.open() {
			if r.givesUp() && !r.records[s.Position].lost(s) {
				continue // what has not begun does not begin
			}
			tasks = r.begin(tasks, s, live)
		}
		moved = r.advance(live)
		if r.undoing && r.closing == "" && !r.status.Ended() {
			tasks = r.undo(tasks, live)
			moved = r.closing != ""
		}
	}
	r.settled = true
	return tasks
}

// advance moves to the first stage that is not complete. It ends the run if there is none, or if
// the run has failed and no task is in flight. It reports whether there is a new stage to look at.
func (r *Run) advance(live Live) (moved bool) {
	switch {
	case r.status.Ended():
		return false
	case r.closing != "":
		r.closed()
		return false
	case r.givesUp():
		// Not while a call is in flight or lost: what it has done must be known before it is undone.
		if r.underway == 0 && (r.undoing || r.firstLost() == nil) {
			r.surrender()
		}
		return r.closing != ""
	}
	for r.stage < r.plan.Regular() {
		for _, s := range r.plan.Stages[r.stage].Steps {
			if !r.records[s.Position].decided() && !s.Handler.Detached {
				return moved
			}
		}
		// A run never goes back to a stage. It must be durable that it has left this one: configs
		// might let a resumed run decide the stage differently.
		r.stage++
		r.stageClock = time.Time{}
		r.touch()
		moved = true
	}
	if len(r.open()) > 0 { // detached handlers hold up only the end
		return moved
	}
	if err := r.answer(live); err != nil {
		r.failedPath, r.class = r.plan.Pipeline.ID, model.ClassOf(err)
		r.failure = model.CleanText(fmt.Sprintf("%s: outputs: %v", r.failedPath, err))
		r.surrender()
		return r.closing != ""
	}
	if r.caller == nil {
		r.forgetCalls()
	}
	r.close(model.Succeeded)
	return r.closing != ""
}

func (r *Run) end(s model.Status) {
	r.status = s
	r.touch()
}

// Finish records the outcome of the task with an [Attempt.Ref]. It ignores tasks that are not in flight, because the
// run may have been cancelled.
func (r *Run) Finish(ref string, o Outcome, live Live) {
	u, rest, inside, ok := r.called(ref)
	if ok && inside && !r.status.Ended() {
		r.finishIn(u, rest, o, live)
		return
	}
	if !ok || !u.rec.underway || r.status.Ended() {
		return
	}
	rec := u.rec
	r.whole.refused = ""
	if o.Result.Again == "" { // a replay has no use for a look without an answer
		r.whole.recording.ends(r.within+u.ref(), u, o, live)
	}
	rec.underway = false
	r.underway--
	r.whole.extent.flying--
	r.whole.further = true
	r.settled = false
	r.touchItem(u) // forgetting an outcome in a crash would repeat the call
	switch {
	case u.Undoes:
		r.undone(u, o, live)
	case rec.asking:
		r.answered(u, o, live)
	default:
		r.attempted(u, o, live)
	}
	if u.item > 0 {
		r.finishItems(u.Step, live)
	}
	r.advance(live)
}

// Cancel ends the run and forgets its tasks in flight. It does not change a run that has ended.
func (r *Run) Cancel(reason string, now time.Time) {
	if r.status.Ended() {
		return
	}
	r.beginsAt(now)
	r.reason = reason
	r.end(model.Cancelled)
}

// Withdraw records that a task from Ready does not start, so that Ready decides about it again.
func (r *Run) Withdraw(ref string, now time.Time) {
	u, rest, inside, ok := r.called(ref)
	if ok && inside {
		r.withdrawIn(u, rest, now)
		return
	}
	if !ok || !u.rec.underway {
		return
	}
	rec := u.rec
	if !rec.asking {
		// Ready counted it. A verification has the number of the attempt that it verifies.
		rec.attempts--
	}
	rec.underway, rec.asking = false, false
	if rec.attempts > 0 && !rec.blind {
		rec.due = model.Stamp(now) // or it would look like an attempt with an unknown outcome
	}
	r.underway--
	r.whole.extent.flying--
	r.settled = false
	r.touch()
}

// beginsAt sets the time when the run begins, once.
func (r *Run) beginsAt(now time.Time) {
	if r.began.IsZero() {
		r.begins(model.Stamp(now))
	}
}

func (r *Run) begins(at time.Time) {
	r.began = at
	if r.within == "" {
		r.whole.extent.began = at
	}
	r.scope.begins(at)
}
