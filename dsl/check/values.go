package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"procaas/dsl/contracts"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/merge"
	"procaas/dsl/steps"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
)

// This file follows what is known of values through a pipeline: from the payload
// and the responses into the shared state, and on to the handlers that read it.
// Handlers are taken in the order of declaration; the state that each reads is as
// if they had run in it.

// beginState is what is known of the shared state before the first handler. What
// the flow keeps may be what any of its pipelines has left; without a schema
// nothing is known of it.
func (c *walk) beginState() {
	c.view = view{make(map[string]*typing.Outline), make(map[string]*typing.Outline), make(map[string]given)}
	for name, first := range c.state {
		contract := c.Declared.Contracts[name]
		if contract == nil && c.Keeps(name) {
			continue // an earlier event may have left anything in it
		}
		c.known[name] = firstOutline(first, contract)
	}
}

// firstOutline is what a name may be that begins with a value: what its schema says, or of the
// type of the value with any parts.
func firstOutline(first any, contract *contracts.Contract) *typing.Outline {
	switch {
	case contract != nil && first == nil:
		return contract.Outline().Absent("")
	case contract != nil:
		return contract.Outline()
	case first == nil:
		return &typing.Outline{Shape: datum.NullShape}
	}
	s := datum.ShapeOfValue(first)
	if s&datum.NumberShape != 0 {
		s = datum.NumberShape // a price that begins as 0 may become 9.5
	}
	return typing.OfShape(s).Supposed()
}

// settle notes what the i-th handler leaves for those that follow. Its
// expressions are compiled.
func (c *walk) settle(i int) {
	h := c.Steps[i].Handler
	sure := h.AlwaysSucceeds()
	if _, twice := c.responses[h.ID]; twice {
		c.responses[h.ID] = nil // it may be either of two handlers
	} else if o := responseOutline(h); o != nil && sure {
		c.responses[h.ID] = o
	} else {
		c.responses[h.ID] = o.Absent(whyLeftOut(c.Steps[i]))
		c.note(i, "sources."+h.ID, o)
	}
	for _, a := range c.Assignments(i) {
		c.forget(a.Key.Name) // a test before was about the value that is replaced
		c.assign(a, sure)
	}
	for _, rule := range h.OnError {
		for j, k := range rule.Result.Keys() {
			c.known[k.Name] = typing.Either(c.known[k.Name], c.become(k.Name, rule.Result.Elems[j]))
		}
	}
}

// responseOutline is what the response of the handler is once it has succeeded.
func responseOutline(h *tree.Handler) *typing.Outline {
	o := h.Expected
	if h.ResponseContract != nil {
		o = h.ResponseContract.Outline()
	}
	if h.ForEach != nil {
		return responsesOf(h.ForEach, o)
	}
	return o
}

// assign follows one assignment. A name that has a schema is as that says from
// the moment it is set; one whose handler may be left out may be as it was.
func (c *walk) assign(a steps.Assignment, sure bool) {
	name := a.Key.Name
	delete(c.maybe, expr.StateRoot+"."+name)
	if a.Value != nil && sure {
		c.known[name] = c.become(name, a.Value)
		return
	}
	was := c.known[name]
	for _, v := range []*expr.Value{a.Value, a.StandIn} {
		if v != nil {
			c.known[name] = typing.Either(c.known[name], c.become(name, v))
		}
	}
	if why := whyLeftOut(c.Steps[a.At]); why != "" && was != nil && was.Shape&datum.NullShape != 0 && c.known[name] != nil &&
		c.known[name].Why == "" {
		o := *c.known[name]
		o.Why = why
		c.known[name] = &o
	}
	if a.Value != nil {
		c.note(a.At, expr.StateRoot+"."+name, c.become(name, a.Value))
	}
}

// whyLeftOut says how a critical handler comes to leave nothing; empty for others,
// at which the proof of degradation looks.
func whyLeftOut(s steps.Step) string {
	if !s.IsCritical() || !s.UnderCondition() || s.GoesOn() != nil || s.Branch != nil {
		return ""
	}
	return fmt.Sprintf("%q sets it only when it is enabled", s.ID)
}

// note keeps what is known of a value wherever the i-th handler is sure to have
// run: in those whose condition implies its own.
func (c *walk) note(i int, key string, o *typing.Outline) {
	if s := c.Steps[i]; whyLeftOut(s) != "" {
		c.maybe[key] = given{s.Demands(c.Parsed), o}
	}
}

// surely puts into a scope what is known for a step whose condition implies that
// of the handlers that give it.
func (c *walk) surely(s steps.Step, sc *expr.Scope) {
	if len(c.maybe) == 0 || !s.UnderCondition() {
		return
	}
	demands := s.Demands(c.Parsed)
	known, responses := maps.Clone(sc.Known), maps.Clone(sc.Responses)
	for key, g := range c.maybe {
		if !expr.ImpliedBy(g.demands, demands) {
			continue
		}
		if name, ok := strings.CutPrefix(key, expr.StateRoot+"."); ok {
			known[name] = g.outline
		} else {
			responses[strings.TrimPrefix(key, "sources.")] = g.outline
		}
	}
	sc.Known, sc.Responses = known, responses
}

// become is what a name is once it is set to a value.
func (c *walk) become(name string, v *expr.Value) *typing.Outline {
	if contract := c.contract(name); contract != nil {
		return contract.Outline()
	}
	return v.Outline()
}

// checkFits holds what the i-th handler sends and sets against the schemas of
// their places.
func (c *walk) checkFits(i int) {
	h := c.Steps[i].Handler
	checkCall(c.Whole, h, c.Reporter)
	checkUse(c.Whole, h, c.Reporter)
	checkWith(c.Whole, h, c.Reporter)
	if e, ok := c.Types.Emission(h); ok && !e.Task {
		if name, ok := e.Type.Text(); ok {
			checkEmission(c.Whole, h, name, e.Payload, c.Reporter)
		}
	}
	for _, a := range c.Assignments(i) {
		contract := c.contract(a.Key.Name)
		if contract == nil {
			continue
		}
		for _, v := range []*expr.Value{a.Value, a.StandIn} {
			fits(c.Whole, v, contract, contract.Name, c.Reporter)
		}
	}
	for _, rule := range h.OnError {
		for j, k := range rule.Result.Keys() {
			if contract := c.contract(k.Name); contract != nil {
				fits(c.Whole, rule.Result.Elems[j], contract, contract.Name, c.Reporter)
			}
		}
	}
}

// checkEmission holds the payload of an event that a handler emits against the
// schema of its type.
func checkEmission(w *merge.Whole, h *tree.Handler, event string, payload *expr.Value, r *diag.Reporter) {
	contract := w.Bundle.Event(event).Contract()
	if contract == nil {
		return
	}
	if payload == nil {
		payload = &expr.Value{Span: h.PlaceOf("type", h.Span)} // null, which most schemas refuse
	}
	fits(w, payload, contract, contract.Name, r)
}

// whenFacts are the facts that hold in all handlers because the pipeline serves
// no other events. Configs may have changed since.
func whenFacts(e *expr.Expr) []expr.Fact {
	return slices.DeleteFunc(e.Holds(), func(f expr.Fact) bool { return !isUnder(f.Key, "event") })
}

// isUnder reports whether the key of a fact is about a part of a root.
func isUnder(key, root string) bool {
	return len(key) > len(root) && key[:len(root)+1] == root+expr.Between
}
