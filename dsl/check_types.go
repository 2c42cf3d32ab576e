package dsl

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
)

// This file follows what is known of values through a pipeline: from the payload
// and the responses into the shared state, and on to the handlers that read it.
// Handlers are taken in the order of declaration; the state that each reads is as
// if they had run in it.

// payloadOf is what the payload of an event may be of one of these types; nil
// when one of them has no schema.
func (c *checker) payloadOf(events []string) *typing.Outline {
	var out *typing.Outline
	for i, event := range events {
		contract := c.Bundle.Event(event).Contract()
		if contract == nil {
			return nil
		}
		if i == 0 {
			out = contract.Outline()
			continue
		}
		out = typing.Either(out, contract.Outline())
	}
	return out
}

// configOutlines is what is known of the live settings.
func (c *checker) configOutlines() map[string]*typing.Outline {
	out := make(map[string]*typing.Outline)
	for _, config := range c.Bundle.Configs {
		if config.Contract.Outline() != nil {
			out[config.Name] = config.Contract.Outline()
		}
	}
	return out
}

// beginState is what is known of the shared state before the first handler. What
// the flow keeps may be what any of its pipelines has left; without a schema
// nothing is known of it.
func (c *pipelineCheck) beginState() {
	c.view = view{make(map[string]*typing.Outline), make(map[string]*typing.Outline), make(map[string]given)}
	for name, first := range c.state {
		isKept := c.flowState().Get(name) != nil
		switch contract := c.pipeline.Contracts[name]; {
		case contract != nil && first == nil:
			c.known[name] = contract.Outline().Absent("")
		case contract != nil:
			c.known[name] = contract.Outline()
		case isKept: // an earlier event may have left anything in it
		case first == nil:
			c.known[name] = &typing.Outline{Shape: datum.NullShape}
		default:
			c.known[name] = firstOutline(first)
		}
	}
}

// flowState is what the flow keeps between the events of a key; nil without a flow.
func (c *pipelineCheck) flowState() *expr.Value {
	if c.flow == nil {
		return nil
	}
	return c.flow.SharedState
}

// firstOutline is what a name may be that begins with a value: of its type, with
// any parts.
func firstOutline(v any) *typing.Outline {
	s := datum.ShapeOfValue(v)
	if s&datum.NumberShape != 0 {
		s = datum.NumberShape // a price that begins as 0 may become 9.5
	}
	return typing.OfShape(s).Supposed()
}

// settle notes what the i-th handler leaves for those that follow. Its
// expressions are compiled.
func (c *pipelineCheck) settle(i int) {
	h := c.steps[i].Handler
	sure := h.AlwaysSucceeds()
	if _, twice := c.responses[h.ID]; twice {
		c.responses[h.ID] = nil // it may be either of two handlers
	} else if o := responseOutline(h); o != nil && sure {
		c.responses[h.ID] = o
	} else {
		c.responses[h.ID] = o.Absent(c.steps[i].whyLeftOut())
		c.note(i, "sources."+h.ID, o)
	}
	for _, a := range c.assignments(i) {
		c.forget(a.key.Name) // a test before was about the value that is replaced
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
func (c *pipelineCheck) assign(a assignment, sure bool) {
	name := a.key.Name
	delete(c.maybe, expr.StateRoot+"."+name)
	if a.value != nil && sure {
		c.known[name] = c.become(name, a.value)
		return
	}
	was := c.known[name]
	for _, v := range []*expr.Value{a.value, a.standIn} {
		if v != nil {
			c.known[name] = typing.Either(c.known[name], c.become(name, v))
		}
	}
	if why := c.steps[a.step].whyLeftOut(); why != "" && was != nil && was.Shape&datum.NullShape != 0 && c.known[name] != nil &&
		c.known[name].Why == "" {
		o := *c.known[name]
		o.Why = why
		c.known[name] = &o
	}
	if a.value != nil {
		c.note(a.step, expr.StateRoot+"."+name, c.become(name, a.value))
	}
}

// whyLeftOut says how a critical handler comes to leave nothing; empty for others,
// at which the proof of degradation looks.
func (s step) whyLeftOut() string {
	if !s.IsCritical() || !s.underCondition() || s.GoesOn() != nil || s.Branch != nil {
		return ""
	}
	return fmt.Sprintf("%q gives it only when it is enabled", s.ID)
}

// note keeps what is known of a value wherever the i-th handler is sure to have
// run: in those whose condition implies its own.
func (c *pipelineCheck) note(i int, key string, o *typing.Outline) {
	if s := c.steps[i]; s.whyLeftOut() != "" {
		c.maybe[key] = given{s.demands(c.Parsed), o}
	}
}

// surely puts into a scope what is known for a step whose condition implies that
// of the handlers that give it.
func (c *pipelineCheck) surely(s step, sc *expr.Scope) {
	if len(c.maybe) == 0 || !s.underCondition() {
		return
	}
	demands := s.demands(c.Parsed)
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
func (c *pipelineCheck) become(name string, v *expr.Value) *typing.Outline {
	if contract := c.contract(name); contract != nil {
		return contract.Outline()
	}
	return v.Outline()
}

// checkFits holds what the i-th handler sends and sets against the schemas of
// their places.
func (c *pipelineCheck) checkFits(i int) {
	h := c.steps[i].Handler
	c.checkCall(h)
	c.checkUse(h)
	c.checkWith(h)
	if e, ok := c.Types.Emission(h); ok && !e.Task {
		if name, ok := e.Type.Text(); ok {
			c.checkEmission(h, name, e.Payload)
		}
	}
	for _, a := range c.assignments(i) {
		contract := c.contract(a.key.Name)
		if contract == nil {
			continue
		}
		for _, v := range []*expr.Value{a.value, a.standIn} {
			c.fits(v, contract, contract.Name)
		}
	}
	for _, rule := range h.OnError {
		for j, k := range rule.Result.Keys() {
			if contract := c.contract(k.Name); contract != nil {
				c.fits(rule.Result.Elems[j], contract, contract.Name)
			}
		}
	}
}

// checkEmission holds the payload of an event that a handler emits against the
// schema of its type.
func (c *pipelineCheck) checkEmission(h *tree.Handler, event string, payload *expr.Value) {
	contract := c.Bundle.Event(event).Contract()
	if contract == nil {
		return
	}
	if payload == nil {
		payload = &expr.Value{Span: h.PlaceOf("type", h.Span)} // null, which most schemas refuse
	}
	c.fits(payload, contract, contract.Name)
}

// whenFacts are the facts that hold in all handlers because the pipeline serves
// no other events. Configs may have changed since.
func whenFacts(e *expr.Expr) []expr.Fact {
	return slices.DeleteFunc(e.Holds(), func(f expr.Fact) bool { return !isUnder(f.Key, "event") })
}

// isUnder tells whether the key of a fact is about a part of a root.
func isUnder(key, root string) bool {
	return len(key) > len(root) && key[:len(root)+1] == root+expr.Between
}
