package core

import (
	"time"

	"procaas/engine/model"
)

// This file says how much time is left. No handler is broken off by a deadline: an attempt is given the time
// that is left, and what would begin or go on waiting after a deadline is decided in place of that.
// All that only computes is done as ever, since it takes no time.
//
// Deadlines go by a clock of the run's own, which stands while an operator holds one of its
// handlers, or lets it wait for a limit, and while the run then waits for its turn. People do that to
// keep runs from harm while something is broken; a deadline that ran out meanwhile would fail just these runs.

// A limit is the earliest deadline that something has to keep. The zero limit is none.
type limit struct {
	at     time.Time     // by the clock of the store
	of     string        // whose deadline it is, for people
	length time.Duration // as it is written
}

// passed reports whether there is no time left.
func (l limit) passed(now time.Time) bool { return !l.at.IsZero() && !l.at.After(now) }

// cuts reports whether a time is too late.
func (l limit) cuts(t time.Time) bool { return l.passed(t) }

// or returns the earlier one of two limits; of equals, the wider one.
func (l limit) or(at time.Time, of string, length time.Duration) limit {
	if l.at.IsZero() || at.Before(l.at) {
		return limit{at, of, length}
	}
	return l
}

// clockAt is the time by the clock of deadlines.
func (w *whole) clockAt(now time.Time) time.Time { return model.Stamp(now).Add(-w.stood) }

// limitAround is that of what the run begins: the deadline of the pipeline, that of the stage and those
// around the call that it is inside of. Who gives up has no deadline any more: what is done has to
// be undone. A detached handler outlasts its stage, and keeps only the wider ones.
func limitAround(r *progress, detached bool) (l limit) {
	if !r.paused.IsZero() || r.givesUp() {
		return limit{}
	}
	if r.caller != nil {
		if r.caller.givesUp() {
			return limit{}
		}
		l = limitOf(r.caller, r.calledBy)
	}
	if d := r.plan.Pipeline.Deadline; d > 0 && !r.clock.IsZero() {
		l = l.or(r.clock.Add(d+r.stood), "pipeline "+r.plan.Pipeline.ID, d)
	}
	if detached || r.stage == len(r.plan.Stages) {
		return l
	}
	if g := r.plan.Stages[r.stage]; g.Declared.Deadline > 0 && !r.stageClock.IsZero() {
		l = l.or(r.stageClock.Add(g.Declared.Deadline+r.stood), "stage "+r.plan.Pipeline.ID+"/"+g.ID, g.Declared.Deadline)
	}
	return l
}

// limitOf is the limit of a handler, or of an item of it.
func limitOf(r *progress, u unit) limit {
	if u.Undoes || !r.plan.Bounded && r.caller == nil || !r.paused.IsZero() {
		return limit{}
	}
	if u.Undo != nil && u.rec.blind {
		return limit{} // what it has done has to be known, to be undone
	}
	l := limitAround(r, u.Handler.Detached)
	if u.Deadline > 0 && !u.of.clock.IsZero() && !r.givesUp() {
		l = l.or(u.of.clock.Add(u.Deadline+r.stood), "handler "+u.Path, u.Deadline)
	}
	return l
}

// startClocks notes when the pipeline and its present stage have begun. A crash may not forget it.
func startClocks(r *progress, now time.Time) {
	if r.plan.Pipeline.Deadline > 0 && r.clock.IsZero() {
		r.clock = r.clockAt(now)
		r.touch()
	}
	if r.stage < len(r.plan.Stages) && r.plan.Stages[r.stage].Declared.Deadline > 0 && r.stageClock.IsZero() {
		r.stageClock = r.clockAt(now)
		r.touch()
	}
}

// startClock notes when the turn of a handler has come.
func startClock(r *progress, u unit, now time.Time) {
	if u.Deadline > 0 && u.of.clock.IsZero() {
		u.of.clock = r.clockAt(now)
		r.touch()
	}
}

// wasHeld reports whether an operator has held the run. The queue that it came into then is the operator's doing, too.
func wasHeld(w *whole) bool { return w.stood > 0 || !w.paused.IsZero() }

// stand lets the clock of deadlines stand while an operator holds a handler, and go on afterwards.
func stand(r *progress, now time.Time) {
	switch {
	case r.holds && r.paused.IsZero() && r.plan.Bounded:
		r.paused, r.dirty = model.Stamp(now), true
	case !r.holds && !r.paused.IsZero():
		r.stood += max(0, model.Stamp(now).Sub(r.paused))
		r.paused = time.Time{}
		r.touch()
	}
	r.holds = false
}
