package core

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file answers questions about a run from people, the driver and decisions.

// beginsAt sets the time when the run begins, once.
func (r *progress) beginsAt(now time.Time) {
	if r.began.IsZero() {
		r.begins(model.Stamp(now))
	}
}

func (r *progress) begins(at time.Time) {
	r.began = at
	if r.within == "" {
		r.extent.began = at
	}
	r.scope.begins(r.start.ID, at)
}

// open returns the handlers that may begin or continue: those of the current stage, and undecided
// detached ones of earlier stages.
func (r *progress) open() (steps []*planner.Step) {
	if r.stage < len(r.plan.Stages) {
		steps = r.plan.Stages[r.stage].Steps
	}
	for _, s := range r.plan.Detached {
		if s.Stage < r.stage && !r.records[s.Position].decided() {
			steps = append(slices.Clip(steps), s)
		}
	}
	return steps
}

// unit returns the unit of a handler.
func (r *progress) unit(s *planner.Step) unit { return unitOf(s, &r.records[s.Position]) }

// find returns the unit of a ref. ok is false if there is none.
func (r *progress) find(ref string) (u unit, ok bool) {
	path, index, isItem := strings.Cut(ref, "[")
	s := r.plan.ByPath[path]
	if s == nil {
		s = r.plan.ByPath[strings.TrimSuffix(path, model.UndoPath)]
		if s != nil && s.Undo != nil && r.records[s.Position].undo != nil {
			return unitOf(s.Undo, r.records[s.Position].undo), true
		}
		return unit{}, false
	}
	if !isItem {
		return r.unit(s), true
	}
	n, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
	each := r.records[s.Position].each
	if err != nil || each == nil || n < 0 || n >= len(each.of) {
		return unit{}, false
	}
	return r.itemOf(s, n), true
}

// itemOf returns the unit of the i-th item of a handler, from 0.
func (r *progress) itemOf(s *planner.Step, i int) unit {
	rec := &r.records[s.Position]
	return unit{Step: s, rec: &rec.each.of[i], item: i + 1, of: rec}
}

// called returns the call that a ref leads into, and the rest of the ref. ok is false if the call
// has ended.
func (r *progress) called(ref string) (u unit, rest string, inside, ok bool) {
	head, rest, inside := strings.Cut(ref, model.IntoCall)
	u, ok = r.find(head)
	return u, rest, inside, ok && (!inside || u.rec.sub != nil)
}

// visit calls f for each unit of a handler: the handler itself, or its items once they
// are known.
func (r *progress) visit(s *planner.Step, f func(unit)) {
	rec := &r.records[s.Position]
	if rec.each == nil || rec.decided() {
		f(r.unit(s))
		return
	}
	for i := range rec.each.of {
		f(r.itemOf(s, i))
	}
}

// Cause names what the run waits for, other than a time. Without a cause, nothing wakes the run
// when that ends.
func (r *progress) Cause() string {
	if r.undoing {
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
func (r *progress) Next() time.Time {
	var next time.Time
	if r.undoing && !r.status.Ended() {
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
func (r *progress) nextOf(u unit) time.Time {
	due := u.rec.next()
	if l := limitOf(r, u); !due.IsZero() && l.cuts(due) {
		return l.at
	}
	return due
}

// StageTimes returns when the first handler of a stage began and when the last one was decided. ok
// is false if none has been decided.
func (r *progress) StageTimes(stage int) (from, to time.Time, ok bool) {
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

// Stuck returns the handler at which the run waits for an operator's decision, and why.
func (r *progress) Stuck() (path, why string) {
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
func (r *progress) Plan() *planner.Plan { return r.plan }

// Began returns when the run began. It is zero before the first [Run.Ready].
func (r *progress) Began() time.Time { return r.began }

// Stage returns the index of the current stage in [planner.Plan.Stages], or their number if all are
// complete.
func (r *progress) Stage() int { return r.stage }

// IsStopping reports whether an operator wants to undo and end the run.
func (r *progress) IsStopping() bool { return r.stopping != "" }

// Multiplies reports whether the run has started others in its pipeline's loop.
func (w *whole) Multiplies() bool { return w.extent.looped > 0 }

// CauseRetry is the suffix of the cause of a run that waits to retry a handler. The path of the
// handler comes before it. The run continues without the handler when fallback turns it off.
const CauseRetry = " retry"
