package core

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file answers what people, the driver and decisions ask about a run.

// beginsAt notes when the run begins, once.
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

// open returns the handlers that may begin or go on: those of the present stage, and those of
// earlier ones that are detached and not decided.
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

// unit returns the handler as what makes calls.
func (r *progress) unit(s *planner.Step) unit { return unitOf(s, &r.records[s.Position]) }

// find returns the unit of a ref; ok is false when there is none.
func (r *progress) find(ref string) (u unit, ok bool) {
	path, index, isItem := strings.Cut(ref, "[")
	s := r.plan.ByPath[path]
	if s == nil {
		if s = r.plan.ByPath[strings.TrimSuffix(path, model.UndoPath)]; s != nil && s.Undo != nil && r.records[s.Position].undo != nil {
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

// itemOf returns the i-th item of a handler, from 0, as what makes calls.
func (r *progress) itemOf(s *planner.Step, i int) unit {
	rec := &r.records[s.Position]
	return unit{Step: s, rec: &rec.each.of[i], item: i + 1, of: rec}
}

// called finds the call that a ref leads into, and the rest of the ref; ok is false when
// the call does not go on.
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

// Cause names what the run waits for besides a time. Without it, nobody calls the run
// up when that is over.
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
		causes = append(causes, retry) // one is enough: runs must not name each set of handlers that there is
	}
	return strings.Join(causes, ",")
}

// Next returns when Ready will have something new without a Finish: the earliest
// retry, wait or hold. Zero when there is none, and when the run stands still
// until an operator has decided about a handler with [model.OutcomeUnknown].
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
		return time.Time{} // only an operator can tell; the others of the stage go on with that
	}
	return next
}

// nextOf returns when there is something to do for a unit without the end of a task, which is at its
// deadline at the latest; zero for never.
func (r *progress) nextOf(u unit) time.Time {
	due := u.rec.next()
	if l := limitOf(r, u); !due.IsZero() && l.cuts(due) {
		return l.at
	}
	return due
}

// StageTimes returns when the first handler of a stage began and the last one was
// decided; false when none has been.
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

// Stuck returns at which handler the run stands still until an operator decides,
// and why.
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

// Plan returns the plan that the run goes by.
func (r *progress) Plan() *planner.Plan { return r.plan }

// Began returns when the run began; zero before its first [Run.Ready].
func (r *progress) Began() time.Time { return r.began }

// Stage returns the index of the stage that is under way in [planner.Plan.Stages], or their number when
// all are complete.
func (r *progress) Stage() int { return r.stage }

// IsStopping reports whether an operator wants the run undone and ended.
func (r *progress) IsStopping() bool { return r.stopping != "" }

// Multiplies reports whether the run has started others in the loop that its pipeline is part of.
func (w *whole) Multiplies() bool { return w.extent.looped > 0 }

// CauseRetry ends the cause of a run that waits to repeat the call of a handler,
// whose path comes before. It continues without the handler when that is taken out.
const CauseRetry = " retry"
