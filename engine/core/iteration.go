package core

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// An iteration is the state of a for-each.
type iteration struct {
	items []any           // as they were when the first one began; nil once the handler is decided
	raw   json.RawMessage // items as JSON
	of    []record        // one per item

	total             int
	succeeded, failed int // counts, set once the handler is decided
}

// cutOffBy returns the error of the first item that has failed the handler.
func (r *record) cutOffBy(s *planner.Step) error {
	stop := r.each.stop(s)
	item := &r.each.of[stop]
	return unit{item: stop + 1}.within(&model.KeptError{Text: item.err, Class: item.class, Status: item.status, Failures: item.failures})
}

// busy reports whether a call of an item is in flight or has an unknown outcome.
func (e *iteration) busy() bool {
	return e != nil && slices.ContainsFunc(e.of, func(r record) bool { return r.isBusy() })
}

// isBusy reports whether a call is in flight or has an unknown outcome.
func (r *record) isBusy() bool {
	return r.underway || r.outcome == model.OutcomeUnknown || r.sub != nil && r.sub.underway > 0
}

// reached reports whether any item has begun or is decided.
func (e *iteration) reached() bool {
	return slices.ContainsFunc(e.of, func(r record) bool { return r.outcome != "" || r.attempts > 0 })
}

// cutOff reports whether a unit is an item that stops because an item before it has failed. An item
// whose call is being undone continues.
func (u unit) cutOff() bool {
	return u.item > 0 && u.item > u.of.each.stop(u.Step) && (u.rec.sub == nil || !u.rec.sub.givesUp())
}

// stop returns how many items may run: all of them, or those up to the first one whose failure
// fails the handler.
func (e *iteration) stop(s *planner.Step) int {
	if s.Handler.ForEach.OnFailure != "fail" {
		return len(e.of)
	}
	for i := range e.of {
		if e.of[i].fails() {
			return i
		}
	}
	return len(e.of)
}

// fails reports whether an item has failed and no rule of on-error has left it out.
func (r *record) fails() bool { return r.outcome == model.OutcomeFailed && !r.wentOn() }

// maxNamed is how many failed items the reason of a handler names.
const maxNamed = 10

// without says which items a handler that succeeded has gone on without. It is empty for none.
func (e *iteration) without() string {
	if e == nil {
		return ""
	}
	var named []string
	failed := 0
	for i := range e.of {
		if item := &e.of[i]; item.outcome == model.OutcomeFailed {
			failed++
			if failed <= maxNamed {
				named = append(named, fmt.Sprintf("%d (%s)", i, item.class))
			}
		}
	}
	switch {
	case failed == 0:
		return ""
	case failed > maxNamed:
		named = append(named, fmt.Sprintf("and %d more", failed-maxNamed))
	}
	return "went on without items " + strings.Join(named, ", ")
}

// result is the entry of an item in the response of a for-each.
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
		return // the items are forgotten, and their sum is known
	}
	r.attempts = 0
	r.failures = 0
	r.each.succeeded = 0
	r.each.failed = 0
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

// forgetItems drops the items of a decided handler, unless an operator's retry may continue with
// unfinished ones.
func (r *record) forgetItems(goesOn bool) {
	if goesOn {
		return
	}
	r.trail = joinTrails(append([]record{{trail: r.trail}}, r.each.of...))
	r.each.items, r.each.raw, r.each.of = nil, nil, nil
}

// kept is the size of the responses of the items in bytes.
func (e *iteration) kept() int {
	n := 0
	for i := range e.of {
		n += len(e.of[i].raw)
	}
	return n
}

// failedElement returns the path of the failed handler in the first failed element. It is empty if
// the failure has another cause.
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
