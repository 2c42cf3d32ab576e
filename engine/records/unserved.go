package records

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"procaas/engine/definitions"
	"procaas/engine/model"
	"procaas/engine/store"
)

// This file makes sure that no accepted event is lost when its pipeline is removed.

// Abandoned lists the waiting runs of pipelines that a new definition removes.
func (o *Runs) Abandoned(ctx context.Context, before, after *definitions.Definition) ([]definitions.Waits, error) {
	var out []definitions.Waits
	for _, plan := range before.Plans {
		p := plan.Pipeline
		if p.IsCalled() || !slices.ContainsFunc(definitions.TypesOf(p), func(t string) bool { return !after.Serves(p.FlowID(), t) }) {
			continue
		}
		n := 0
		err := o.eachUnserved(ctx, p.ID, after, func(string) error { n++; return nil })
		if err != nil {
			return nil, err
		}
		if n > 0 {
			out = append(out, definitions.Waits{Pipeline: p.ID, Events: n})
		}
	}
	return out, nil
}

// eachUnserved calls f for the runs that have not begun and that a definition does not serve: those
// of a pipeline, or all if it is empty.
func (o *Runs) eachUnserved(ctx context.Context, pipeline string, d *definitions.Definition, f func(run string) error) error {
	for _, status := range []model.Status{model.Waiting, model.Parked} {
		filter := store.RunFilter{Pipeline: pipeline, Status: status, Fresh: true, Limit: 100}
		for {
			runs, next, err := o.Store.Runs.List(ctx, filter)
			if err != nil {
				return fmt.Errorf("list what waits: %w", err)
			}
			for i := range runs {
				r := &runs[i]
				if r.Pipeline == "" || d.Serves(r.Flow, r.Event.Type) {
					continue
				}
				if err := f(r.ID); err != nil {
					return err
				}
			}
			if filter.Cursor = next; next == "" {
				break
			}
		}
	}
	return nil
}

// Drop cancels the runs whose events a definition does not serve.
func (o *Runs) Drop(ctx context.Context, d *definitions.Definition, by store.Actor) error {
	by.Reason = strings.TrimSuffix("dropped by a reload, since no pipeline serves its event: "+by.Reason, ": ")
	return o.eachUnserved(ctx, "", d, func(run string) error {
		err := o.Store.Runs.Cancel(ctx, run, by)
		if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
			return nil // it has ended meanwhile
		}
		return err
	})
}
