package dsl

import (
	"procaas/dsl/advice"
	"procaas/dsl/check"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/merge"
	"procaas/dsl/proof"
	"procaas/dsl/wiring"
)

// checkAll reports errors in the whole, and advice. Later checks use fields of the tree that earlier ones fill
// and that no file can set.
func checkAll(w *merge.Whole, r *diag.Reporter) {
	wiring.Called(w)
	wiring.Events(w, r)
	wiring.Awaits(w, r)
	check.Contracts(w, r)
	wiring.Calls(w, r)
	check.Services(w, r)
	wiring.Triggers(w, r)
	for _, s := range w.Bundle.Language.Sections("") {
		if v := w.Bundle.AddedField(s.Key()); v != nil && s.Check != nil {
			on := w.Checking(r)
			on.Fits = func(event string, payload *expr.Value) { check.Payload(w, event, payload, r) }
			s.Check(v, on)
		}
	}
	wiring.Flows(w, r)
	pipelines := check.Pipelines(w, r)
	check.Detached(w, r)
	wiring.Extents(w, r)
	wiring.Endless(w, r)
	proof.Degradation(w, pipelines, r)
	advice.Give(w, pipelines, r)
}
