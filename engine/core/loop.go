package core

import (
	"procaas/engine/model"
)

// This file repeats a whole stage for each element of a list. From outside such a stage is one handler with a for-each, and
// each element is a run inside of the run, as that of a called pipeline is: with records
// and a state of its own, which are a part of the checkpoint. But it sees all that the
// run does.

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
