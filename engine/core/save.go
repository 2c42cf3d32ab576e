package core

import (
	"strings"

	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file says what has changed since a run was last saved, and whether that must be durable
// before the next calls start.
//
// A change that a crash may forget need not be saved at once: the run that is resumed decides the
// same again, with the same keys. What could be decided differently, or could not be known any
// more, must be durable before a call depends on it.

// touch notes a change that must survive a crash.
func (r *Run) touch() { r.whole.dirty, r.whole.must = true, true }

// touchItem notes the outcome of an attempt of a unit. Elements do not depend on each other. So the outcome of one may
// be saved with those of others, unless a second call could differ from the first one, or has to be verified.
func (r *Run) touchItem(u unit) {
	if u.item == 0 || u.Callee != nil || u.Volatile || u.keepsAttempts() {
		r.touch()
	}
	r.whole.dirty, r.whole.costly = true, true
}

// Dirty reports whether anything has changed since the last Change.
func (r *Run) Dirty() bool { return r.whole.dirty }

// MustSave reports whether the change since the last Change must be durable BEFORE the tasks from
// Ready start. It is false if nothing has changed, or if attempts started and nothing else
// happened: after a crash the run starts them again with the same keys. It is true if such an
// attempt has an on-unknown or a compensation, because the run must know of an attempt to verify or
// undo it. It is also true if live settings or the time helped to start an attempt, because it
// might not start again.
func (r *Run) MustSave() bool { return r.whole.must }

// Costs reports whether a crash now would repeat calls of elements that have ended since the last Change. Saving each
// outcome at once would write the outcomes of all elements as often as there are elements.
func (r *Run) Costs() bool { return r.whole.costly }

// TakeEmits returns the events to accept with the next change, once. Their ids are derived from the
// run and the handler's path, so a repeated notice is recognized.
func (r *Run) TakeEmits() []model.Event {
	out := r.whole.emits
	r.whole.emits = nil
	return out
}

// TakeEnded returns the handlers that were decided since the last call, in order, for logs and
// metrics.
func (r *Run) TakeEnded() []checkpoint.HandlerView {
	out := r.whole.ended
	r.whole.ended = nil
	return out
}

// emit adds the events of a handler to the next change.
func (r *Run) emit(rec *record, events []model.Event) {
	for _, e := range events {
		rec.emitted = append(rec.emitted, e.ID)
	}
	r.whole.emits = append(r.whole.emits, events...)
	r.whole.must = r.whole.must || len(events) > 0
}

// Change returns the data to save BEFORE the tasks from Ready start: the checkpoint, the status, and the values of an
// ended run. The caller must add Version and Emit: see [Run.TakeEmits].
func (r *Run) Change() model.Change {
	r.whole.dirty, r.whole.must, r.whole.costly = false, false, false
	c := model.Change{
		Run: r.start.ID, Pipeline: r.plan.Pipeline.ID, Bundle: r.plan.Bundle.Hash,
		Status: r.Status(), Checkpoint: r.Checkpoint(), Reason: r.reason,
	}
	c.Progress, r.whole.further = r.whole.further, false
	c.Take, r.whole.taken = r.whole.taken, nil
	switch c.Status {
	case model.Parked:
		if a, ok := r.Awaits(); ok {
			c.Awaits, c.Heard = a.Types, a.Heard
		}
		c.Due, c.Cause = r.Next(), r.Cause()
	case model.Failed, model.Cancelled:
		c.FailedPath, c.Error, c.ErrorClass = r.gaveUp()
	case model.Succeeded:
		c.LeftOut = r.leftOut()
		if r.makesUp != "" {
			break // later events of the key have continued from the state that it left
		}
		c.State, _ = planner.Transition(r.plan.Flow, r.start.State, r.start.Event.Type)
		c.Shared = r.scope.kept()
	}
	return c
}

// tell adds a notice for people about a handler.
func (r *Run) tell(u unit) {
	rec := u.rec
	ended := checkpoint.Record{
		Path: u.Path, Outcome: rec.outcome, Attempts: rec.attempts, Started: rec.started, Finished: rec.finished, Due: rec.due,
		Error: rec.err, Reason: rec.reason, Each: rec.each.save(),
	}.View()
	ended.Within = strings.TrimSuffix(r.within, model.IntoCall)
	r.whole.ended = append(r.whole.ended, ended)
}
