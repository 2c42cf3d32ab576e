package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"procaas/engine/definitions"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// This file sees to it that no accepted event is lost with the pipeline that was to serve it.

// unservedAgain is when such a run is looked at again though nobody called it up.
const unservedAgain = time.Hour

// A Waits is how many accepted events wait for a pipeline.
type Waits struct {
	Pipeline string `json:"pipeline"`
	Events   int    `json:"events"`
}

// A DropError refuses a definition that does not serve events that have been accepted.
type DropError struct {
	Waits []Waits // by pipeline
}

// Error implements error.
func (e *DropError) Error() string {
	total, parts := 0, make([]string, 0, len(e.Waits))
	for _, w := range e.Waits {
		total += w.Events
		parts = append(parts, fmt.Sprintf("%s: %d", w.Pipeline, w.Events))
	}
	return fmt.Sprintf("accepted events wait for pipelines that would not serve them any more, %d in all (%s); "+
		"put the pipelines back, reload when the events have run, or give them up with procaas reload --drop", total, strings.Join(parts, ", "))
}

// await keeps a run whose event no pipeline serves at present, until one does.
func (j *job) await(reason string) {
	j.at("").Warn("event waits for a pipeline that serves it", "type", j.claimed.Event.Type, "flow", j.claimed.Flow)
	j.close(model.Change{
		Status: model.Parked, Due: j.n.e.clock.Now().Add(unservedAgain), Cause: stats.CauseUnserved + j.def.Bundle.Hash,
		Error: reason + "; it waits until a definition does", ErrorClass: model.ClassUnserved,
	})
}

// abandoned lists what waits for pipelines that a definition takes away.
func (e *Engine) abandoned(ctx context.Context, before, after *definitions.Definition) ([]Waits, error) {
	var out []Waits
	for _, plan := range before.Plans {
		p := plan.Pipeline
		if p.IsCalled() || !slices.ContainsFunc(definitions.TypesOf(p), func(t string) bool { return !after.Serves(planner.FlowID(p), t) }) {
			continue
		}
		n := 0
		err := e.eachUnserved(ctx, p.ID, after, func(string) error { n++; return nil })
		if err != nil {
			return nil, err
		}
		if n > 0 {
			out = append(out, Waits{p.ID, n})
		}
	}
	return out, nil
}

// eachUnserved calls f for the runs that have not begun and that a definition does not serve:
// those that were accepted for a pipeline, or for any when it is empty.
func (e *Engine) eachUnserved(ctx context.Context, pipeline string, d *definitions.Definition, f func(run string) error) error {
	for _, status := range []model.Status{model.Waiting, model.Parked} {
		filter := store.RunFilter{Pipeline: pipeline, Status: status, Fresh: true, Limit: 100}
		for {
			runs, next, err := e.o.Store.Runs.List(ctx, filter)
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

// drop cancels the runs whose events a definition does not serve.
func (e *Engine) drop(ctx context.Context, d *definitions.Definition, by store.Actor) error {
	by.Reason = strings.TrimSuffix("dropped by a reload, since no pipeline serves its event: "+by.Reason, ": ")
	return e.eachUnserved(ctx, "", d, func(run string) error {
		err := e.o.Store.Runs.Cancel(ctx, run, by)
		if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
			return nil // it has ended meanwhile
		}
		return err
	})
}
