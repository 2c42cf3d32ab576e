package steering

import (
	"context"
	"errors"
	"fmt"
	"time"

	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/engine/triggers"
)

// This file lets operators look at triggers and fire them. They are paused as other paths are held, by a control.

// A Submitter accepts the events of triggers.
type Submitter interface {
	SubmitFirings(ctx context.Context, events []model.Event) ([]triggers.Result, error)
}

// A Firer makes the Firer of a node. bundle and reloaded are as there.
func (st *Steering) Firer(bundle func() *tree.Bundle, reloaded func() <-chan struct{}) *triggers.Firer {
	return &triggers.Firer{
		Clock: st.Clock, Log: st.Log, Bundle: bundle, Reloaded: reloaded, Events: st.Store.Inbox, Runs: ends{st.Store.Runs, st.Ends},
		Marks: st.marks(), Holds: holds{st}, Submit: st.Inbox.SubmitFirings, Count: st.countFirings,
	}
}

func (st *Steering) marks() triggers.Marks { return triggers.Marks{Documents: st.Store.Documents} }

func (st *Steering) countFirings(trigger, outcome string, times int) {
	st.Metrics.TriggerTimes.WithLabelValues(trigger, outcome).Add(float64(times))
}

// holds are the holds of triggers.
type holds struct{ *Steering }

// Refresh implements [triggers.Holds].
func (h holds) Refresh(ctx context.Context) error { return h.Settings.Refresh(ctx) }

// HeldUntil implements [triggers.Holds].
func (h holds) HeldUntil(path string) time.Time { return h.Settings.Controls().HeldUntil(path) }

// An Ender cancels runs as an operator does.
type Ender interface {
	CancelRun(ctx context.Context, id string, by store.Actor) error
}

// ends are the runs of triggers' events.
type ends struct {
	store.Runs
	Ender
}

// Cancel implements [triggers.Runs].
func (e ends) Cancel(ctx context.Context, id string, by store.Actor) error {
	return e.CancelRun(ctx, id, by)
}

// SteeredBy lists the pipelines whose operators may steer a path that is not below a pipeline: those that the events of
// a trigger run. It is empty for other paths.
func (st *Steering) SteeredBy(path string) []string {
	id, ok := triggers.Of(path)
	if !ok {
		return nil
	}
	b := st.Library.Present().Bundle
	for _, t := range b.Triggers {
		if t.ID == id {
			return pipelinesOf(b, t)
		}
	}
	return nil
}

// pipelinesOf lists the pipelines that the events of a trigger run, or that await them.
func pipelinesOf(b *tree.Bundle, t *tree.Trigger) []string {
	ids := []string{}
	served := b.On(t.Event)
	if len(served) == 0 {
		served = b.Awaiting(t.Event)
	}
	for _, p := range served {
		ids = append(ids, p.ID)
	}
	return ids
}

// trigger returns a trigger of the current definition. The error is a [*guard.ControlError] if there is none.
func (st *Steering) trigger(id string) (*tree.Bundle, *tree.Trigger, error) {
	b := st.Library.Present().Bundle
	var known []string
	for _, t := range b.Triggers {
		if t.ID == id {
			return b, t, nil
		}
		known = append(known, t.ID)
	}
	message := fmt.Sprintf("there is no trigger %s", id)
	if near := diag.Suggest(id, known); near != "" {
		message += fmt.Sprintf("; did you mean %s?", near)
	}
	return nil, nil, &guard.ControlError{Code: guard.CodeTriggerNotFound, Message: message}
}

// Triggers lists the triggers of the current definition that reads chooses by their pipelines, in order. next is how
// many of the next due times each has.
func (st *Steering) Triggers(ctx context.Context, next int, reads func(pipelines []string) bool) ([]triggers.TriggerView, error) {
	b, all := st.Library.Present().Bundle, []triggers.TriggerView{}
	if len(b.Triggers) == 0 {
		return all, nil
	}
	marks, err := st.marks().All(ctx)
	if err != nil {
		return nil, err
	}
	if err := st.Settings.Refresh(ctx); err != nil {
		return nil, err
	}
	for _, t := range b.Triggers {
		pipelines := pipelinesOf(b, t)
		if !reads(pipelines) {
			continue
		}
		v, err := triggers.NewView(t, st.Clock.Now(), next)
		if err != nil {
			return nil, err
		}
		v.Pipelines = pipelines
		mark := marks[t.ID]
		v.Note(mark)
		st.showPause(&v)
		if v.Last, err = st.lastFiring(ctx, t.ID, &mark); err != nil {
			return nil, fmt.Errorf("trigger %s: %w", t.ID, err)
		}
		all = append(all, v)
	}
	return all, nil
}

// showPause shows who has paused a trigger.
func (st *Steering) showPause(v *triggers.TriggerView) {
	path, now := triggers.Path(v.ID), st.Clock.Now()
	if _, held := st.HeldAt(path); !held {
		return
	}
	c := st.Settings.Controls().ByPath[path].View(true, now)
	v.State = triggers.StatePaused
	v.Pause = &triggers.TriggerPause{By: c.By, Reason: c.Reason, Since: c.Changed, Until: c.Until}
}

// lastFiring returns the latest firing of a trigger with its run, or nil if the store knows none.
func (st *Steering) lastFiring(ctx context.Context, id string, m *triggers.Mark) (*triggers.FiredEvent, error) {
	event, err := st.Store.Inbox.LastEvent(ctx, triggers.Source(id))
	if err != nil {
		return nil, err
	}
	f := triggers.FiredEvent{Event: event}
	due, fired := triggers.DueAt(event)
	f.Time = due
	if asked, ok := m.Asked[triggers.ByHand]; ok && asked.Time.After(f.Time) {
		f, fired = triggers.FiredEvent{Event: asked.ID, Time: asked.Time, ByHand: true}, true
	}
	if !fired {
		return nil, nil
	}
	if f.Run, err = st.Store.Inbox.EventRun(ctx, triggers.Source(id), f.Event); err != nil || f.Run == "" {
		return &f, err
	}
	r, err := st.Store.Runs.Run(ctx, f.Run)
	if errors.Is(err, store.ErrNotFound) {
		f.Run = ""
		return &f, nil
	}
	f.Status, f.Error = r.Status, r.Error
	return &f, err
}
