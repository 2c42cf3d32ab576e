package engine

import (
	"fmt"
	"time"
)

// This file decides whether a handler may start, and what follows from an
// attempt that failed. It belongs to the pure core, as run.go does.

// begin starts an attempt of a handler, or decides without one.
func (r *Run) begin(s *Step, live Live) (Task, bool) {
	rec := &r.records[s.position]
	switch {
	case rec.decided(), rec.underway, rec.outcome == OutcomeUnknown:
		return Task{}, false
	case rec.outcome == OutcomeWaiting:
		if !rec.due.After(live.Now) {
			r.succeed(s, live)
		}
		return Task{}, false
	}
	reason, off := live.off(s)
	if off && !s.standsIn() {
		r.skip(s, reason, live)
		return Task{}, false
	}
	if !r.free(s) || !off && rec.due.After(live.Now) {
		return Task{}, false
	}
	if rec.attempts == 0 {
		enabled, why, err := r.condition(s.Handler.Enabled, "enabled", live)
		if err != nil {
			r.giveUp(s, err, live)
			return Task{}, false
		}
		if !enabled {
			r.skip(s, why, live)
			return Task{}, false
		}
		if enabled, why, err = r.rolledOut(s, live); err != nil {
			r.giveUp(s, err, live)
			return Task{}, false
		}
		if !enabled {
			r.skip(s, why, live)
			r.standIn(s, live)
			return Task{}, false
		}
	}
	if off {
		r.skip(s, reason, live)
		r.standIn(s, live)
		return Task{}, false
	}
	return r.attempt(s, live)
}

// off asks whether a handler is switched off.
func (l Live) off(s *Step) (string, bool) {
	if l.Off == nil {
		return "", false
	}
	return l.Off(s)
}

// free tells whether all that the handler must wait for is decided.
func (r *Run) free(s *Step) bool {
	for _, e := range s.After {
		if !r.records[e.From.position].decided() {
			return false
		}
	}
	return true
}

// attempt asks the guard and makes the task. Handlers that need no call are
// done at once.
func (r *Run) attempt(s *Step, live Live) (Task, bool) {
	rec := &r.records[s.position]
	if live.Guard != nil {
		v := live.Guard(s, rec.due)
		if v.Skip {
			r.skip(s, v.Reason, live)
			r.standIn(s, live)
			return Task{}, false
		}
		if !v.Hold.IsZero() {
			r.hold(s, v, live)
			return Task{}, false
		}
		rec.reason, rec.hold, rec.cause, rec.held = "", time.Time{}, "", time.Time{}
	}
	if s.Type.New == nil || s.Type.SetsState {
		r.compute(s, live)
		return Task{}, false
	}
	if rec.unknown {
		return r.ask(s, live)
	}
	if !rec.ready {
		body, err := s.Handler.Body.Eval(r.env(live))
		if err != nil {
			r.giveUp(s, err, live)
			return Task{}, false
		}
		rec.body, rec.ready = body, true
	}
	rec.attempts++
	rec.due = time.Time{}
	rec.underway = true
	r.underway++
	r.dirty = true
	if s.Handler.Parks() || s.Handler.Verification() != nil || s.volatile && rec.attempts == 1 {
		r.touch() // or a crash would leave no trace of the attempt
	}
	if rec.started.IsZero() {
		rec.started = stamp(live.Now)
	}
	return Task{
		Step: s, Type: s.Type, Attempt: rec.attempts, Body: copyData(rec.body), Timeout: s.Handler.Timeout,
		IdempotencyKey: idempotencyKey(r.start.ID, s.Path, 0),
	}, true
}

// hold keeps a handler from starting, or leaves it out when it has waited for too
// long.
func (r *Run) hold(s *Step, v Verdict, live Live) {
	rec := &r.records[s.position]
	switch {
	case v.Patience == 0 || s.Handler.IsCritical():
		rec.held = time.Time{}
	case rec.held.IsZero():
		rec.held = stamp(live.Now)
	}
	if !rec.held.IsZero() {
		end := rec.held.Add(v.Patience)
		if !end.After(live.Now) {
			r.skip(s, fmt.Sprintf("left out after %s: %s", v.Patience, v.Reason), live)
			r.standIn(s, live)
			return
		}
		if end.Before(v.Hold) {
			v.Hold = end
		}
	}
	r.dirty = r.dirty || v.Reason != rec.reason
	rec.reason, rec.hold, rec.cause = v.Reason, v.Hold, v.Cause
}

// compute does a handler that needs no call: one that sets the state, or a
// placeholder.
func (r *Run) compute(s *Step, live Live) {
	rec := &r.records[s.position]
	rec.started = stamp(live.Now)
	if s.Type.SetsState {
		rec.attempts = 1
		values, err := r.assign(s.Handler.Body, live)
		if err != nil {
			r.giveUp(s, err, live)
			return
		}
		if rec.raw, err = encodeData(values); err != nil {
			r.giveUp(s, err, live)
			return
		}
		rec.response = values
	}
	r.succeed(s, live)
}

// failed is the end of an attempt without success.
func (r *Run) failed(s *Step, err error, probe bool, live Live) {
	rec := &r.records[s.position]
	rec.err = clean(err.Error())
	if probe && s.Handler.IsCritical() {
		if delay, ok := rec.again(s, r.start.ID, err); ok {
			rec.due = stamp(live.Now.Add(delay + time.Millisecond - 1)) // rounded up
			return
		}
	}
	rec.failures++
	if delay, ok := rec.repeat(s, r.start.ID, rec.failures, err); ok {
		rec.due = stamp(live.Now.Add(delay + time.Millisecond - 1)) // rounded up
		return
	}
	r.settle(s, err, live)
}
