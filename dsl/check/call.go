package check

import (
	"procaas/dsl/diag"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// checkUseOfCall reports fields that cannot be combined with call. They apply to one attempt of a service call,
// but a called pipeline makes many.
func checkUseOfCall(h *tree.Handler, r *diag.Reporter) {
	if h.Call == nil {
		return
	}
	at := h.PlaceOf("call", h.Call.Span)
	if h.Type != "" || h.Await != nil {
		r.Errorf(at, rules.Call, "make two handlers of it", "handler %q calls a pipeline, and has something else to do", h.ID)
	}
	for _, name := range []string{"on-unknown", "retry", "timeout", "fallback", "response-schema", "max-in-flight"} {
		if span := h.PlaceOf(name, diag.Span{}); span != (diag.Span{}) {
			hint := "write it in the handlers of pipeline " + h.Call.Pipeline
			switch name {
			case "fallback":
				hint = "write on-error: [{then: continue, result: {…}}], or give the handlers of the pipeline a fallback"
			case "response-schema":
				hint = "write output-schemas: in pipeline " + h.Call.Pipeline
			}
			r.Errorf(span, rules.Call, hint, "handler %q calls a pipeline; field %q is about calls of services", h.ID, name)
		}
	}
}

// checkWith checks the arguments of a call against the schemas of the inputs.
func checkWith(w *merge.Whole, h *tree.Handler, r *diag.Reporter) {
	if h.Call == nil {
		return
	}
	p := w.Bundle.Index.Pipelines[h.Call.Pipeline]
	if p == nil {
		return // already reported
	}
	for i, k := range h.Call.With.Keys() {
		if contract := p.InputContracts[k.Name]; contract != nil {
			fits(w, h.Call.With.Elems[i], contract, contract.Name, r)
		}
	}
}
