package check

import (
	"fmt"
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
)

// checkAwait reports fields that cannot be combined with await.
func checkAwait(h *tree.Handler, r *diag.Reporter) {
	if h.Await == nil {
		return
	}
	at := h.PlaceOf("await", h.Await.Span)
	if h.Type != "" {
		r.Report(diag.Diagnostic{
			Span: at, Code: rules.Await, Hint: "make two handlers of it",
			Message: fmt.Sprintf("handler %q waits for an event and makes a call, %s", h.ID, h.Type),
			Related: []diag.Related{{Span: h.PlaceOf("type", h.Span), Message: "the call"}},
		})
	}
	if span := h.Await.PlaceOf("max-age", diag.Span{}); span != (diag.Span{}) && !h.Await.Buffered {
		r.Errorf(span, rules.Await, "add buffered: true, or drop max-age",
			"max-age is how long events are kept that come before the run, and handler %q takes none of them", h.ID)
	}
	for _, name := range []string{"for-each", "on-unknown", "retry", "timeout", "fallback", "response-schema"} {
		if span := h.PlaceOf(name, diag.Span{}); span != (diag.Span{}) {
			hint := "drop it"
			if name == "timeout" {
				hint = "write it below await:"
			}
			r.Errorf(span, rules.Await, hint, "handler %q waits for an event; field %q is about calls", h.ID, name)
		}
	}
}

// compileAwait compiles the condition of await.
func compileAwait(h *tree.Handler, sc *expr.Scope, r *diag.Reporter) {
	if h.Await == nil {
		return
	}
	in := *sc // the name exists only in this condition
	in.Roots = append(slices.Clone(sc.Roots), expr.AwaitedRoot)
	spec.Compile(h.Await.Where, &spec.Field{ExprKind: datum.BoolKind}, &in, r)
}

// awaitedOutline returns the type of await's response: the event with the given payload. It returns nil if
// nothing is known.
func awaitedOutline(payload *typing.Outline) *typing.Outline {
	text, maybe := &typing.Outline{Shape: datum.StringShape}, &typing.Outline{
		Shape: datum.StringShape | datum.NullShape,
		Why:   "an event need not carry a key",
	}
	members := map[string]*typing.Member{
		"id": {Outline: text, Required: true}, "type": {Outline: text, Required: true}, "source": {Outline: text, Required: true},
		"time": {Outline: text, Required: true}, "key": {Outline: maybe, Required: true}, "payload": {Outline: payload, Required: true},
	}
	if payload == nil {
		delete(members, "payload") // anything
		return &typing.Outline{Shape: datum.MapShape, Members: members}
	}
	return &typing.Outline{Shape: datum.MapShape, Closed: true, Members: members}
}
