package check

import (
	"procaas/dsl/diag"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// checkCompensate reports a compensation that makes no call, or whose handler has nothing to undo. It would
// never run, and the author would find out only when a run is cancelled.
func checkCompensate(w *merge.Whole, h *tree.Handler, r *diag.Reporter) {
	u := h.Compensate
	if u == nil || w.Blamed(u.Span) {
		return
	}
	at := h.PlaceOf("compensate", u.Span)
	switch {
	case u.Type == "":
		r.Errorf(at, rules.Compensate, "add the call, such as request: {…}", "the compensation of handler %q makes no call", h.ID)
	case w.Types[u.Type].SetsState:
		r.Errorf(u.PlaceOf("type", u.Span), rules.Compensate, "call the service, such as with request: {…}",
			"the compensation of handler %q makes no call: %s only sets the shared state", h.ID, u.Type)
	}
	// Both the compensation and its handler may be wrong. Each gets its finding.
	switch {
	case h.IsPlaceholder() && !w.Blamed(h.Span), h.Await != nil, w.Types.SetsState(h):
		r.Errorf(at, rules.Compensate, "delete it, or write it at the handler that makes the call",
			"handler %q makes no call that could be undone", h.ID)
	case h.ForEach != nil:
		r.Errorf(at, rules.Compensate, "let one call make all of them",
			"handler %q makes a call for each element, and one compensation cannot undo some of them", h.ID)
	}
	checkUndoRules(h, u.OnError, r)
	if t := u.Retry; t != nil {
		checkOrder(r, t, t.Span, "min-delay", t.MinDelay, "max-delay", t.MaxDelay)
	}
}
