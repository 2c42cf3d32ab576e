package wiring

import (
	"fmt"
	"slices"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// Events records which pipelines an event type may start.
func Events(w *merge.Whole, r *diag.Reporter) {
	takers := make(map[string]*tree.Pipeline) // by event type, the first pipeline that serves every event
	for _, p := range w.Bundle.Pipelines {
		if p.IsCalled() {
			continue
		}
		if len(p.On) == 0 && p.ID != "" { // by default, the id is the type
			p.On = spec.Names{p.ID}
		}
		if w.Bundle.Index.Pipelines[p.ID] != p {
			continue
		}
		checkFlowOf(w, p, r)
		for i, event := range p.On {
			if slices.Index(p.On, event) == i { // a repeated type counts once
				reportServed(w, event, p, w.Bundle.Index.Serving[event], takers[event], r)
				w.Bundle.Index.Serving[event] = append(w.Bundle.Index.Serving[event], p)
				if takers[event] == nil && unconditional(p.When) {
					takers[event] = p
				}
			}
		}
	}
}

// checkFlowOf checks that the flow of a pipeline exists. It also checks that a pipeline without a flow has no
// flow's id, since it is a flow with its own id.
func checkFlowOf(w *merge.Whole, p *tree.Pipeline, r *diag.Reporter) {
	if p.Flow != "" {
		if w.Bundle.Index.Flows[p.Flow] == nil && !w.Partial {
			r.Errorf(p.PlaceOf("flow", p.Span), rules.UnknownFlow, r.DidYouMean(p.Flow, diag.NamesIn(w.Bundle.Index.Flows)),
				"unknown flow %q", p.Flow)
		}
		return
	}
	if f := w.Bundle.Index.Flows[p.ID]; f != nil {
		r.Report(diag.Diagnostic{
			Span: p.PlaceOf("id", p.Span), Code: rules.ImplicitFlow,
			Message: fmt.Sprintf("pipeline %q has the id of a flow but does not belong to it", p.ID),
			Hint:    fmt.Sprintf("write flow: %s, or rename the pipeline", p.ID),
			Related: []diag.Related{{Span: f.PlaceOf("id", f.Span), Message: "the flow"}},
		})
	}
}

// reportServed reports a pipeline that serves an event type of another flow, or that never gets the event. The
// first pipeline whose when is true gets it, so one without when (taker) hides all later ones.
func reportServed(w *merge.Whole, event string, p *tree.Pipeline, others []*tree.Pipeline, taker *tree.Pipeline, r *diag.Reporter) {
	at := p.OnPlace(slices.Index(p.On, event))
	switch {
	case len(others) > 0 && others[0].FlowID() != p.FlowID():
		r.Report(diag.Diagnostic{
			Span: at, Code: rules.TwoFlows, Related: ServedBy(others[0], event),
			Message: fmt.Sprintf("event type %q is served by two flows, %q and %q", event, others[0].FlowID(), p.FlowID()),
			Hint:    "let both pipelines name the same flow, or let one emit an event of another type",
		})
	case reportTakenBefore(w, event, p, others, r):
	case taker != nil:
		r.Report(diag.Diagnostic{
			Span: at, Severity: diag.Warning, Code: rules.NeverReached, Related: ServedBy(taker, event),
			Message: fmt.Sprintf("pipeline %q never gets %q: %q takes every one before it", p.ID, event, taker.ID),
			Hint:    fmt.Sprintf("add when: to %q, or put it last", taker.ID),
		})
	}
}

// reportTakenBefore reports a pipeline that would get events before a pipeline of another owner. It may, if its owner
// owns the flow.
func reportTakenBefore(w *merge.Whole, event string, p *tree.Pipeline, others []*tree.Pipeline, r *diag.Reporter) bool {
	i := slices.IndexFunc(others, func(o *tree.Pipeline) bool { return w.Takes(p.Flow, o.Owner, o.Span, p.Owner, p.Span) })
	if i < 0 {
		return false
	}
	first := others[i]
	r.Report(diag.Diagnostic{
		Span: first.OnPlace(slices.Index(first.On, event)), Code: rules.Contribution, Related: ServedBy(p, event),
		Message: fmt.Sprintf("pipeline %q of %s would take events of type %q before pipeline %q of %s",
			first.ID, first.Owner, event, p.ID, p.Owner),
		Hint: fmt.Sprintf("put both into one file, in the order that you want, or let %s own the flow %q", first.Owner, p.Flow),
	})
	return true
}

// ServedBy returns the position where a pipeline declares an event.
func ServedBy(p *tree.Pipeline, event string) []diag.Related {
	return []diag.Related{{Span: p.OnPlace(slices.Index(p.On, event)), Message: fmt.Sprintf("pipeline %q serves it", p.ID)}}
}

// unconditional reports whether a condition is always true.
func unconditional(when *expr.Value) bool {
	return when == nil || when.Kind == expr.ValueLiteral && when.Scalar == true
}
