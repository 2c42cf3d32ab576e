package core

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file runs pipelines that handlers call. The called pipeline is a run inside the run. Its
// records are part of the checkpoint, and its tasks are tasks of the outer run.

// advanceCall advances the run inside a call. It begins the call if needed.
func (r *Run) advanceCall(tasks []Attempt, u unit, live Live) []Attempt {
	if u.rec.sub == nil && !r.enterCall(u, live) {
		return tasks
	}
	// Tasks inside the call count for this run, too, so that neither ends nor gives up while one of
	// them is in flight.
	sub := u.rec.sub
	before := sub.underway
	ready := sub.Ready(live)
	r.underway += sub.underway - before
	if sub.status.Ended() {
		r.leaveCall(u, live)
	}
	return append(tasks, ready...)
}

// enterCall begins a call. It returns false if the call may not begin now, or if the handler is
// decided instead.
func (r *Run) enterCall(u unit, live Live) bool {
	rec := u.rec
	if u.Loops {
		if !r.hasRoom(u, live) { // the guard is asked about the calls inside; memory is needed now
			return false
		}
		rec.sub = r.inside(u)
		r.whole.dirty = true
	} else {
		if !r.inTime(u, live) || !r.admitted(u, live) {
			return false
		}
		inputs, raw, err := inputsOf(u, r.scope.envOf(u, live))
		if err == nil && u.item == 0 {
			err = r.whole.extent.spread(1, u.Callee)
		}
		if err == nil {
			err = r.whole.extent.grow(runWeight + dataWeight(raw))
		}
		if err != nil {
			r.giveUpUnit(u, err, live)
			return false
		}
		rec.sub = r.inside(u)
		rec.sub.scope.origin, rec.sub.rawInputs = inputs, raw
		r.touch() // or a restarted call might have other inputs
	}
	rec.attempts = 1 // a call is not retried; its handlers are
	if rec.started.IsZero() {
		rec.started = model.Stamp(live.Now)
	}
	rec.sub.begins(model.Stamp(live.Now))
	return true
}

// inside makes the run inside a call, or the run of one element of a repeated stage.
func (r *Run) inside(u unit) *Run {
	sub := newRun(u.Callee, Start{ID: r.start.ID, Event: r.start.Event, Flow: r.start.Flow, Key: r.start.Key}, r.whole)
	sub.caller, sub.calledBy = r, u
	sub.within = r.within + u.ref() + model.IntoCall
	sub.scope.root = "inputs"
	if u.Loops {
		sub.scope.outer, sub.scope.at = &r.scope, u
	}
	return sub
}

// inputsOf evaluates the inputs of a call. They are kept until the call ends, so they have the size
// bound of the shared state.
func inputsOf(u unit, env datum.Env) (map[string]any, json.RawMessage, error) {
	p := u.Callee.Pipeline
	inputs := p.InputDefaults()
	given, err := u.Handler.Call.With.Share(env)
	if err != nil {
		return nil, nil, err
	}
	if given, ok := given.(map[string]any); ok {
		maps.Copy(inputs, given)
	}
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		if err := p.InputContract(name).Check(inputs[name]); err != nil {
			return nil, nil, err
		}
	}
	raw, err := model.EncodeData(inputs)
	if err != nil {
		return nil, nil, fmt.Errorf("call: with: %w", err)
	}
	if limit := int(p.MaxState); len(raw) > limit {
		return nil, nil, fmt.Errorf("call: the inputs are %d bytes, which have to be kept, and max-state of %s is %d", len(raw), p.ID, limit)
	}
	return inputs, raw, nil
}

// leaveCall decides a unit by the end of its call. The error has the class of the error that failed
// the called pipeline.
func (r *Run) leaveCall(u unit, live Live) {
	rec, sub := u.rec, u.rec.sub
	rec.trail = sub.trail()
	if u.Loops && sub.status == model.Succeeded {
		u.foldTrail()
	}
	if sub.status != model.Succeeded {
		rec.failures = 1
		_, failure, class := sub.gaveUp()
		err := model.Permanent(&model.KeptError{Text: failure, Class: class, Failures: 1})
		rec.err = model.CleanText(err.Error())
		if u.item > 0 {
			r.settleItem(u, err, live)
			return
		}
		r.settle(u.Step, err, live)
		return
	}
	outputs, err := sub.scope.outputs(live)
	if err == nil {
		rec.raw, err = r.encode(u, outputs, false)
	}
	if err != nil {
		r.giveUpUnit(u, err, live)
		return
	}
	rec.response = outputs
	r.succeeded(u, live)
}

// finishIn records the outcome of a task inside a call.
func (r *Run) finishIn(u unit, ref string, o Outcome, live Live) {
	sub := u.rec.sub
	before := sub.underway
	sub.Finish(ref, o, live)
	if sub.underway == before {
		return // it was not in flight there, so nothing has changed
	}
	r.underway--
	r.settled = false
	r.touch()
	if r.undoing && r.closing == "" {
		return // the call has been given up: its end decides nothing more, and Ready goes on to undo
	}
	if sub.status.Ended() {
		r.leaveCall(u, live)
	}
	if u.item > 0 {
		r.finishItems(u.Step, live)
	}
	r.advance(live)
}

// withdrawIn withdraws a task inside a call.
func (r *Run) withdrawIn(u unit, ref string, now time.Time) {
	sub := u.rec.sub
	before := sub.underway
	sub.Withdraw(ref, now)
	if sub.underway == before {
		return
	}
	r.underway--
	r.settled = false
	r.touch()
}

// StepOf returns the handler of a view, also one inside a call, or nil.
func StepOf(p *planner.Plan, h checkpoint.HandlerView) *planner.Step {
	plan := p
	for head := range strings.SplitSeq(h.Within, model.IntoCall) {
		if head == "" {
			continue
		}
		s := plan.ByPath[model.PathOf(head)]
		if s == nil || s.Callee == nil {
			return nil
		}
		plan = s.Callee
	}
	if s := plan.ByPath[strings.TrimSuffix(h.Path, model.UndoPath)]; s != nil && s.Undo != nil && s.Undo.Path == h.Path {
		return s.Undo
	}
	return plan.ByPath[h.Path]
}
