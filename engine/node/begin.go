package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/engine/clock"
	"procaas/engine/core"
	"procaas/engine/definitions"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/records"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// This file gets a run ready to continue: its definition, its pipeline and its checkpoint. A run that
// is not ready is over, waits, or is lost: then the store knows it, and this node lets go of it.

// begin prepares the run, with the definition it began with, or with the current one and the
// pipeline that serves its event. It returns false if the run is over, waits, or is lost.
func (j *job) begin() bool {
	c := j.claimed
	if c.Cancelled {
		j.close(model.Change{Status: model.Cancelled, Reason: model.CancelReason, Bundle: c.Bundle, Checkpoint: c.Checkpoint})
		return false
	}
	if c.Damage != nil {
		return j.setAside(c.Damage)
	}
	if !j.admit() {
		return false
	}
	if !j.load() {
		return false
	}
	def, err := j.definition()
	if err != nil {
		switch {
		case errors.Is(err, definitions.ErrMissing):
			return j.setAside(store.DamagedRun(c.ID, "the column runs.bundle", err))
		case errors.Is(err, definitions.ErrUnusable):
			j.fail("", err)
		}
		return false
	}
	j.def = def
	j.observe()
	start, err := j.startValues()
	start.Record = j.n.records(c.ID) || j.n.d.Library.Shadow().Shadows(c.ID)
	if errors.Is(err, store.ErrDamaged) {
		return j.setAside(err)
	}
	if err != nil {
		j.fail("", err)
		return false
	}
	if reason := j.stopping.Load(); reason != nil && len(c.Checkpoint) == 0 {
		// There is nothing to undo, because a handler that can be undone is saved before its call.
		j.close(model.Change{Status: model.Cancelled, Reason: *reason})
		return false
	}
	if len(c.Checkpoint) == 0 {
		plan, ok := j.choose()
		return ok && j.startAt(plan, start)
	}
	plan := def.ByID[c.Pipeline]
	if plan == nil {
		j.fail("", fmt.Errorf("pipeline %s is not in definition %s", c.Pipeline, c.Bundle))
		return false
	}
	j.share(plan.Pipeline)
	if j.run, err = core.Resume(plan, start, c.Checkpoint); err != nil {
		if errors.Is(err, core.ErrUnreadable) {
			return j.setAside(store.DamagedRun(c.ID, "the checkpoint", err))
		}
		j.fail("", fmt.Errorf("resume: %w", err))
		return false
	}
	j.trace.Resume(j.run.Stage())
	j.complete = j.run.Stage()
	return true
}

// setAside fails a run whose data in the store is damaged. It returns false.
func (j *job) setAside(damage error) bool {
	j.n.d.Metrics.Damaged.Inc()
	j.at("").Error("run is set aside, since its data in the store is damaged", "error", damage)
	j.failAs("", damage, model.ClassDamaged)
	return false
}

// startAt begins the run, or repeats another one from a stage. The definition may have changed since
// the order to repeat.
func (j *job) startAt(plan *planner.Plan, s core.Start) (ok bool) {
	j.share(plan.Pipeline)
	from := j.claimed.Event.Start
	err := records.FitsStart(plan, j.claimed)
	if err == nil {
		j.run, err = core.Resume(plan, s, from)
	}
	if err != nil {
		j.fail(plan.Pipeline.ID, fmt.Errorf("rerun of %s from stage %s: %w", j.claimed.Event.Rerun.Of, j.claimed.Event.Rerun.Stage, err))
		return false
	}
	j.complete = j.run.Stage()
	return true
}

// share says what the run has its share of handlers and services from.
func (j *job) share(p *tree.Pipeline) {
	j.pass.Lane, j.pass.Weight = model.LaneOf(p.Owner, p.ID, &j.claimed.Event), p.Weight
}

// observe watches the run for the trial of a new version, if it counts for one.
func (j *job) observe() {
	if t := j.n.d.Library.Trial(); t != nil && j.claimed.Generation == 0 {
		c := j.claimed
		j.watch = j.n.d.book.Watch(t, j.def.Bundle.Hash, c.Flow, c.Key, c.ID, c.Accepted, len(c.Checkpoint) > 0, j.n.d.Clock.Now())
	}
}

// admit decides about a run that is suspected of killing its nodes. It returns true if the run is
// not suspected, or may be tried now. Otherwise the run waits or is quarantined.
func (j *job) admit() bool {
	c := j.claimed
	change := model.Change{Run: c.ID, Version: j.version, Bundle: c.Bundle, Pipeline: c.Pipeline, Checkpoint: c.Checkpoint}
	switch {
	case !model.Suspected(c.Losses):
		return true
	case c.Losses >= maxLosses:
		change.Status, change.Undoing, change.ErrorClass = model.Parked, true, model.ClassQuarantined
		change.Error = fmt.Sprintf("quarantined: %d nodes in a row died while they had this run, before it got any further, "+
			"and at the last two it was the only one that was suspected; find out what it does there, then retry or cancel it", c.Losses)
		if j.close(change) {
			j.n.d.Metrics.Quarantined.Inc()
			j.at("").Error("run is quarantined", "losses", c.Losses)
		}
		return false
	case !j.n.suspects.try(c.ID, c.Losses):
		change.Status, change.Due = model.Parked, j.n.d.Clock.Now().Add(time.Second+guard.SuspectDelay(c.Losses, maxLosses))
		j.close(change)
		return false
	}
	j.at("").Warn("run is tried by itself: nodes have died while they had it", "losses", c.Losses)
	change.Status, change.Trial = model.Running, true
	return j.close(change)
}

// definition returns the definition that the run continues with. It waits while the store cannot be
// read.
func (j *job) definition() (*definitions.Definition, error) {
	library := j.n.d.Library
	if present := library.Present(); j.claimed.Bundle == "" || j.claimed.Bundle == present.Bundle.Hash {
		return present, nil
	}
	backoff := 10 * time.Millisecond
	for {
		ctx, cancel := context.WithTimeout(j.n.ctx, clock.StoreTimeout)
		d, err := library.Get(ctx, j.claimed.Bundle)
		begins := len(j.claimed.Checkpoint) == 0
		if err == nil && begins {
			err = j.n.d.Follower.Meet(ctx, j.claimed.Bundle)
		}
		cancel()
		switch {
		case begins && errors.Is(err, definitions.ErrUnusable):
			d = library.Present() // this program does not know the version of new runs, and uses its own
			j.claimed.Bundle = d.Bundle.Hash
			return d, nil
		case err == nil || errors.Is(err, definitions.ErrUnusable):
			return d, err
		}
		j.at("").Warn("definition cannot be read, trying again", "error", err)
		if !clock.Pause(j.n.calls, backoff) || j.n.isDraining() {
			return nil, err
		}
		backoff = min(2*backoff, clock.MaxBackoff)
	}
}

// choose returns the pipeline that serves the event. If there is none, it ends the run or sets it
// aside, and ok is false.
func (j *job) choose() (plan *planner.Plan, ok bool) {
	c := j.claimed
	if age := j.def.Keeps(c.Flow, c.Event.Type); age > 0 {
		j.keep(age)
		return nil, false
	}
	flow := j.def.Bundle.Flow(c.Flow)
	if _, ok := planner.Transition(flow, c.Entity.State, c.Event.Type); !ok {
		j.refuse(flow)
		return nil, false
	}
	plan, candidates, err := j.def.Choose(definitions.Arrival{
		Event: c.Event, Flow: c.Flow, Key: c.Key, State: c.Entity.State, Configs: j.n.d.Settings.ValuesFor(j.def),
	})
	if err != nil {
		c.Bundle = "" // it has not begun: a retry may use a corrected definition
		j.fail(plan.Pipeline.ID, err)
		return nil, false
	}
	if plan != nil {
		return plan, true
	}
	if tried := j.n.d.Library.Tried(); candidates == 0 && tried != nil && tried != j.def && tried.Serves(c.Flow, c.Event.Type) {
		j.def, j.watch = tried, nil // events of a run with the new version may be served only by that version
		return j.choose()
	}
	reason := fmt.Sprintf("no pipeline of flow %s serves %s", c.Flow, c.Event.Type)
	if candidates == 0 && c.Pipeline != "" && !c.Kept { // an event that runs only await has no pipeline
		j.await(reason)
		return nil, false
	}
	if candidates > 0 {
		reason = fmt.Sprintf("when is false in all pipelines that serve %s", c.Event.Type)
	}
	j.close(model.Change{Status: model.Ignored, Reason: reason})
	return nil, false
}

// keep sets an event aside for a run of its key that has not begun. The event ends as ignored if it was kept before, or if its key has no
// room for it. Only this run, which is the one of the key in flight, adds to what the key keeps.
func (j *job) keep(age time.Duration) {
	c := j.claimed
	if c.Kept {
		j.untaken(stats.UntakenExpired, fmt.Sprintf("no run of %s %s took it within %s", c.Flow, c.Key, age))
		return
	}
	kept, ok := j.kept()
	switch {
	case !ok:
	case kept.IsFull():
		j.untaken(stats.UntakenFull, fmt.Sprintf("no run took it, and %s %s already keeps %d events, or %d MiB of them",
			c.Flow, c.Key, store.KeptEvents, store.KeptBytes>>20))
	default:
		j.close(model.Change{
			Status: model.Waiting, Due: j.n.d.Clock.Now().Add(age), ErrorClass: model.ClassKept,
			Error: "kept for a run that awaits it",
		})
	}
}

// untaken ends an event that no run will take.
func (j *job) untaken(reason, why string) {
	if j.close(model.Change{Status: model.Ignored, Reason: why}) {
		j.n.d.Metrics.Untaken.WithLabelValues(reason).Inc()
		j.notify(model.NoticeUntaken, j.claimed.Flow, why)
	}
}

// kept counts what the run's key keeps. It waits while the store cannot be read, and ok is false if the node stops meanwhile.
func (j *job) kept() (k store.Kept, ok bool) {
	for backoff := (clock.Backoff{First: 10 * time.Millisecond, Most: clock.MaxBackoff}); ; {
		ctx, cancel := context.WithTimeout(j.n.ctx, clock.StoreTimeout)
		var err error
		k, err = j.n.d.Store.Inbox.Kept(ctx, j.claimed.Flow, j.claimed.Key)
		cancel()
		if err == nil {
			return k, true
		}
		j.at("").Warn("events that the key keeps cannot be counted, trying again", "error", err)
		if !backoff.Pause(j.n.calls) || j.n.isDraining() {
			return k, false
		}
	}
}

// refuse handles an event without a transition as the automaton says.
func (j *job) refuse(flow *tree.Flow) {
	reason := fmt.Sprintf("state %s has no transition on %s", planner.StateOf(flow, j.claimed.Entity.State), j.claimed.Event.Type)
	switch {
	case flow.States.Otherwise == "defer" && !planner.IsFinal(flow, j.claimed.Entity.State):
		j.close(model.Change{Status: model.Waiting, Defer: true})
	case flow.States.Otherwise == "ignore":
		j.close(model.Change{Status: model.Ignored, Reason: reason})
	default:
		j.close(model.Change{Status: model.Ignored, Reason: "rejected: " + reason})
	}
}

// close commits a change of a run that has not begun here, which usually releases the run. It
// returns false if the commit failed.
func (j *job) close(c model.Change) bool {
	c.Run, c.Version, c.Pipeline = j.claimed.ID, j.version, j.claimed.Pipeline
	err := j.commit(c)
	if errors.Is(err, store.ErrCancelled) {
		c.Status, c.Reason, c.Defer = model.Cancelled, model.CancelReason, false
		_ = j.commit(c) // commit has logged what went wrong
	}
	return err == nil
}

// unservedAgain is how often a run without a pipeline is checked again if nothing wakes it.
const unservedAgain = time.Hour

// await sets aside a run whose event no pipeline serves now, until one does.
func (j *job) await(reason string) {
	j.at("").Warn("event waits for a pipeline that serves it", "type", j.claimed.Event.Type, "flow", j.claimed.Flow)
	j.close(model.Change{
		Status: model.Parked, Due: j.n.d.Clock.Now().Add(unservedAgain), Cause: stats.CauseUnserved + j.def.Bundle.Hash,
		Error: reason + "; it waits until a definition does", ErrorClass: model.ClassUnserved,
	})
}

// startValues returns the start values of the run.
func (j *job) startValues() (core.Start, error) {
	c := j.claimed
	s := core.Start{
		ID: c.ID, Event: c.Event, Flow: c.Flow, Key: c.Key,
		State: c.Entity.State, Generation: c.Generation,
	}
	if one, ok := j.n.d.Memory.One(); ok {
		s.Most = one
	}
	if len(c.Entity.Shared) == 0 {
		return s, nil
	}
	data, err := datum.ParseJSON(c.Entity.Shared)
	if err != nil {
		return s, store.DamagedRun(c.ID, "the column keys.shared", err)
	}
	shared, ok := data.(map[string]any)
	if !ok {
		return s, fmt.Errorf("shared state of %s %s: want an object, have %s", c.Flow, c.Key, model.KindOf(data))
	}
	s.Shared = shared
	return s, nil
}
