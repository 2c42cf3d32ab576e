package dsl

import (
	"fmt"
	"slices"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// checkEvents finds out which pipelines an event type may activate.
func (c *checker) checkEvents() {
	for _, p := range c.Bundle.Pipelines {
		if p.IsCalled() {
			continue
		}
		if len(p.On) == 0 && p.ID != "" { // by default, its id is the type
			p.On = spec.Names{p.ID}
		}
		if c.Bundle.Index.Pipelines[p.ID] != p {
			continue
		}
		c.checkFlowOf(p)
		for i, event := range p.On {
			if slices.Index(p.On, event) == i { // a type that it names twice is served once
				c.serve(event, p, onPlace(p, i))
			}
		}
	}
}

// onPlace is where the pipeline names its i-th event type; its id when it does
// not name any.
func onPlace(p *tree.Pipeline, i int) diag.Span {
	whole := p.PlaceOf("on", p.PlaceOf("id", p.Span))
	return p.PlaceOf(fmt.Sprintf("on[%d]", i), whole)
}

// checkFlowOf checks that the flow of a pipeline exists, and that a pipeline
// without one does not take the name of a flow: it is a flow of its own under its id, and
// two flows would have one name.
func (c *checker) checkFlowOf(p *tree.Pipeline) {
	if p.Flow != "" {
		if c.Bundle.Index.Flows[p.Flow] == nil {
			c.unknown(p.PlaceOf("flow", p.Span), rules.UnknownFlow, "flow", p.Flow, diag.NamesIn(c.Bundle.Index.Flows))
		}
		return
	}
	if f := c.Bundle.Index.Flows[p.ID]; f != nil {
		c.Report(diag.Diagnostic{
			Span: p.PlaceOf("id", p.Span), Code: rules.ImplicitFlow,
			Message: fmt.Sprintf("pipeline %q has the id of a flow but does not belong to it", p.ID),
			Hint:    fmt.Sprintf("say flow: %s, or rename the pipeline", p.ID),
			Related: []diag.Related{{Span: f.PlaceOf("id", f.Span), Message: "the flow"}},
		})
	}
}

// serve adds a pipeline to those of an event type. The first whose when is true
// gets an event, so one without when hides all that follow.
func (c *checker) serve(event string, p *tree.Pipeline, at diag.Span) {
	others := c.Bundle.Index.Serving[event]
	c.Bundle.Index.Serving[event] = append(others, p)
	taker := c.takers[event]
	if taker == nil && unconditional(p.When) {
		c.takers[event] = p
	}
	switch {
	case len(others) > 0 && flowID(others[0]) != flowID(p):
		c.Report(diag.Diagnostic{
			Span: at, Code: rules.TwoFlows, Related: servedBy(others[0], event),
			Message: fmt.Sprintf("event type %q is served by two flows, %q and %q", event, flowID(others[0]), flowID(p)),
			Hint:    "let both pipelines name the same flow, or let one emit an event of another type",
		})
	case taker != nil:
		c.Report(diag.Diagnostic{
			Span: at, Severity: diag.Warning, Code: rules.NeverReached, Related: servedBy(taker, event),
			Message: fmt.Sprintf("pipeline %q never gets %q: %q takes every one before it", p.ID, event, taker.ID),
			Hint:    fmt.Sprintf("give %q a when, or put it last", taker.ID),
		})
	}
}

// servedBy is the place where a pipeline says that it serves an event.
func servedBy(p *tree.Pipeline, event string) []diag.Related {
	return []diag.Related{{Span: onPlace(p, slices.Index(p.On, event)), Message: fmt.Sprintf("pipeline %q serves it", p.ID)}}
}

// flowID is the flow that a pipeline belongs to: without one it is its own.
func flowID(p *tree.Pipeline) string {
	if p.Flow == "" {
		return p.ID
	}
	return p.Flow
}

// unconditional tells whether a condition is true whatever the event.
func unconditional(when *expr.Value) bool {
	return when == nil || when.Kind == expr.ValueLiteral && when.Scalar == true
}
