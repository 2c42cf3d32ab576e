package core

import (
	"encoding/json"
	"fmt"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file begins runs, returns what may start, and takes the outcomes.

// Begin starts a run at its first stage.
func Begin(p *planner.Plan, s Start) *Run {
	r := newRun(p, s, nil)
	r.dirty, r.must = true, p.Contested
	return r
}

// newRun makes a run. in is the run around it, or nil.
func newRun(p *planner.Plan, s Start, in *whole) *Run {
	r := &Run{}
	r.plan = p
	r.start = s
	r.status = model.Running
	r.whole = in
	r.records = make([]record, len(p.Steps))
	r.scope = scope{
		plan:    p,
		shared:  make(map[string]any, len(p.Shared)),
		sources: make(map[string]any, len(p.Steps)),
		raw:     make(map[string]json.RawMessage, len(p.Shared)),
		wrote:   map[string]bool{},
		roots:   datum.Env{},
	}
	if in == nil {
		most := holdMost + 4*int(p.Pipeline.MaxState)
		if s.Most > 0 {
			most = min(most, s.Most)
		}
		event := datum.Size(s.Event.Payload)
		r.whole = &whole{redone: redone{}, extent: extent{all: r, most: most, event: event, weighed: event}}
		r.scope.root, r.scope.origin = "event", model.EventData(s.Event)
		r.scope.flow = map[string]any{"id": s.Flow, "key": s.Key, "state": planner.StateOf(p.Flow, s.State)}
	}
	r.scope.extent = &r.extent
	for _, n := range p.Shared {
		r.scope.shared[n.Name], r.scope.raw[n.Name] = n.Value, n.Raw
		value, ok := s.Shared[n.Name]
		if !ok || !n.Kept {
			continue
		}
		raw, err := model.EncodeData(value)
		if err != nil {
			r.failure = fmt.Sprintf("shared state %s of %s %s: %v", n.Name, s.Flow, s.Key, err)
			r.end(model.Failed)
			continue
		}
		r.scope.shared[n.Name], r.scope.raw[n.Name] = value, raw
	}
	return r
}

// Ready returns the tasks of the present stage that may start now, in parallel. It returns each task once. It also
// decides about skipped handlers and ended waits, so the run may have ended afterwards: check [Run.Status].
//
// Ready evaluates the body of a handler at its first attempt, and keeps it for all attempts in this process. After a
// resume it evaluates the body again, with the same result unless configs have changed. It does not evaluate enabled
// again after the first attempt.
func (r *Run) Ready(live Live) (tasks []Attempt) {
	if r.within == "" && r.start.Record && r.began.IsZero() {
		r.recording.RunRecording = checkpoint.NewRecording(live.Configs, r.start.Shared)
	}
	r.beginsAt(live.Now)
	if r.within == "" {
		r.extent.flying = r.underway
		defer func() { bound(&r.decisions, tasks, live) }()
	}
	// A stage whose handlers are all decided without a call, such as skipped ones, leads on
	// to the next at once.
	for moved := true; moved; {
		r.advance(live)
		if r.status.Ended() {
			break
		}
		startClocks(&r.progress, live.Now)
		r.enter(live)
		for _, s := range r.open() {
			if r.givesUp() && !r.records[s.Position].lost(s) {
				continue // what has not begun does not begin
			}
			tasks = r.begin(tasks, s, live)
		}
		moved = r.advance(live)
	}
	if r.undoing && !r.status.Ended() {
		tasks = r.undo(tasks, live)
	}
	r.settled = true
	return tasks
}

// advance moves to the first stage that is not complete. It ends the run if there is none, or if
// the run has failed and no task is in flight. It reports whether there is a new stage to look at.
func (r *Run) advance(live Live) (moved bool) {
	if r.status.Ended() {
		return false
	}
	if r.givesUp() {
		if r.underway == 0 && (r.undoing || r.firstLost() == nil) {
			r.surrender()
		}
		return false
	}
	for r.stage < len(r.plan.Stages) {
		for _, s := range r.plan.Stages[r.stage].Steps {
			if !r.records[s.Position].decided() && !s.Handler.Detached {
				return moved
			}
		}
		r.stage++
		r.stageClock = time.Time{}
		r.touch()
		moved = true
	}
	if len(r.open()) > 0 {
		return moved
	}
	if err := r.answer(live); err != nil {
		r.failedPath, r.class = r.plan.Pipeline.ID, model.ClassOf(err)
		r.failure = model.CleanText(fmt.Sprintf("%s: outputs: %v", r.failedPath, err))
		r.surrender()
		return false
	}
	r.end(model.Succeeded)
	return false
}

func (r *decisions) end(s model.Status) {
	r.status = s
	r.touch()
}

// Finish records the outcome of the task with an [Attempt.Ref]. It ignores tasks that are not in flight, because the
// run may have been cancelled.
func (r *Run) Finish(ref string, o Outcome, live Live) {
	u, rest, inside, ok := r.called(ref)
	if ok && inside && !r.status.Ended() {
		r.finishIn(u, rest, o, live)
		return
	}
	if !ok || !u.rec.underway || r.status.Ended() {
		return
	}
	rec := u.rec
	r.recording.ends(r.within+u.ref(), u, o, live)
	rec.underway = false
	r.underway--
	r.extent.flying--
	r.further = true
	r.settled = false
	r.touchItem(u) // forgetting an outcome in a crash would repeat the call
	if u.Undoes {
		r.undone(u, o, live)
	} else if rec.asking {
		r.answered(u, o, live)
	} else {
		r.attempted(u, o, live)
	}
	if u.item > 0 {
		r.finishItems(u.Step, live)
	}
	r.advance(live)
}

// attempted handles the end of an attempt.
func (r *decisions) attempted(u unit, o Outcome, live Live) {
	events, err := r.take(u, o, live)
	switch {
	case err != nil:
		r.failed(u, err, o.Probe, live)
	case u.rec.outcome != model.OutcomeWaiting:
		r.succeeded(u, live)
	}
	if u.rec.outcome != model.OutcomeFailed { // its result may have failed to compute: then nothing of it counts
		r.emit(u.rec, events)
	}
}

// Cancel ends the run and forgets its tasks in flight. It does not change a run that has ended.
func (r *Run) Cancel(reason string, now time.Time) {
	if r.status.Ended() {
		return
	}
	r.beginsAt(now)
	r.reason = reason
	r.end(model.Cancelled)
}

// Status returns the status of the run. Running means that tasks are in flight or that the caller must ask Ready.
// Parked means that the run only waits for a time or an operator.
func (r *Run) Status() model.Status {
	if r.status == model.Running && r.settled && r.underway == 0 {
		return model.Parked
	}
	return r.status
}

// Withdraw records that a task from Ready does not start, so that Ready decides about it again.
func (r *Run) Withdraw(ref string, now time.Time) {
	u, rest, inside, ok := r.called(ref)
	if ok && inside {
		r.withdrawIn(u, rest, now)
		return
	}
	if !ok || !u.rec.underway {
		return
	}
	rec := u.rec
	if !rec.asking {
		// Ready counted it. A verification has the number of the attempt that it verifies.
		rec.attempts--
	}
	rec.underway, rec.asking = false, false
	if rec.attempts > 0 && !rec.blind {
		rec.due = model.Stamp(now) // or it would look like an attempt with an unknown outcome
	}
	r.underway--
	r.extent.flying--
	r.settled = false
	r.touch()
}

// Change returns the data to save BEFORE the tasks from Ready start: the checkpoint, the status, and the values of an
// ended run. The caller must add Version and Emit: see [Run.TakeEmits].
func (r *Run) Change() model.Change {
	r.dirty, r.must, r.costly = false, false, false
	c := model.Change{
		Run: r.start.ID, Pipeline: r.plan.Pipeline.ID, Bundle: r.plan.Bundle.Hash,
		Status: r.Status(), Checkpoint: r.Checkpoint(), Reason: r.reason,
	}
	c.Progress, r.further = r.further, false
	c.Take, r.taken = r.taken, nil
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
