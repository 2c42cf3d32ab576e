package check

import (
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/merge"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// compileValues compiles all expressions of a handler. Its result may also read its own outcome, and done may
// read that of the verification.
func compileValues(w *merge.Whole, h *tree.Handler, sc, own *expr.Scope, r *diag.Reporter) {
	spec.Compile(h.Enabled, &spec.Field{ExprKind: datum.BoolKind}, sc, r)
	// What the condition has tested holds for the rest of the handler.
	if tested := h.Enabled.Expr().Holds(); len(tested) > 0 {
		tested = append(slices.Clip(sc.Facts), tested...)
		sc.Facts, own.Facts = tested, tested
	}
	if h.Rollout != nil {
		spec.Compile(h.Rollout.By, nil, sc, r)
	}
	if h.RateLimit != nil {
		spec.Compile(h.RateLimit.Per, nil, itemScope(h, sc), r)
		checkLimitValue(h, r)
	}
	if h.ForEach != nil && !h.Loops() {
		compileItems(h.ForEach, sc, r)
	}
	compileAwait(h, sc, r)
	compileBody(w, h.Type, h.Body, itemScope(h, sc), r)
	spec.Compile(h.With(), nil, itemScope(h, sc), r)
	spec.Compile(h.Result, nil, own, r)
	if u := h.Compensate; u != nil {
		compileBody(w, u.Type, u.Body, own, r)
		compileOnError(h, u.OnError, own, r)
	}
	if h.Use != nil {
		spec.Compile(h.Use.With, nil, itemScope(h, own), r)
	}
	if v := h.Verification(); v != nil {
		compileBody(w, v.Type, v.Body, itemScope(h, sc), r)
		spec.Compile(v.Done, &spec.Field{ExprKind: datum.BoolKind}, itemScope(h, own), r)
	}
	if h.Fallback != nil {
		spec.Compile(h.Fallback.Result, nil, sc, r)
	}
	compileOnError(h, h.OnError, sc, r)
}

// compileBody compiles the expressions of a body of some type.
func compileBody(w *merge.Whole, typ string, body *expr.Value, sc *expr.Scope, r *diag.Reporter) {
	if t, ok := w.Types[typ]; ok {
		spec.CompileFields(body, t.Spec, sc, r)
		return
	}
	spec.Compile(body, nil, sc, r)
}
