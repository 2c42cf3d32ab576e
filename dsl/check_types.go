package dsl

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// This file follows what is known of values through a pipeline: from the payload
// and the responses into the shared state, and on to the handlers that read it.
// Handlers are taken in the order of declaration; the state that each reads is as
// if they had run in it.

// payloadOf is what the payload of an event may be of one of these types; nil
// when one of them has no schema.
func (c *checker) payloadOf(events []string) *outline {
	var out *outline
	for i, event := range events {
		contract := c.bundle.Event(event).Contract()
		if contract == nil {
			return nil
		}
		if i == 0 {
			out = contract.outline
			continue
		}
		out = either(out, contract.outline)
	}
	return out
}

// configOutlines is what is known of the live settings.
func (c *checker) configOutlines() map[string]*outline {
	out := make(map[string]*outline)
	for _, config := range c.bundle.Configs {
		if config.contract != nil {
			out[config.Name] = config.contract.outline
		}
	}
	return out
}

// beginState is what is known of the shared state before the first handler. What
// the flow keeps may be what any of its pipelines has left; without a schema
// nothing is known of it.
func (c *pipelineCheck) beginState() {
	c.view = view{make(map[string]*outline), make(map[string]*outline), make(map[string]given)}
	kept := c.flowState().Keys()
	for name, first := range c.state {
		_, isKept := hasKey(kept, name)
		switch contract := c.pipeline.contracts[name]; {
		case contract != nil && first == nil:
			c.known[name] = contract.outline.absent("")
		case contract != nil:
			c.known[name] = contract.outline
		case isKept: // an earlier event may have left anything in it
		case first == nil:
			c.known[name] = &outline{shape: nullShape}
		default:
			c.known[name] = firstOutline(first)
		}
	}
}

// flowState is what the flow keeps between the events of a key; nil without a flow.
func (c *pipelineCheck) flowState() *Value {
	if c.flow == nil {
		return nil
	}
	return c.flow.SharedState
}

// firstOutline is what a name may be that begins with a value: of its type, with
// any parts.
func firstOutline(v any) *outline {
	s := shapeOfValue(v)
	if s&numberShape != 0 {
		s = numberShape // a price that begins as 0 may become 9.5
	}
	return ofShape(s).supposed()
}

// settle notes what the i-th handler leaves for those that follow. Its
// expressions are compiled.
func (c *pipelineCheck) settle(i int) {
	h := c.steps[i].Handler
	sure := h.alwaysSucceeds()
	if _, twice := c.responses[h.ID]; twice {
		c.responses[h.ID] = nil // it may be either of two handlers
	} else if o := h.responseOutline(); o != nil && sure {
		c.responses[h.ID] = o
	} else {
		c.responses[h.ID] = o.absent(c.steps[i].whyLeftOut())
		c.note(i, "sources."+h.ID, o)
	}
	for _, a := range c.assignments(i) {
		c.forget(a.key.Name) // a test before was about the value that is replaced
		c.assign(a, sure)
	}
	for _, rule := range h.OnError {
		for j, k := range rule.Result.Keys() {
			c.known[k.Name] = either(c.known[k.Name], c.become(k.Name, rule.Result.items[j]))
		}
	}
}

// alwaysSucceeds tells whether a run cannot get past the handler without its
// success.
func (h *Handler) alwaysSucceeds() bool {
	goesOn := func(o *OnError) bool { return o.GoesOn() }
	return h.IsCritical() && h.Enabled.IsNull() && h.Rollout == nil && !slices.ContainsFunc(h.OnError, goesOn)
}

// responseOutline is what the response of the handler is once it has succeeded.
func (h *Handler) responseOutline() *outline {
	o := h.expected
	if h.response != nil {
		o = h.response.outline
	}
	if h.ForEach != nil {
		return h.ForEach.responses(o)
	}
	return o
}

// assign follows one assignment. A name that has a schema is as that says from
// the moment it is set; one whose handler may be left out may be as it was.
func (c *pipelineCheck) assign(a assignment, sure bool) {
	name := a.key.Name
	delete(c.maybe, stateRoot+"."+name)
	if a.value != nil && sure {
		c.known[name] = c.become(name, a.value)
		return
	}
	was := c.known[name]
	for _, v := range []*Value{a.value, a.standIn} {
		if v != nil {
			c.known[name] = either(c.known[name], c.become(name, v))
		}
	}
	if why := c.steps[a.step].whyLeftOut(); why != "" && was != nil && was.shape&nullShape != 0 && c.known[name] != nil && c.known[name].why == "" {
		o := *c.known[name]
		o.why = why
		c.known[name] = &o
	}
	if a.value != nil {
		c.note(a.step, stateRoot+"."+name, c.become(name, a.value))
	}
}

// whyLeftOut says how a critical handler comes to leave nothing; empty for others,
// at which the proof of degradation looks.
func (s step) whyLeftOut() string {
	if !s.IsCritical() || !s.underCondition() || s.goesOn() != nil || s.Branch != nil {
		return ""
	}
	return fmt.Sprintf("%q gives it only when it is enabled", s.ID)
}

// note keeps what is known of a value wherever the i-th handler is sure to have
// run: in those whose condition implies its own.
func (c *pipelineCheck) note(i int, key string, o *outline) {
	if s := c.steps[i]; s.whyLeftOut() != "" {
		c.maybe[key] = given{s.demands(c.parsed), o}
	}
}

// surely puts into a scope what is known for a step whose condition implies that
// of the handlers that give it.
func (c *pipelineCheck) surely(s step, sc *scope) {
	if len(c.maybe) == 0 || !s.underCondition() {
		return
	}
	demands := s.demands(c.parsed)
	known, responses := maps.Clone(sc.known), maps.Clone(sc.responses)
	for key, g := range c.maybe {
		if !impliedBy(g.demands, demands) {
			continue
		}
		if name, ok := strings.CutPrefix(key, stateRoot+"."); ok {
			known[name] = g.outline
		} else {
			responses[strings.TrimPrefix(key, "sources.")] = g.outline
		}
	}
	sc.known, sc.responses = known, responses
}

// become is what a name is once it is set to a value.
func (c *pipelineCheck) become(name string, v *Value) *outline {
	if contract := c.contract(name); contract != nil {
		return contract.outline
	}
	return v.outline()
}

// outline is what is known of a value whose expressions are compiled.
func (v *Value) outline() *outline {
	if v == nil {
		return &outline{shape: nullShape}
	}
	switch v.kind {
	case valueExpr:
		return v.expr.result
	case valueSecret:
		return ofShape(secretShape)
	case valueList:
		out := &outline{shape: listShape}
		for i, item := range v.items {
			if i == 0 {
				out.elem = item.outline()
				continue
			}
			out.elem = either(out.elem, item.outline())
		}
		return out
	case valueMap:
		out := &outline{shape: mapShape, closed: true, inferred: true, members: make(map[string]*member, len(v.keys))}
		for i, k := range v.keys {
			out.members[k.Name] = &member{v.items[i].outline(), true}
		}
		return out
	}
	return outlineOf(v.literal)
}

// checkFits holds what the i-th handler sends and sets against the schemas of
// their places.
func (c *pipelineCheck) checkFits(i int) {
	h := c.steps[i].Handler
	c.checkCall(h)
	c.checkUse(h)
	c.checkWith(h)
	if e, ok := c.emission(h); ok && !e.Task {
		if name, ok := e.Type.text(); ok {
			c.checkEmission(h, name, e.Payload)
		}
	}
	for _, a := range c.assignments(i) {
		contract := c.contract(a.key.Name)
		if contract == nil {
			continue
		}
		for _, v := range []*Value{a.value, a.standIn} {
			c.fits(v, contract, contract.Name)
		}
	}
	for _, rule := range h.OnError {
		for j, k := range rule.Result.Keys() {
			if contract := c.contract(k.Name); contract != nil {
				c.fits(rule.Result.items[j], contract, contract.Name)
			}
		}
	}
}

// checkEmission holds the payload of an event that a handler emits against the
// schema of its type.
func (c *pipelineCheck) checkEmission(h *Handler, event string, payload *Value) {
	contract := c.bundle.Event(event).Contract()
	if contract == nil {
		return
	}
	if payload == nil {
		payload = &Value{Span: h.places.of("type", h.Span)} // null, which most schemas refuse
	}
	c.fits(payload, contract, contract.Name)
}

// whenFacts are the facts that hold in all handlers because the pipeline serves
// no other events. Configs may have changed since.
func whenFacts(e *Expr) []fact {
	return slices.DeleteFunc(e.holds(), func(f fact) bool { return !isUnder(f.key, "event") })
}

// isUnder tells whether the key of a fact is about a part of a root.
func isUnder(key, root string) bool { return len(key) > len(root) && key[:len(root)+1] == root+between }

// holds lists the facts that hold when a condition is true.
func (e *Expr) holds() []fact {
	if e == nil {
		return nil
	}
	return slices.Clone(e.facts)
}

// fails lists the facts that hold when a condition is false.
func (e *Expr) fails() []fact {
	if e == nil {
		return nil
	}
	return slices.Clone(e.denied)
}
