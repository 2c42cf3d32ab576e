package check

import (
	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// checkNotify reports notifications of a pipeline whose runs have no end of their own. The checks of requests see the rest.
func checkNotify(p *tree.Pipeline, r *diag.Reporter) {
	if len(p.Notify) > 0 && p.IsCalled() {
		r.Errorf(p.PlaceOf("notify", p.Span).Head(), rules.Notify, "write it into the pipelines that events start",
			"pipeline %q is called by others, and a call has no end of its own", p.ID)
	}
}
