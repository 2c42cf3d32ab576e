package core

import (
	"fmt"
	"strings"
	"time"

	"procaas/engine/model"
)

// This file decides handlers that have no time left.

// error returns the error of a unit that missed its deadline. Its class is always timeout, whatever
// the last error was.
func (l limit) error(u unit, what string, cause error) error {
	return model.Permanent(&model.KeptError{
		Text:  fmt.Sprintf(MissedDeadline+"%s, %s, %s", l.of, l.length, what),
		Class: model.ClassDeadline, Status: statusOf(cause), Failures: u.rec.failures,
	})
}

// bound sets the deadline of attempts that began while the clock stood still, if the clock runs
// now.
func (r *Run) bound(tasks []Attempt, live Live) {
	r.stand(live.Now)
	for i := range tasks {
		if tasks[i].Deadline.IsZero() {
			tasks[i].Deadline = tasks[i].run.limitOf(tasks[i].unit).at
		}
	}
}

// overdue decides a unit that has no time left, before it begins or while it waits.
func (r *Run) overdue(u unit, live Live) bool {
	r.startClock(u, live)
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
		r.settleItem(u, err, live)
	case rec.unknown: // stays unknown, so that an operator's retry verifies first
		r.giveUp(u.Step, err, live)
	default:
		rec.err = model.CleanText(err.Error())
		r.settle(u.Step, err, live)
	}
	return true
}

// inTime starts the clock of a unit whose turn has come. It returns false if the time is over,
// which decides the unit.
func (r *Run) inTime(u unit, live Live) bool {
	return !r.overdue(u, live)
}

// MissedDeadline begins the errors of handlers whose deadline has passed.
const MissedDeadline = "the deadline of "

// WhileItWaited is in the errors of handlers whose deadline has passed while a limit or a service held them up. The
// reason follows.
const WhileItWaited = "while it waited: "

// waited describes what a unit that is not in flight has been waiting for.
func (r *record) waited(u unit) string {
	switch {
	case r.outcome == model.OutcomeWaiting && u.Handler.Await != nil:
		return "while it waited for " + strings.Join(u.Handler.Await.Event, " or ")
	case r.outcome == model.OutcomeWaiting:
		return "during its wait"
	case r.inFlight() && u.Callee == nil:
		return fmt.Sprintf("since attempt %d, which was under way when its node died", r.attempts)
	case r.cause != "" || !r.hold.IsZero():
		return WhileItWaited + r.reason
	case r.attempts > 0 && r.err != "" && u.Callee == nil:
		return fmt.Sprintf("before attempt %d; the last error: %s", r.attempts+1, r.err)
	}
	return "before it began"
}

// late returns the error that replaces the error of an attempt if no time is left for a retry, or
// none was left for the attempt. It is nil if the deadline did not matter.
func (r *Run) late(u unit, err error, again bool, live Live) error {
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
