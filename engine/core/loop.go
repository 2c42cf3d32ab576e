package core

import (
	"maps"

	"procaas/dsl/datum"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file repeats a whole stage for each element of a list. From outside such a stage is one handler with a for-each, and
// each element is a run inside of the run, as that of a called pipeline is: with records
// and a state of its own, which are a part of the checkpoint. But it sees all that the
// run does.

// element makes the run of one element.
func (r *Run) element(u unit) *Run {
	sub := newRun(u.Callee, Start{ID: r.start.ID, Event: r.start.Event, Flow: r.start.Flow, Key: r.start.Key})
	sub.redone, sub.Extent = r.redone, r.Extent
	sub.within, sub.outer, sub.at = r.within+u.ref()+model.IntoCall, r, u
	return sub
}

// elementEnv gives the roots that expressions may read inside of an element: what the
// run knows, what the element itself has set, and which one it is. What the run knows
// does not change before all elements are done.
func (r *Run) elementEnv(live Live) datum.Env {
	env := r.outer.envOf(r.at, live)
	env[planner.SharedRoot] = both(r.outer.shared, r.shared)
	sources, _ := env[planner.SourcesRoot].(map[string]any)
	env[planner.SourcesRoot] = both(sources, r.sources)
	return env
}

// both joins two mappings, of which the second counts before the first.
func both(first, second map[string]any) map[string]any {
	out := make(map[string]any, len(first)+len(second))
	maps.Copy(out, first)
	maps.Copy(out, second)
	return out
}

// foldTrail keeps what became of the handlers of an element that is done with those of
// the others: one record by handler, and not one by element.
func (r *Run) foldTrail(u unit) {
	rec := &r.records[u.Position]
	rec.trail = joinTrails([]record{{trail: rec.trail}, {trail: u.rec.trail}})
	u.rec.trail = nil
}

// failedElement gives the path of the handler that has given up in the first element
// that failed; empty when it is something else that failed.
func (r *record) failedElement() string {
	if r.each == nil {
		return ""
	}
	for i := range r.each.of {
		if item := &r.each.of[i]; item.outcome == model.OutcomeFailed && item.sub != nil {
			path, _, _ := item.sub.gaveUp()
			return path
		}
	}
	return ""
}
