package core

import (
	"fmt"
	"strings"
	"time"

	"procaas/engine/model"
)

// This file decides about what has no time left.

// error says what was not done in time. It is told by its class, whatever the last error was.
func (l limit) error(u unit, what string, cause error) error {
	return model.Permanent(&model.KeptError{
		Text:  fmt.Sprintf("the deadline of %s, %s, %s", l.of, l.length, what),
		Class: model.ClassDeadline, Status: statusOf(cause), Failures: u.rec.failures,
	})
}

// bound gives attempts that have begun while the clock stood their deadline, if it goes on now.
func bound(r *decisions, tasks []Attempt, live Live) {
	stand(&r.progress, live.Now)
	for i := range tasks {
		if tasks[i].Deadline.IsZero() {
			tasks[i].Deadline = limitOf(tasks[i].run, tasks[i].unit).at
		}
	}
}

// overdue decides about a unit for which there is no time left, before it begins or while it waits.
func overdue(r *decisions, u unit, live Live) bool {
	l, rec := limitOf(&r.progress, u), u.rec
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
func inTime(r *decisions, u unit, live Live) bool {
	startClock(&r.progress, u, live.Now)
	return !overdue(r, u, live)
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

// late returns the error that stands for the one of an attempt, when no time is left for another, or
// none was left for this one; nil when the deadline has nothing to do with it.
func late(r *decisions, u unit, err error, again bool, live Live) error {
	l, rec := limitOf(&r.progress, u), u.rec
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
