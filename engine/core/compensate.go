package core

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file undoes what a run has done when it gives up for good.

// Stop lets an operator end a run that has something to undo: it starts nothing more,
// undoes what it has done as soon as nothing is under way, and is cancelled then. A run
// that has ended, other than by failing, stays as it is.
func (r *Run) Stop(reason string, now time.Time) {
	if r.status.Ended() && r.status != model.Failed || r.stopping != "" {
		return
	}
	r.beginsAt(now)
	r.stopping, r.settled = cmp.Or(model.CleanText(reason), model.CancelReason), false
	if r.status == model.Failed && !r.undoing {
		r.status = model.Running
	}
	r.touch()
}

// givesUp tells whether the run starts nothing more, but to undo.
func (r *progress) givesUp() bool { return r.failedPath != "" || r.stopping != "" }

// lost tells whether nobody knows how the last call of a handler ended that can be
// undone. It is made once more, with the same key, though the run gives up: what it has
// done has to be known, to be undone.
func (r *record) lost(s *planner.Step) bool {
	return s.Undo != nil && s.Callee == nil && s.Handler.ForEach == nil && r.inFlight()
}

// firstLost finds a handler of the present stage that is lost; nil when there is none.
func (r *progress) firstLost() *planner.Step {
	if r.stage == len(r.plan.Stages) {
		return nil
	}
	for _, s := range r.plan.Stages[r.stage].Steps {
		if r.records[s.Position].lost(s) {
			return s
		}
	}
	return nil
}

// surrender ends a run that gives up and of which nothing is under way any more, unless
// something has to be undone first. When a call has failed that could not undo its own,
// that comes first, and an operator is needed for it.
func (r *Run) surrender() {
	switch {
	case r.undoing:
	case r.hasToUndo():
		r.undoing, r.settled = true, false
		r.touch()
		if r.brokenUndo() != nil {
			r.end(model.Failed)
		}
	case r.stopping != "":
		r.reason = r.stopping
		r.end(model.Cancelled)
	default:
		r.end(model.Failed)
	}
}

// toUndo finds the handler to undo next: the last one that has succeeded; nil when there
// is none.
func (r *progress) toUndo() *planner.Step {
	var last *planner.Step
	for i, s := range r.plan.Steps {
		rec := &r.records[i]
		if s.Undo == nil || rec.outcome != model.OutcomeSucceeded || strings.HasPrefix(rec.reason, goneOn) || rec.undo != nil &&
			rec.undo.decided() {
			continue
		}
		// Several have no place when they came to have a compensation after they had
		// succeeded, by a newer definition. Of these, the last declared one is the first.
		if last == nil || rec.done >= r.records[last.Position].done {
			last = s
		}
	}
	return last
}

// hasToUndo tells whether anything is to be undone, or to be found out for that, when the
// run gives up.
func (r *progress) hasToUndo() bool {
	return r.plan.Undoes && (r.undoing || r.toUndo() != nil || r.firstLost() != nil || r.openCall() != nil)
}

// openCall finds the last call of a pipeline that has not come to an end, and has
// something to undo; nil when there is none.
func (r *progress) openCall() *Run {
	var open *Run
	for i, s := range r.plan.Steps {
		if s.Callee == nil || !s.Callee.Undoes {
			continue
		}
		for sub := range r.records[i].calls() {
			if !sub.status.Ended() && sub.hasToUndo() {
				open = sub
			}
		}
	}
	return open
}

// undo starts the next compensation, when the time for it has come. What goes on inside
// of calls is given up and undone before.
func (r *Run) undo(tasks []Attempt, live Live) []Attempt {
	if r.underway == 0 && r.brokenUndo() != nil {
		r.end(model.Failed) // inside of a call
		return tasks
	}
	for sub := r.openCall(); sub != nil; sub = r.openCall() {
		if sub.failedPath == "" {
			sub.failedPath, sub.failure, sub.class = r.failedPath, r.failure, r.class
		}
		sub.stopping = r.stopping
		// In there, too, only what is lost is called again, and then what has been done is undone.
		before := sub.underway
		ready := sub.Ready(live)
		r.underway += sub.underway - before
		r.touch()
		tasks = append(tasks, ready...)
		if !sub.status.Ended() {
			return tasks
		}
		if sub.brokenUndo() != nil {
			r.end(model.Failed)
			return tasks
		}
	}
	// One after the other: a compensation may rely on what was done before its handler.
	for r.underway == 0 && !r.status.Ended() {
		s := r.toUndo()
		if s == nil {
			r.reason = cmp.Or(r.stopping, model.CleanText("undone after "+r.failure))
			r.end(model.Cancelled)
			break
		}
		rec := &r.records[s.Position]
		if rec.undo == nil {
			rec.undo = &record{}
			r.touch()
		}
		if rec.undo.due.After(live.Now) {
			break
		}
		t, ok := r.undoCall(unitOf(s.Undo, rec.undo), live)
		if ok {
			return append(tasks, t)
		}
		if !rec.undo.decided() {
			break // it is held
		}
	}
	return tasks
}

// undoCall makes the task of a compensation.
func (r *Run) undoCall(u unit, live Live) (Attempt, bool) {
	if !r.admitted(u, live) {
		return Attempt{}, false
	}
	rec := u.rec
	body, err := u.Handler.Body.Eval(r.scope.env(live))
	if err != nil {
		r.undoFails(u, err, live)
		return Attempt{}, false
	}
	rec.attempts++
	r.extent.starts(u)
	r.touch()
	key := idempotencyKey(r.start.identity(), r.keyed(u.Path), 0)
	return r.launch(u, Attempt{Type: u.Type, Body: body, IdempotencyKey: key}, live), true
}

// undone takes how an attempt of a compensation ended.
func (r *decisions) undone(u unit, o Outcome, live Live) {
	rec, err := u.rec, o.Err
	if err == nil && !o.Result.Until.IsZero() {
		err = model.Permanent(errors.New("want a call that undoes something, have a wait"))
	}
	var events []model.Event
	if err == nil {
		events, err = r.completeAll(u, o.Result.Emit, live)
	}
	switch {
	case err == nil:
		rec.outcome, rec.err, rec.reason = model.OutcomeSucceeded, "", ""
		r.emit(rec, events)
		r.closeUndo(u, live)
	case !r.repeats(u, err, o.Probe, live):
		r.undoFails(u, err, live)
	}
}

// undoFails fails the run at a compensation. An operator's retry goes on with it.
func (r *decisions) undoFails(u unit, err error, live Live) {
	u.rec.outcome, u.rec.err, u.rec.class = model.OutcomeFailed, model.CleanText(err.Error()), model.ClassOf(err)
	r.closeUndo(u, live)
	r.end(model.Failed)
}

func (r *decisions) closeUndo(u unit, live Live) {
	u.rec.finished, u.rec.due = model.Stamp(live.Now), time.Time{}
	r.touch()
	ended := u.rec.save(u.Path).View()
	ended.Within = strings.TrimSuffix(r.within, model.IntoCall)
	r.ended = append(r.ended, ended)
}

// A brokenUndo is a compensation that has failed for good.
type brokenUndo struct{ path, err, class string }

// brokenUndo finds the compensation that the run has failed with; nil when there is none.
func (r *progress) brokenUndo() *brokenUndo {
	for i, s := range r.plan.Steps {
		rec := &r.records[i]
		if rec.undo != nil && rec.undo.outcome == model.OutcomeFailed {
			return &brokenUndo{s.Undo.Path, rec.undo.err, rec.undo.class}
		}
		for sub := range rec.calls() {
			if inside := sub.brokenUndo(); inside != nil {
				return inside
			}
		}
	}
	return nil
}

// failed tells where and why a run has given up that has ended without success.
func (r *progress) gaveUp() (path, failure, class string) {
	if broken := r.brokenUndo(); broken != nil && r.undoing {
		what := broken.path + ": " + broken.err
		if strings.Contains(r.failure, what) {
			return broken.path, r.failure, broken.class // of a call that could not undo its own
		}
		after := cmp.Or(r.failure, "the run was cancelled: "+r.stopping)
		return broken.path, model.CleanText(fmt.Sprintf("%s; it was to be undone after %s", what, after)), broken.class
	}
	return r.failedPath, r.failure, r.class
}

// waitsToUndo tells when a compensation is to be made again, and what it waits for besides
// that time; zero when none waits.
func (r *progress) waitsToUndo() (due time.Time, cause string) {
	if sub := r.openCall(); sub != nil {
		return sub.Next(), sub.Cause()
	}
	if s := r.toUndo(); s != nil {
		if rec := r.records[s.Position].undo; rec != nil {
			return rec.next(), rec.cause
		}
	}
	return time.Time{}, ""
}

// redriveUndo lets the compensations be made again that have failed.
func (r *Run) redriveUndo() {
	r.status, r.undoing = model.Running, true
	r.touch()
	for i := range r.records {
		rec := &r.records[i]
		if rec.undo != nil && rec.undo.outcome == model.OutcomeFailed {
			rec.undo = &record{}
		}
		for sub := range rec.calls() {
			if sub.brokenUndo() != nil {
				sub.redriveUndo()
			}
		}
	}
}

// forgetUndone notes what a run inside of a call has undone, which is to be done again: a
// call that was reversed must not be taken for a repetition of itself.
func (r *progress) forgetUndone() {
	for i, s := range r.plan.Steps {
		rec := &r.records[i]
		if rec.undo != nil && rec.undo.outcome == model.OutcomeSucceeded {
			r.redone[r.within+s.Path]++
		}
		for sub := range rec.calls() {
			sub.forgetUndone()
		}
	}
}

// undoneBefore lists what was undone, to be done again, as often as it was.
func (r *progress) undoneBefore() (refs []string) {
	for _, ref := range slices.Sorted(maps.Keys(r.redone)) {
		refs = append(refs, slices.Repeat([]string{ref}, r.redone[ref])...)
	}
	return refs
}

// keyed gives what makes the keys of a handler's calls different from those of others: its
// ref, with the number of times that it, or a call that it is inside of, was undone before.
func (r *progress) keyed(ref string) string {
	ref = r.within + ref
	if len(r.redone) == 0 {
		return ref
	}
	var b strings.Builder
	for end, rest := 0, ref; rest != ""; {
		part, after, inside := strings.Cut(rest, model.IntoCall)
		b.WriteString(part)
		end += len(part)
		path, _, _ := strings.Cut(strings.TrimSuffix(part, model.UndoPath), "[")
		if n := r.redone[ref[:end-len(part)]+path]; n > 0 {
			fmt.Fprintf(&b, "~%d", n)
		}
		if inside {
			b.WriteString(model.IntoCall)
			end += len(model.IntoCall)
		}
		rest = after
	}
	return b.String()
}
