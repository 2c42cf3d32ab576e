package records

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/tree"
	"procaas/engine/definitions"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/store"
)

// This file makes sure that no accepted event is lost when its pipeline or its transition is removed.

// Abandoned counts, by pipeline, the waiting runs whose pipeline or transition a new definition
// removes.
func (o *Runs) Abandoned(ctx context.Context, before, after *definitions.Definition) ([]definitions.Waits, error) {
	var out []definitions.Waits
	for _, plan := range before.Plans {
		p := plan.Pipeline
		loses := func(t string) bool {
			return !after.Serves(p.FlowID(), t) || losesTransition(before, after, p.FlowID(), t)
		}
		if p.IsCalled() || !slices.ContainsFunc(definitions.TypesOf(p), loses) {
			continue
		}
		n := 0
		err := o.eachFresh(ctx, p.ID, func(r *store.RunRecord) error {
			needs := !after.Serves(r.Flow, r.Event.Type)
			if !needs && losesTransition(before, after, r.Flow, r.Event.Type) {
				var err error
				if needs, err = o.needsTransition(ctx, before, after, r); err != nil {
					return err
				}
			}
			if needs {
				n++
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if n > 0 {
			out = append(out, definitions.Waits{Pipeline: p.ID, Events: n})
		}
	}
	return out, nil
}

// losesTransition reports whether there is a state in which only the definition before accepts events
// of a type. An event that the new automaton defers is not lost: it waits.
func losesTransition(before, after *definitions.Definition, flow, eventType string) bool {
	then, now := before.Bundle.Flow(flow), after.Bundle.Flow(flow)
	if now == nil || now.States == nil || now.States.Otherwise == "defer" {
		return false
	}
	states := []string{now.States.Initial}
	for _, f := range []*tree.Flow{then, now} {
		if f == nil || f.States == nil {
			continue
		}
		states = append(states, f.States.Final...)
		for _, t := range f.States.Transitions {
			states = append(append(states, t.From...), t.To)
		}
	}
	return slices.ContainsFunc(states, func(state string) bool {
		_, was := planner.Transition(then, state, eventType)
		_, is := planner.Transition(now, state, eventType)
		return was && !is
	})
}

// needsTransition reports whether a waiting run may need a transition that a new definition removes.
// The state in which it begins is known if no other run of its key is unfinished.
func (o *Runs) needsTransition(ctx context.Context, before, after *definitions.Definition, r *store.RunRecord) (bool, error) {
	entity, err := o.Store.Runs.Entity(ctx, r.Flow, r.Key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return false, fmt.Errorf("read the state of key %s: %w", r.Key, err)
	}
	if entity.Waiting > 1 {
		return true, nil
	}
	_, was := planner.Transition(before.Bundle.Flow(r.Flow), entity.State, r.Event.Type)
	_, is := planner.Transition(after.Bundle.Flow(r.Flow), entity.State, r.Event.Type)
	return was && !is, nil
}

// eachUnserved calls f for the runs that have not begun and that a definition does not serve.
func (o *Runs) eachUnserved(ctx context.Context, d *definitions.Definition, f func(run string) error) error {
	return o.eachFresh(ctx, "", func(r *store.RunRecord) error {
		if d.Serves(r.Flow, r.Event.Type) {
			return nil
		}
		return f(r.ID)
	})
}

// eachFresh calls f for the runs that have not begun: those of a pipeline, or all if it is empty.
func (o *Runs) eachFresh(ctx context.Context, pipeline string, f func(*store.RunRecord) error) error {
	for _, status := range []model.Status{model.Waiting, model.Parked} {
		filter := store.RunFilter{Pipeline: pipeline, Status: status, Fresh: true, Limit: 100}
		for {
			runs, next, err := o.Store.Runs.List(ctx, filter)
			if err != nil {
				return fmt.Errorf("list what waits: %w", err)
			}
			for i := range runs {
				r := &runs[i]
				if r.Pipeline == "" {
					continue
				}
				if err := f(r); err != nil {
					return err
				}
			}
			filter.Cursor = next
			if next == "" {
				break
			}
		}
	}
	return nil
}

// Drop cancels the runs whose events a definition does not serve.
func (o *Runs) Drop(ctx context.Context, d *definitions.Definition, by store.Actor) error {
	by.Reason = strings.TrimSuffix("dropped by a reload, since no pipeline serves its event: "+by.Reason, ": ")
	return o.eachUnserved(ctx, d, func(run string) error {
		err := o.abandon(ctx, run, by)
		if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
			return nil // it has ended meanwhile
		}
		return err
	})
}
