package core

import (
	"cmp"
	"time"

	"procaas/engine/model"
)

// This file computes deadlines. A deadline does not interrupt a handler. Instead an attempt gets
// only the time that is left, and a handler that would begin or wait after a deadline is decided.
// Handlers that only compute always run, because they take no time.
//
// Deadlines use a clock of the run. It stands still while an operator holds one of the run's
// handlers or makes it wait for a limit, and while the run then waits for its turn. Operators do
// this to protect runs while something is broken, so deadlines must not fail these runs.

// A limit is the earliest deadline that applies to something. The zero limit is none.
type limit struct {
	at     time.Time     // by the clock of the store
	of     string        // path of the handler, stage or pipeline that has the deadline
	length time.Duration // as written in the file
}

// lengths are the deadlines of a run's pipeline and present stage, as the settings had them when the run last looked. 0 is that of
// the files.
type lengths struct{ pipeline, stage time.Duration }

// passed reports whether no time is left.
func (l limit) passed(now time.Time) bool { return !l.at.IsZero() && !l.at.After(now) }

// cuts reports whether t is too late.
func (l limit) cuts(t time.Time) bool { return l.passed(t) }

// or returns the earlier of two limits, and the wider one if they are equal.
func (l limit) or(at time.Time, of string, length time.Duration) limit {
	if l.at.IsZero() || at.Before(l.at) {
		return limit{at, of, length}
	}
	return l
}

// clockAt converts a time to the clock of deadlines.
func (r *Run) clockAt(now time.Time) time.Time { return model.Stamp(now).Add(-r.whole.stood) }

// limitAround returns the limit for everything that the run begins. It combines the deadlines of
// the pipeline, the stage and the calls around the run. A run that gives up has no deadline,
// because its work must be undone, and that of a pipeline does not hold for its finally. A detached handler outlasts its stage and has only the wider
// deadlines.
func (r *Run) limitAround(detached bool) (l limit) {
	if !r.whole.paused.IsZero() || r.givesUp() {
		return limit{}
	}
	if r.caller != nil {
		if r.caller.givesUp() {
			return limit{}
		}
		l = r.caller.limitOf(r.calledBy)
	}
	if d := cmp.Or(r.own.pipeline, r.plan.Pipeline.Deadline); d > 0 && !r.clock.IsZero() && r.closing == "" {
		l = l.or(r.clock.Add(d+r.whole.stood), "pipeline "+r.plan.Pipeline.ID, d)
	}
	g := r.current()
	if detached || g == nil {
		return l
	}
	if d := cmp.Or(r.own.stage, g.Declared.Deadline); d > 0 && !r.stageClock.IsZero() {
		l = l.or(r.stageClock.Add(d+r.whole.stood), "stage "+r.plan.Pipeline.ID+"/"+g.ID, d)
	}
	return l
}

// limitOf is the limit of a handler or of one of its items.
func (r *Run) limitOf(u unit) limit {
	if u.Undoes {
		return r.limitOfUndo(u)
	}
	bound := u.of.bound
	if !r.plan.Bounded && r.caller == nil && bound.Most == 0 || !r.whole.paused.IsZero() {
		return limit{}
	}
	if u.Undo != nil && u.rec.blind {
		return limit{} // the outcome must be known in order to undo it
	}
	l := r.limitAround(u.Handler.Detached)
	if d := cmp.Or(u.of.own, u.Deadline); d > 0 && !u.of.clock.IsZero() && !r.givesUp() {
		l = l.or(u.of.clock.Add(d+r.whole.stood), "handler "+u.Path, d)
	}
	if bound.Most > 0 && !u.of.clock.IsZero() && !r.givesUp() {
		l = l.or(u.of.clock.Add(bound.Most+r.whole.stood), bound.Of, bound.Most)
	}
	return l
}

// limitOfUndo is the limit of a compensation, which has only its own deadline: the run has given up, so those around it
// are over.
func (r *Run) limitOfUndo(u unit) limit {
	if u.Deadline == 0 || u.of.clock.IsZero() || !r.whole.paused.IsZero() {
		return limit{}
	}
	return limit{u.of.clock.Add(u.Deadline + r.whole.stood), "handler " + u.Path, u.Deadline}
}

// startClocks notes when the pipeline and its current stage began. It is saved, because a crash
// must not restart the time. It also notes how long they may take now, as the settings have it.
func (r *Run) startClocks(live Live) {
	now := live.Now
	p := r.plan.Pipeline
	r.own = lengths{pipeline: p.Live.Or("deadline", p.Deadline, live.Configs)}
	if g := r.current(); g != nil {
		r.own.stage = g.Declared.Live.Or("deadline", g.Declared.Deadline, live.Configs)
	}
	if r.plan.Pipeline.Deadline > 0 && r.clock.IsZero() {
		r.clock = r.clockAt(now)
		r.touch()
	}
	if g := r.current(); g != nil && g.Declared.Deadline > 0 && r.stageClock.IsZero() {
		r.stageClock = r.clockAt(now)
		r.touch()
	}
}

// startClock notes when a handler's turn came. A deadline that operators set later counts from the time when the run first
// sees it, unless the handler has one of its own.
func (r *Run) startClock(u unit, live Live) {
	if live.Deadline != nil && !u.Undoes {
		u.of.bound = live.Deadline(u.Step)
		r.whole.bound = r.whole.bound || u.of.bound.Most > 0
	}
	if len(u.Handler.Live) > 0 {
		u.of.own = u.Handler.Live.Or("deadline", u.Deadline, live.Configs)
	}
	if (u.Deadline > 0 || u.of.bound.Most > 0) && u.of.clock.IsZero() {
		u.of.clock = r.clockAt(live.Now)
		r.touch()
	}
}

// wasHeld reports whether an operator has held the run. The wait for its turn after that is also
// due to the operator.
func (r *Run) wasHeld() bool { return r.whole.stood > 0 || !r.whole.paused.IsZero() }

// stand stops the clock of deadlines while an operator holds a handler, and restarts it afterwards.
func (r *Run) stand(now time.Time) {
	switch {
	case r.whole.holds && r.whole.paused.IsZero() && (r.plan.Bounded || r.whole.bound):
		r.whole.paused, r.whole.dirty = model.Stamp(now), true
	case !r.whole.holds && !r.whole.paused.IsZero():
		r.whole.stood += max(0, model.Stamp(now).Sub(r.whole.paused))
		r.whole.paused = time.Time{}
		r.touch()
	}
	r.whole.holds = false
}

// after returns the time a while from now, rounded up. Rounding down would make it too early.
func after(now time.Time, wait time.Duration) time.Time {
	return model.Stamp(now.Add(wait + time.Millisecond - 1))
}
