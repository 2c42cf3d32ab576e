package core

import (
	"errors"
	"fmt"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file decides whether a handler may start, and what follows a failed attempt.

// begin starts attempts of a handler, or decides it without one.
func (r *Run) begin(tasks []Attempt, s *planner.Step, live Live) []Attempt {
	rec := &r.records[s.Position]
	switch {
	case rec.decided(), rec.underway, rec.outcome == model.OutcomeUnknown:
		return tasks
	case rec.outcome == model.OutcomeWaiting:
		switch {
		case rec.due.After(live.Now):
			overdue(&r.decisions, r.unit(s), live)
		case s.Handler.Await != nil:
			r.expire(s, live)
		default:
			r.succeed(s, live)
		}
		return tasks
	}
	if s.Callee != nil && (rec.sub != nil || rec.each != nil) { // a call that has begun runs to its end
		if s.Handler.ForEach != nil {
			return r.beginItems(tasks, s, live)
		}
		return r.advanceCall(tasks, r.unit(s), live)
	}
	if s.Loops {
		if r.expand(s, live) {
			tasks = r.beginItems(tasks, s, live)
		}
		return tasks
	}
	// A handler that is off and has no fallback result is skipped at once, so that later handlers
	// need not wait for its dependencies. With a fallback result it waits, because handlers before
	// it may write the same names.
	reason, off := live.off(s)
	if off && rec.each.busy() {
		return tasks // calls in flight end first
	}
	if off && !s.StandsIn() {
		r.skip(s, reason, live)
		return tasks
	}
	if !r.free(s) {
		return tasks
	}
	if !off && rec.due.After(live.Now) {
		overdue(&r.decisions, r.unit(s), live)
		return tasks
	}
	// The conditions are evaluated once: a handler that has begun continues even if configs change.
	if rec.attempts == 0 && rec.each == nil && !r.wanted(s, live) {
		return tasks
	}
	if off {
		r.skip(s, reason, live)
		r.standIn(s, live)
		return tasks
	}
	if s.Handler.ForEach != nil {
		if rec.each != nil || r.expand(s, live) {
			tasks = r.beginItems(tasks, s, live)
		}
		return tasks
	}
	if s.Callee != nil {
		return r.advanceCall(tasks, r.unit(s), live)
	}
	if t, ok := r.attempt(r.unit(s), live); ok {
		tasks = append(tasks, t)
	}
	return tasks
}

// wanted evaluates the conditions of a handler. If it returns false, the handler is decided.
func (r *decisions) wanted(s *planner.Step, live Live) bool {
	r.scope.see(s, &r.records[s.Position])
	enabled, why, err := r.scope.condition(s.Handler.Enabled, "enabled", live)
	if err != nil {
		r.giveUp(s, err, live)
		return false
	}
	if !enabled {
		r.skip(s, why, live)
		return false
	}
	if enabled, why, err = r.scope.rolledOut(s, live); err != nil {
		r.giveUp(s, err, live)
		return false
	}
	if !enabled {
		r.skip(s, why, live)
		r.standIn(s, live)
	}
	return enabled
}

// off reports whether a handler is switched off, and why.
func (l Live) off(s *planner.Step) (string, bool) {
	if l.Off == nil {
		return "", false
	}
	return l.Off(s)
}

// free reports whether everything that the handler must wait for is decided.
func (r *progress) free(s *planner.Step) bool {
	for earlier := range s.Waits() {
		if !r.records[earlier.Position].decided() {
			return false
		}
	}
	return true
}

// attempt asks the guard and makes the task. A handler that needs no call is done at once.
func (r *Run) attempt(u unit, live Live) (Attempt, bool) {
	rec := u.rec
	if r.extent.flying >= maxFlying {
		return Attempt{}, false // Ready asks again when one of them ends
	}
	if !u.Computes() && !inTime(&r.decisions, u, live) {
		return Attempt{}, false
	}
	v := live.verdict(&r.progress, u)
	if v.Skip && v.Beside && !rec.unknown {
		return r.beside(u, v, live)
	}
	if !r.applyVerdict(u, v, live) {
		return Attempt{}, false
	}
	if u.Handler.Await != nil {
		r.await(u.Step, live)
		return Attempt{}, false
	}
	if u.Computes() {
		r.compute(u.Step, live)
		return Attempt{}, false
	}
	if rec.unknown {
		return r.ask(u, live) // verify before a second call
	}
	if !rec.ready {
		body, err := u.Handler.Body.Eval(r.scope.envOf(u, live))
		if err != nil {
			r.giveUpUnit(u, err, live)
			return Attempt{}, false
		}
		rec.body, rec.bodySize, rec.ready = body, copiesOfBody*datum.Size(body), true
		if err := r.extent.grow(rec.bodySize); err != nil {
			r.giveUpUnit(u, err, live)
			return Attempt{}, false
		}
	}
	rec.blind = rec.inFlight()
	rec.attempts++
	r.extent.starts(u)
	if u.keepsAttempts() || u.Volatile && rec.attempts == 1 {
		r.touch()
	}
	if rec.attempts > 1 && u.item == 0 {
		rec.tryBegins(model.Stamp(live.Now))
	}
	return r.launch(u, Attempt{Type: u.Type, Body: rec.body, IdempotencyKey: r.keyOf(u)}, live), true
}

func (r *progress) keyOf(u unit) string {
	return idempotencyKey(r.start.identity(), r.redone.keyed(r.within+u.Path), u.item)
}

// beside skips a unit and still makes its call, so that fallback can learn from the outcome. The
// run does not depend on the outcome, so a checkpoint needs no trace of the call. The call has the
// handler's key: making up for the handler repeats the same call.
func (r *Run) beside(u unit, v Verdict, live Live) (Attempt, bool) {
	body, err := u.Handler.Body.Eval(r.scope.envOf(u, live))
	a := r.describe(u, Attempt{Type: u.Type, Body: body, IdempotencyKey: r.keyOf(u), Attempt: u.rec.attempts + 1, Beside: true})
	r.leaveOut(u, v.Reason, live)
	return a, err == nil
}

// launch completes the attempt of a unit and marks it as in flight.
func (r *Run) launch(u unit, a Attempt, live Live) Attempt {
	rec := u.rec
	rec.due, rec.underway = time.Time{}, true
	r.underway++
	r.extent.flying++
	r.dirty = true
	if rec.started.IsZero() {
		rec.started = model.Stamp(live.Now)
	}
	a.Attempt, a.Begun = rec.attempts, live.Now
	r.recording.begins(r.within+u.ref(), live)
	return r.describe(u, a)
}

// describe completes the attempt of a unit.
func (r *Run) describe(u unit, a Attempt) Attempt {
	a.Step = u.Step
	a.Item = u.item
	a.within = r.within
	a.Timeout = u.Handler.Timeout
	a.Body = model.CopyData(a.Body)
	a.run = &r.progress
	a.unit = u
	a.Deadline = limitOf(&r.progress, u).at
	return a
}

// admitted asks the guard and applies its verdict.
func (r *decisions) admitted(u unit, live Live) bool {
	return r.applyVerdict(u, live.verdict(&r.progress, u), live)
}

// copiesOfBody is how often the body of a call is in memory: for retries, and in the request.
const copiesOfBody = 2

// hasRoom reports whether there is memory for the run to grow. Otherwise the unit waits.
func (r *decisions) hasRoom(u unit, live Live) bool {
	if live.Memory == nil {
		return true
	}
	v := live.Memory(r.extent.held())
	if !v.Hold.IsZero() {
		r.holds = r.holds || v.People
		r.hold(u, v, live)
		return false
	}
	if rec := u.rec; rec.cause == CauseMemory {
		rec.reason, rec.hold, rec.cause = "", time.Time{}, ""
	}
	return true
}

// verdict returns the guard's verdict, or that the run waits for memory.
func (l Live) verdict(r *progress, u unit) Verdict {
	if l.Memory != nil {
		if v := l.Memory(r.extent.held()); !v.Hold.IsZero() {
			return v
		}
	}
	if l.Guard == nil {
		return Verdict{}
	}
	v := l.Guard(u.Step, r.within+u.ref(), u.rec.due)
	if v.Turn && wasHeld(r.whole) {
		v.People, v.Patience = true, 0
	}
	return v
}

// applyVerdict applies the guard's verdict and reports whether the call may start.
func (r *decisions) applyVerdict(u unit, v Verdict, live Live) bool {
	r.holds = r.holds || v.People
	switch {
	case v.Skip:
		r.leaveOut(u, v.Reason, live)
		return false
	case !v.Hold.IsZero():
		r.hold(u, v, live)
		return false
	}
	u.rec.reason = ""
	u.rec.hold = time.Time{}
	u.rec.cause = ""
	u.rec.held = time.Time{}
	return true
}

// hold keeps a call from starting, or skips it when it has waited too long.
func (r *decisions) hold(u unit, v Verdict, live Live) {
	rec := u.rec
	switch {
	case v.Patience == 0 || u.Handler.IsCritical():
		rec.held = time.Time{}
	case rec.held.IsZero(): // saved, so that crashes do not prolong the hold
		rec.held = model.Stamp(live.Now)
	}
	if !rec.held.IsZero() {
		end := rec.held.Add(v.Patience)
		if !end.After(live.Now) {
			r.leaveOut(u, fmt.Sprintf("left out after %s: %s", v.Patience, v.Reason), live)
			return
		}
		if end.Before(v.Hold) {
			v.Hold = end
		}
	}
	r.dirty = r.dirty || v.Reason != rec.reason // the reason is for people, so a crash may forget it
	rec.reason, rec.hold, rec.cause = v.Reason, v.Hold, v.Cause
}

// leaveOut applies the guard's verdict that a handler is over its limits. If the handler iterates
// and has begun, only the item is skipped.
func (r *decisions) leaveOut(u unit, reason string, live Live) {
	if u.item > 0 && u.of.each.reached() {
		r.itemFailed(u, errors.New(reason))
		return
	}
	r.skip(u.Step, reason, live)
	r.standIn(u.Step, live)
}

// giveUpUnit decides that a handler or an item has failed for good. It ignores the rules of
// on-error.
func (r *decisions) giveUpUnit(u unit, err error, live Live) {
	if u.item > 0 {
		r.itemFailed(u, err)
		return
	}
	r.giveUp(u.Step, err, live)
}

// compute runs a handler that needs no call: one that sets the state, or a placeholder.
func (r *decisions) compute(s *planner.Step, live Live) {
	rec := &r.records[s.Position]
	rec.started = model.Stamp(live.Now)
	if s.Type.SetsState {
		rec.attempts = 1
		values, err := r.scope.assign(rec, s.Handler.Body, live)
		if err != nil {
			r.giveUp(s, err, live)
			return
		}
		if rec.raw, err = model.EncodeData(values); err != nil {
			r.giveUp(s, err, live)
			return
		}
		rec.response = values
	}
	r.succeed(s, live)
}

// failed handles the end of an attempt without success.
func (r *decisions) failed(u unit, err error, probe bool, live Live) {
	again := r.repeats(u, err, probe, live)
	if late := late(r, u, err, again, live); late != nil {
		u.rec.err = model.CleanText(late.Error())
		again, err = false, late
	}
	switch {
	case again:
	case u.item > 0:
		r.settleItem(u, err, live)
	default:
		r.settle(u.Step, err, live)
	}
}

// repeats counts a failed attempt and reports whether to retry. If so, it sets the time of the
// retry. A probe of a service that is down does not count against a critical handler, whose
// attempts are for its own failures.
func (r *decisions) repeats(u unit, err error, probe bool, live Live) bool {
	rec := u.rec
	rec.err = model.CleanText(err.Error())
	if probe && u.Handler.IsCritical() {
		if delay, ok := rec.again(u, r.start.ID+r.within, err); ok {
			rec.due = after(live.Now, delay)
			return true
		}
	}
	rec.failures++
	if u.item == 0 && !u.Undoes {
		rec.tryFails(model.Stamp(live.Now))
	}
	delay, ok := rec.repeat(u, r.start.ID+r.within, rec.failures, err)
	if ok {
		rec.due = after(live.Now, delay)
	}
	return ok
}

// succeeded handles the successful end of an attempt or of a wait.
func (r *decisions) succeeded(u unit, live Live) {
	if u.item > 0 {
		r.itemSucceeded(u)
		return
	}
	r.succeed(u.Step, live)
}
