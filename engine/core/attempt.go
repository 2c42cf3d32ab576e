package core

import (
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file decides whether a handler may start, and makes the attempt.
//
// The order of the questions is part of what people rely on: a switch before everything else, then
// the handlers that it waits for, then its conditions, then the deadline, and the guard last. The
// guard may take a token of a limit, so it is only asked about a call that nothing else keeps back.

// begin starts attempts of a handler, or decides it without one.
func (r *Run) begin(tasks []Attempt, s *planner.Step, live Live) []Attempt {
	rec := &r.records[s.Position]
	switch {
	case rec.decided(), rec.underway, rec.outcome == model.OutcomeUnknown:
		return tasks // only Finish, or an operator, changes these
	case rec.outcome == model.OutcomeWaiting:
		switch {
		case rec.due.After(live.Now):
			r.overdue(r.unit(s), live)
		case s.Handler.Await != nil:
			r.expire(s, live)
		case rec.looks():
			if t, ok := r.attempt(r.unit(s), live); ok {
				tasks = append(tasks, t)
			}
		default:
			r.succeed(s, live)
		}
		return tasks
	}
	// A call that has begun runs to its end, even if its handler is switched off now: what it has
	// done could not be undone, and what it has set would be missing half.
	if s.Callee != nil && (rec.sub != nil || rec.each != nil) {
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
		r.overdue(r.unit(s), live)
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
func (r *Run) wanted(s *planner.Step, live Live) bool {
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

// free reports whether everything that the handler must wait for is decided.
func (r *Run) free(s *planner.Step) bool {
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
	if r.whole.extent.flying >= maxFlying {
		return Attempt{}, false // Ready asks again when one of them ends
	}
	// The clock of the handler starts before the guard is asked, because a handler must not wait
	// for a limit beyond its own deadline.
	if !u.Computes() && !r.inTime(u, live) {
		return Attempt{}, false
	}
	v, ok := r.verdict(u, live)
	if !ok {
		return Attempt{}, false
	}
	if v.Skip && v.Beside && !rec.unknown { // with an unknown outcome, a call would have to be verified first
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
	if !rec.ready { // all attempts send the same body, because they have the same key
		body, err := u.Handler.Body.Share(r.scope.envOf(u, live))
		if err != nil {
			r.giveUpUnit(u, err, live)
			return Attempt{}, false
		}
		rec.body, rec.bodySize, rec.ready = body, copiesOfBody*datum.Size(body), true
		if err := r.whole.extent.grow(rec.bodySize); err != nil {
			r.giveUpUnit(u, err, live)
			return Attempt{}, false
		}
	}
	rec.blind = rec.inFlight() // before the new attempt counts
	if !rec.looks() {
		rec.attempts++
	}
	r.whole.extent.starts(u)
	if u.keepsAttempts() || u.Volatile && rec.attempts == 1 {
		r.touch()
	}
	if rec.attempts > 1 && u.item == 0 {
		rec.tryBegins(model.Stamp(live.Now))
	}
	return r.launch(u, Attempt{Type: u.Type, Body: rec.body, IdempotencyKey: r.keyOf(u)}, live), true
}

// keyOf returns the key of a unit's call. It must not depend on the attempt, the node or the time.
func (r *Run) keyOf(u unit) string {
	return idempotencyKey(r.start.identity(), r.whole.redone.keyed(r.within+u.Path), u.item)
}

// beside skips a unit and still makes its call, so that fallback can learn from the outcome. The
// run does not depend on the outcome, so a checkpoint needs no trace of the call. The call has the
// handler's key: making up for the handler repeats the same call.
func (r *Run) beside(u unit, v Verdict, live Live) (Attempt, bool) {
	body, err := u.Handler.Body.Share(r.scope.envOf(u, live))
	a := r.describe(u, Attempt{Type: u.Type, Body: body, IdempotencyKey: r.keyOf(u), Attempt: u.rec.attempts + 1, Beside: true}, live)
	r.leaveOut(u, v.Reason, live)
	return a, err == nil
}

// launch completes the attempt of a unit and marks it as in flight.
func (r *Run) launch(u unit, a Attempt, live Live) Attempt {
	rec := u.rec
	rec.due, rec.underway = time.Time{}, true
	r.underway++
	r.whole.extent.flying++
	r.whole.dirty = true
	if rec.started.IsZero() {
		rec.started = model.Stamp(live.Now)
	}
	a.Attempt, a.Begun = rec.attempts, live.Now
	r.whole.recording.begins(r.within+u.ref(), live)
	return r.describe(u, a, live)
}

// describe completes the attempt of a unit. The body is a copy if the type may change it, because the
// next attempt sends the original.
func (r *Run) describe(u unit, a Attempt, live Live) Attempt {
	a.Timeout = u.Handler.Live.Or("timeout", u.Handler.Timeout, live.Configs)
	a.Own = a.Timeout
	a.Step = u.Step
	a.Item = u.item
	a.within = r.within
	if !a.Type.KeepsBody {
		a.Body = model.CopyData(a.Body)
	}
	a.run = r
	a.unit = u
	a.Deadline = r.limitOf(u).at
	a.Again = u.rec.lookup
	return a
}

// copiesOfBody is how often the body of a call is in memory: for retries, and in the request.
const copiesOfBody = 2

// compute runs a handler that needs no call: one that sets the state, or a placeholder.
func (r *Run) compute(s *planner.Step, live Live) {
	rec := &r.records[s.Position]
	rec.started = model.Stamp(live.Now)
	if s.Type.SetsState {
		rec.attempts = 1
		if err := r.scope.assign(rec, s.Handler.Body, live); err != nil {
			r.giveUp(s, err, live)
			return
		}
		if err := r.respond(s); err != nil {
			r.giveUp(s, err, live)
			return
		}
	}
	r.succeed(s, live)
}

// respond makes what a handler has set its response, if anything may read that.
func (r *Run) respond(s *planner.Step) (err error) {
	if !s.Gathers {
		return nil
	}
	rec, values := &r.records[s.Position], map[string]any{}
	for _, k := range s.Handler.Body.Keys() {
		values[k.Name] = r.scope.shared[k.Name]
	}
	rec.response = values
	rec.raw, err = r.encode(r.unit(s), values, false)
	return err
}

// An Attempt is one attempt of a handler that may start now, or the call that verifies one.
type Attempt struct {
	Step    *planner.Step // the handler, or its compensation
	Item    int           // from 1, if the handler has a for-each; otherwise 0
	within  string        // the calls around it
	Type    tree.Type     // of Body
	Verify  bool          // it asks the service for the outcome of the attempt
	Again   string        // what the handler has asked for, see [model.Result].Again
	Attempt int           // from 1; a verification has the number of the attempt that it verifies
	Body    any           // evaluated; may hold [datum.Secret] values; the handler may change it, unless Type.KeepsBody
	// IdempotencyKey is the same for all attempts on all nodes. A call that was undone and is made
	// again has a new one.
	IdempotencyKey string
	Timeout        time.Duration // 0: the type decides; the caller may shorten it
	Own            time.Duration // the timeout of the handler, as the settings have it; 0 for none

	// Beside says that the run does not wait for the call, and may have ended. The handler is
	// already skipped, and the caller does not report the outcome.
	Beside bool

	// Deadline is when the attempt must have ended, by the clock of Ready. Zero means none. The
	// attempt must not begin later.
	Deadline time.Time

	// Begun is when Ready returned the attempt, by its clock. A wait that the attempt asks for must
	// not count from an earlier time: the run has seen Begun already, and would end it early.
	Begun time.Time

	run  *Run // the run of the attempt
	unit unit
}

// Ref names the task among the run's tasks in flight. It is the path of the handler, with the index
// of the item if there is one. The calls around it come first.
func (t *Attempt) Ref() string { return t.within + model.RefOf(t.Step.Path, t.Item) }
