package check

import (
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// Detached checks the handlers that belong to no stage.
func Detached(w *merge.Whole, r *diag.Reporter) {
	diag.InParallel(len(w.Bundle.Detached), r, func(i int, r *diag.Reporter) { checkDetached(w, w.Bundle.Detached[i], r) })
}

// checkDetached checks a handler that belongs to no stage. What it may read is unknown, so it may read any
// name.
func checkDetached(w *merge.Whole, h *tree.Handler, r *diag.Reporter) {
	checkPolicies(h, r)
	sc := &expr.Scope{Parsed: w.Parsed, Roots: expr.AllRoots, State: map[string]any{}, Configs: w.Configs, Lenient: true}
	own := *sc
	own.Sources = []string{h.ID}
	compileValues(w, h, sc, &own, r)
	checkBodies(w, h, r)
}

// checkBodies checks the body of a handler, and that of its verification.
func checkBodies(w *merge.Whole, h *tree.Handler, r *diag.Reporter) {
	checkBody(w, h, h.Type, h.Body, r)
	checkOnUnknown(w, h, r)
	checkOnError(w, h, r)
	checkForEach(w, h, r)
	checkAwait(h, r)
	checkUseOfCall(h, r)
	checkCompensate(w, h, r)
	if u := h.Compensate; u != nil {
		checkBody(w, h, u.Type, u.Body, r)
	}
	if v := h.Verification(); v != nil {
		checkBody(w, h, v.Type, v.Body, r)
	}
}

// checkBody calls the type's own checks, for what its Spec cannot express. It does not if a file could not be
// read, since services and pipelines in that file would seem to be missing.
func checkBody(w *merge.Whole, h *tree.Handler, typ string, body *expr.Value, r *diag.Reporter) {
	t := w.Types[typ]
	if t.Check == nil || body == nil || w.Partial || len(body.Names) == 0 && w.Blamed(body.Span) {
		return // not a mapping, which is already reported
	}
	t.Check(&tree.Body{Reporter: r, Span: body.Span, Handler: h, Value: body, Bundle: w.Bundle})
}

// checkOnUnknown reports an on-unknown without effect: the handler makes no call, or verifies without a call.
func checkOnUnknown(w *merge.Whole, h *tree.Handler, r *diag.Reporter) {
	u := h.OnUnknown
	if u == nil {
		return
	}
	if h.IsPlaceholder() && !w.Blamed(h.Span) || w.Types.SetsState(h) {
		r.Errorf(h.PlaceOf("on-unknown", u.Span), rules.OnUnknown, "delete it",
			"handler %q makes no call, so the end of a call is never unknown", h.ID)
	}
	v := u.Verify
	switch {
	case v == nil || w.Blamed(v.Span):
	case v.Type == "":
		r.Errorf(u.PlaceOf("verify", v.Span), rules.OnUnknown, "add the call, such as request: {…}",
			"verify of handler %q makes no call", h.ID)
	case w.Types[v.Type].SetsState:
		r.Errorf(v.PlaceOf("type", v.Span), rules.OnUnknown, "call the service, such as with request: {…}",
			"verify of handler %q makes no call: %s only sets the shared state", h.ID, v.Type)
	}
}
