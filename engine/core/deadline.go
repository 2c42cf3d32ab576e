package core

import (
	"fmt"
	"strings"
	"time"

	"procaas/engine/model"
)

// This file ends what has a deadline. No handler is broken off by it: an attempt is given the time
// that is left, and what would begin or go on waiting after a deadline is decided in place of that.
// All that only computes is done as ever, since it takes no time.
//
// Deadlines go by a clock of the run's own, which stands while an operator holds one of its
// handlers, or lets it wait for a limit. People do that to keep runs from harm while something is
// broken; a deadline that ran out meanwhile would fail just these runs.

// A limit is the earliest deadline that something has to keep. The zero limit is none.
type limit struct {
	at     time.Time     // by the clock of the store
	of     string        // whose deadline it is, for people
	length time.Duration // as it is written
}

// passed tells whether there is no time left.
func (l limit) passed(now time.Time) bool { return !l.at.IsZero() && !l.at.After(now) }

// cuts tells whether a time is too late.
func (l limit) cuts(t time.Time) bool { return l.passed(t) }

// or gives the earlier one of two limits; of equals, the wider one.
func (l limit) or(at time.Time, of string, length time.Duration) limit {
	if l.at.IsZero() || at.Before(l.at) {
		return limit{at, of, length}
	}
	return l
}

// error says what was not done in time. It is told by its class, whatever the last error was.
func (l limit) error(u unit, what string, cause error) error {
	return model.Permanent(&model.KeptError{
		Text:  fmt.Sprintf("the deadline of %s, %s, %s", l.of, l.length, what),
		Class: model.ClassDeadline, Status: statusOf(cause), Failures: u.rec.failures,
	})
}

// clockAt is the time by the clock of deadlines.
func (w *whole) clockAt(now time.Time) time.Time { return model.Stamp(now).Add(-w.stood) }

// limit is that of what the run begins: the deadline of the pipeline, that of the stage and those
// around the call that it is inside of. Who gives up has no deadline any more: what is done has to
// be undone.
func (r *progress) limit() (l limit) {
	if !r.paused.IsZero() || r.givesUp() {
		return limit{}
	}
	if r.caller != nil {
		if r.caller.givesUp() {
			return limit{}
		}
		l = r.caller.limitOf(r.calledBy)
	}
	if d := r.plan.Pipeline.Deadline; d > 0 && !r.clock.IsZero() {
		l = l.or(r.clock.Add(d+r.stood), "pipeline "+r.plan.Pipeline.ID, d)
	}
	if r.stage == len(r.plan.Stages) {
		return l
	}
	if g := r.plan.Stages[r.stage]; g.Declared.Deadline > 0 && !r.stageClock.IsZero() {
		l = l.or(r.stageClock.Add(g.Declared.Deadline+r.stood), "stage "+r.plan.Pipeline.ID+"/"+g.ID, g.Declared.Deadline)
	}
	return l
}

// limitOf is the limit of a handler, or of an item of it.
func (r *progress) limitOf(u unit) limit {
	if u.Undoes || !r.plan.Bounded && r.caller == nil || !r.paused.IsZero() {
		return limit{}
	}
	if u.Undo != nil && u.rec.blind {
		return limit{} // what it has done has to be known, to be undone
	}
	l := r.limit()
	if u.Deadline > 0 && !u.of.clock.IsZero() && !r.givesUp() {
		l = l.or(u.of.clock.Add(u.Deadline+r.stood), "handler "+u.Path, u.Deadline)
	}
	return l
}

// startClocks notes when the pipeline and its present stage have begun. A crash may not forget it.
func (r *progress) startClocks(now time.Time) {
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
func (r *progress) startClock(u unit, now time.Time) {
	if u.Deadline > 0 && u.of.clock.IsZero() {
		u.of.clock = r.clockAt(now)
		r.touch()
	}
}

// stand lets the clock of deadlines stand while an operator holds a handler, and go on afterwards.
func (r *progress) stand(now time.Time) {
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

// bound gives attempts that have begun while the clock stood their deadline, if it goes on now.
func (r *progress) bound(tasks []Attempt, live Live) {
	r.stand(live.Now)
	for i := range tasks {
		if tasks[i].Deadline.IsZero() {
			tasks[i].Deadline = tasks[i].run.limitOf(tasks[i].unit).at
		}
	}
}

// overdue decides about a unit for which there is no time left, before it begins or while it waits.
func (r *decisions) overdue(u unit, live Live) bool {
	l, rec := r.limitOf(u), u.rec
	if !l.passed(live.Now) || u.item == 0 && rec.lost(u.Step) {
		return false
	}
	err := l.error(u, "has passed "+rec.waited(u), nil)
	rec.hold, rec.cause, rec.held = time.Time{}, "", time.Time{}
	if rec.outcome == model.OutcomeWaiting {
		rec.outcome = ""
	}
	switch {
	case u.item > 0:
		r.itemFailed(u, err)
	case rec.unknown: // stays known, so that an operator's retry asks first
		r.giveUp(u.Step, err, live)
	default:
		rec.err = model.CleanText(err.Error())
		r.settle(u.Step, err, live)
	}
	return true
}

// inTime begins the time of a unit whose turn has come. It is false when that is over, and the unit
// decided by that.
func (r *decisions) inTime(u unit, live Live) bool {
	r.startClock(u, live.Now)
	return !r.overdue(u, live)
}

// waited says what a unit has been doing that is not under way.
func (r *record) waited(u unit) string {
	switch {
	case r.outcome == model.OutcomeWaiting && u.Handler.Await != nil:
		return "while it waited for " + strings.Join(u.Handler.Await.Event, " or ")
	case r.outcome == model.OutcomeWaiting:
		return "during its wait"
	case r.inFlight() && u.Callee == nil:
		return fmt.Sprintf("since attempt %d, which was under way when its node died", r.attempts)
	case r.cause != "" || !r.hold.IsZero():
		return "while it waited: " + r.reason
	case r.attempts > 0 && r.err != "" && u.Callee == nil:
		return fmt.Sprintf("before attempt %d; the last error: %s", r.attempts+1, r.err)
	}
	return "before it began"
}

// late gives the error that stands for the one of an attempt, when no time is left for another, or
// none was left for this one; nil when the deadline has nothing to do with it.
func (r *decisions) late(u unit, err error, again bool, live Live) error {
	l, rec := r.limitOf(u), u.rec
	switch {
	case l.passed(live.Now) && model.ClassOf(err) == "timeout":
		rec.due = time.Time{}
		return l.error(u, fmt.Sprintf("has passed during attempt %d: %s", rec.attempts, rec.err), err)
	case again && l.cuts(rec.due):
		rec.due = time.Time{}
		return l.error(u, fmt.Sprintf("leaves no time for attempt %d: %s", rec.attempts+1, rec.err), err)
	}
	return nil
}
