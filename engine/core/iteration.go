package core

import (
	"encoding/json"
	"slices"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// An iteration is what became of the items of a for-each.
type iteration struct {
	items []any           // as they were when the first one began; nil once the handler is decided
	raw   json.RawMessage // of items
	of    []record        // as many

	total             int
	succeeded, failed int // once the handler is decided
}

// cutOffBy gives the error of the first item that has failed the handler.
func (r *record) cutOffBy(s *planner.Step) error {
	stop := r.each.stop(s)
	item := &r.each.of[stop]
	return unit{item: stop + 1}.within(&model.KeptError{Text: item.err, Class: item.class, Status: item.status, Failures: item.failures})
}

// busy reports whether a call of an item is in flight, or nobody knows how it ended.
func (e *iteration) busy() bool {
	return e != nil && slices.ContainsFunc(e.of, func(r record) bool { return r.isBusy() })
}

// isBusy reports whether a call is in flight, or nobody knows how it ended.
func (r *record) isBusy() bool {
	return r.underway || r.outcome == model.OutcomeUnknown || r.sub != nil && r.sub.underway > 0
}

// reached reports whether anything has become of any item.
func (e *iteration) reached() bool {
	return slices.ContainsFunc(e.of, func(r record) bool { return r.outcome != "" || r.attempts > 0 })
}

// cutOff reports whether a unit is an item that does not go on, since one before it has
// failed. One whose call undoes what it has done continues with that.
func (u unit) cutOff() bool {
	return u.item > 0 && u.item > u.of.each.stop(u.Step) && (u.rec.sub == nil || !u.rec.sub.givesUp())
}

// stop returns the number of items that are worked on: all of them, or those up to the
// first one whose failure fails the handler.
func (e *iteration) stop(s *planner.Step) int {
	if s.Handler.ForEach.OnFailure != "fail" {
		return len(e.of)
	}
	for i := range e.of {
		if e.of[i].outcome == model.OutcomeFailed {
			return i
		}
	}
	return len(e.of)
}

// result is what the response of a for-each holds for an item.
func (r *record) result(collect bool) any {
	if !collect {
		return r.response
	}
	out := map[string]any{"response": r.response, "status": nil, "error": nil}
	if r.status != 0 {
		out["status"] = r.status
	}
	if r.outcome == model.OutcomeFailed {
		out["error"] = map[string]any{"class": r.class, "status": out["status"], "message": r.err}
	}
	return out
}

// sum adds up the attempts of the items.
func (r *record) sum() {
	if r.each.items == nil {
		return // they are forgotten, and what they came to is known
	}
	r.attempts, r.failures, r.each.succeeded, r.each.failed = 0, 0, 0, 0
	for i := range r.each.of {
		item := &r.each.of[i]
		r.attempts += item.attempts
		r.failures += item.failures
		switch item.outcome {
		case model.OutcomeSucceeded:
			r.each.succeeded++
		case model.OutcomeFailed:
			r.each.failed++
		}
	}
}

// forgetItems drops the items of a handler that is decided, unless an operator's retry
// continues with those that are not done.
func (r *record) forgetItems(goesOn bool) {
	if goesOn {
		return
	}
	r.trail = joinTrails(append([]record{{trail: r.trail}}, r.each.of...))
	r.each.items, r.each.raw, r.each.of = nil, nil, nil
}

// kept is the size of the responses of the items.
func (e *iteration) kept() int {
	n := 0
	for i := range e.of {
		n += len(e.of[i].raw)
	}
	return n
}

// failedElement returns the path of the handler that has given up in the first element
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
