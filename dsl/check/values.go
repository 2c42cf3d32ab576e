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

// This file follows the types of values through a pipeline: from the payload and the responses into the shared
// state, and on to the handlers that read it. It takes handlers in the order of their declaration, as if they
// ran one after the other.

// beginState sets what is known of the shared state before the first handler. State of the flow may come from
// any of its pipelines. Without a schema nothing is known of it.
func (c *walk) beginState() {
	c.view = view{make(map[string]*typing.Outline), make(map[string]*typing.Outline), make(map[string]given)}
	for name, first := range c.state {
		contract := c.Declared.Contracts[name]
		if contract == nil && c.Keeps(name) {
			continue // an earlier event may have set it to anything
		}
		c.known[name] = firstOutline(first, contract)
	}
}

// firstOutline returns what a name with an initial value may be: what its schema says, or the type of the value
// with unknown parts.
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
		s = datum.NumberShape // a price with the initial value 0 may become 9.5
	}
	return typing.OfShape(s).Supposed()
}

// settle records what handler i leaves for later ones. Its expressions are compiled.
func (c *walk) settle(i int) {
	h := c.Steps[i].Handler
	sure := h.AlwaysSucceeds() && !c.Steps[i].Stage.Final // there, others go on after a failure
	if _, twice := c.responses[h.ID]; twice {
		c.responses[h.ID] = nil // either of two handlers may have set it
	} else if o := responseOutline(h); o != nil && sure {
		c.responses[h.ID] = o
	} else {
		c.responses[h.ID] = o.Absent(whyLeftOut(c.Steps[i]))
		c.note(i, "sources."+h.ID, o)
	}
	for _, a := range c.Assignments(i) {
		c.forget(a.Key.Name) // a former test applied to the replaced value
		c.assign(a, sure)
	}
	for _, rule := range h.OnError {
		for j, k := range rule.Result.Keys() {
			c.known[k.Name] = typing.Either(c.known[k.Name], c.become(k.Name, rule.Result.Elems[j]))
		}
	}
}

// responseOutline returns the type of a handler's response after success.
func responseOutline(h *tree.Handler) *typing.Outline {
	o := h.Expected
	if h.ResponseContract != nil {
		o = h.ResponseContract.Outline()
	}
	if h.ForEach != nil {
		return responsesOf(h, o)
	}
	return o
}

// assign records one assignment. A name with a schema has the type of the schema once it is set. If the handler
// may be left out, the name may still have its former type.
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

// whyLeftOut returns how a critical handler may leave a name unset. It returns "" for others, which the proof
// of degradation checks.
func whyLeftOut(s steps.Step) string {
	if !s.IsCritical() || !s.UnderCondition() || s.GoesOn() != nil || s.Branch != nil {
		return ""
	}
	return fmt.Sprintf("%q sets it only when it is enabled", s.ID)
}

// note keeps what is known of a value wherever handler i has certainly run: in handlers whose condition implies
// its own.
func (c *walk) note(i int, key string, o *typing.Outline) {
	if s := c.Steps[i]; whyLeftOut(s) != "" {
		c.maybe[key] = given{s.Demands(c.Parsed), o}
	}
}

// surely adds to a scope what is known in steps whose condition implies the condition of the handlers that set
// it.
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

// become returns the type of a name after an assignment.
func (c *walk) become(name string, v *expr.Value) *typing.Outline {
	if contract := c.contract(name); contract != nil {
		return contract.Outline()
	}
	return v.Outline()
}

// checkFits checks what handler i sends and sets against the schemas.
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

// checkEmission checks the payload of an emitted event against the schema of its type.
func checkEmission(w *merge.Whole, h *tree.Handler, event string, payload *expr.Value, r *diag.Reporter) {
	if payload == nil {
		payload = &expr.Value{Span: h.PlaceOf("type", h.Span)} // null, which most schemas refuse
	}
	Payload(w, event, payload, r)
}

// Payload reports where a payload does not fit the schema of its type of events.
func Payload(w *merge.Whole, event string, payload *expr.Value, r *diag.Reporter) {
	if contract := w.Bundle.Event(event).Contract(); contract != nil {
		fits(w, payload, contract, contract.Name, r)
	}
}

// whenFacts returns facts that hold in all handlers, because the pipeline serves no other events. It excludes
// configs, which may change.
func whenFacts(e *expr.Expr) []expr.Fact {
	return slices.DeleteFunc(slices.Clone(e.Holds()), func(f expr.Fact) bool { return !isUnder(f.Key, "event") })
}

// isUnder reports whether the key of a fact is below a root.
func isUnder(key, root string) bool {
	return len(key) > len(root) && key[:len(root)+1] == root+expr.Between
}
