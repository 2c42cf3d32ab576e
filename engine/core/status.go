package core

import (
	"slices"
	"strings"
	"time"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file says how a run stands, for its driver and for people. It changes nothing.

// Cause names what the run waits for, other than a time. Without a cause, nothing wakes the run
// when that ends.
func (r *Run) Cause() string {
	if r.undoing && r.closing == "" {
		_, cause := r.waitsToUndo()
		return cause
	}
	var causes []string
	var last time.Time
	var retry string
	for _, s := range r.open() {
		r.visit(s, func(u unit) {
			if c := u.rec.cause; c != "" && !u.rec.decided() && !slices.Contains(causes, c) {
				causes = append(causes, c)
			}
			if u.rec.sub != nil && !u.rec.decided() {
				for c := range strings.SplitSeq(u.rec.sub.Cause(), ",") {
					if c != "" && !slices.Contains(causes, c) {
						causes = append(causes, c)
					}
				}
			}
			if u.rec.repeats() && u.rec.due.After(last) {
				last, retry = u.rec.due, s.Path+CauseRetry
			}
		})
	}
	if retry != "" && len(causes) == 0 {
		causes = append(causes, retry) // only one: the number of causes must not grow with the sets of handlers
	}
	return strings.Join(causes, ",")
}

// Next returns when Ready has something new without a Finish: the earliest retry, end of a wait, or
// end of a hold. It is zero if there is none, and if the run waits until an operator decides about
// a handler with [model.OutcomeUnknown].
func (r *Run) Next() time.Time {
	var next time.Time
	if r.undoing && r.closing == "" && !r.status.Ended() {
		next, _ = r.waitsToUndo()
		return next
	}
	if r.status.Ended() {
		return next
	}
	if r.givesUp() {
		if s := r.firstLost(); s != nil {
			return r.records[s.Position].next()
		}
		return next
	}
	unknown := false
	for _, s := range r.open() {
		r.visit(s, func(u unit) {
			unknown = unknown || u.rec.outcome == model.OutcomeUnknown
			if sub := u.rec.sub; sub != nil && !u.rec.decided() && !u.cutOff() {
				path, _ := sub.Stuck()
				unknown = unknown || path != ""
				if due := sub.Next(); !due.IsZero() && (next.IsZero() || due.Before(next)) {
					next = due
				}
			}
			if due := r.nextOf(u); !due.IsZero() && (next.IsZero() || due.Before(next)) && !u.cutOff() {
				next = due
			}
		})
	}
	if unknown {
		return time.Time{} // only an operator can decide; the other handlers of the stage continue after that
	}
	return next
}

// nextOf returns when a unit has something to do without the end of a task, which is at its
// deadline at the latest. Zero means never.
func (r *Run) nextOf(u unit) time.Time {
	due := u.rec.next()
	if l := r.limitOf(u); !due.IsZero() && l.cuts(due) {
		return l.at
	}
	return due
}

// StageTimes returns when the first handler of a stage began and when the last one was decided. ok
// is false if none has been decided.
func (r *Run) StageTimes(stage int) (from, to time.Time, ok bool) {
	for _, s := range r.plan.Stages[stage].Steps {
		rec := &r.records[s.Position]
		if !rec.decided() {
			continue
		}
		began := rec.started
		if began.IsZero() {
			began = rec.finished
		}
		if !ok || began.Before(from) {
			from = began
		}
		if rec.finished.After(to) {
			to = rec.finished
		}
		ok = true
	}
	return from, to, ok
}

// StageTook returns when a complete stage began, which is when the one before it was complete, and when its last handler
// was decided. Detached handlers do not count. ok is false if the stage called nothing and computed nothing.
func (r *Run) StageTook(stage int) (from, to time.Time, ok bool) {
	for _, s := range r.plan.Stages[stage].Steps {
		if rec := &r.records[s.Position]; !s.Handler.Detached {
			to = later(to, rec.finished)
			ok = ok || !rec.started.IsZero()
		}
	}
	from = r.began
	for _, g := range r.plan.Stages[:stage] {
		for _, s := range g.Steps {
			if !s.Handler.Detached {
				from = later(from, r.records[s.Position].finished)
			}
		}
	}
	return from, to, ok
}

// Costliest returns the handler that took longest from its first attempt until it was decided.
func (r *Run) Costliest() (path string, took time.Duration, attempts int) {
	for i, s := range r.plan.Steps {
		rec := &r.records[i]
		if rec.started.IsZero() || rec.finished.Sub(rec.started) < took {
			continue
		}
		path, took, attempts = s.Path, rec.finished.Sub(rec.started), rec.attempts
	}
	return path, took, attempts
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Stuck returns the handler at which the run waits for an operator's decision, and why.
func (r *Run) Stuck() (path, why string) {
	for i, s := range r.plan.Steps {
		if !r.records[i].reached() {
			continue
		}
		r.visit(s, func(u unit) {
			if u.rec.outcome == model.OutcomeUnknown && path == "" {
				path, why = u.ref(), u.rec.reason
			}
			if u.rec.sub != nil && path == "" {
				path, why = u.rec.sub.Stuck()
			}
		})
	}
	return path, why
}

// Plan returns the plan of the run.
func (r *Run) Plan() *planner.Plan { return r.plan }

// Began returns when the run began. It is zero before the first [Run.Ready].
func (r *Run) Began() time.Time { return r.began }

// Stage returns the index of the current stage in [planner.Plan.Stages], or their number if all are
// complete.
func (r *Run) Stage() int {
	if r.closing == model.Succeeded && r.status.Ended() {
		return len(r.plan.Stages)
	}
	return r.stage
}

// MakesUp reports whether the run had ended, and only makes up for a handler.
func (r *Run) MakesUp() bool { return r.makesUp != "" }

// IsStopping reports whether an operator wants to undo and end the run.
func (r *Run) IsStopping() bool { return r.stopping != "" }

// Multiplies reports whether the run has started others in its pipeline's loop.
func (r *Run) Multiplies() bool { return r.whole.extent.looped > 0 }

// Refused returns why the attempt of the last [Run.Finish] has failed although its call did not: its response is too large,
// or an expression of the result has failed. It is empty otherwise.
func (r *Run) Refused() string { return r.whole.refused }

// CauseRetry is the suffix of the cause of a run that waits to retry a handler. The path of the
// handler comes before it. The run continues without the handler when fallback turns it off.
const CauseRetry = " retry"

// Status returns the status of the run. Running means that tasks are in flight or that the caller must ask Ready.
// Parked means that the run only waits for a time or an operator.
func (r *Run) Status() model.Status {
	if r.status == model.Running && r.settled && r.underway == 0 {
		return model.Parked
	}
	return r.status
}
