package dsl

import (
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/contracts"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
)

// maxCallDepth bounds how deep calls of pipelines are nested: each level is a part of
// the checkpoint of the one above.
const maxCallDepth = 8

// calledRoots are the names that the expressions of such a pipeline may begin with.
var calledRoots = []string{expr.InputsRoot, "shared-state", "sources", "configs", "flow", "run"}

// checkCalls finds out which pipelines call which, and reports what cannot be called.
func (c *checker) checkCalls() {
	called := make(map[string]bool)
	for _, p := range c.Bundle.Pipelines {
		for _, s := range p.Stages {
			for _, h := range s.Handlers {
				if h.Call == nil || h.Call.Pipeline == "" {
					continue
				}
				called[h.Call.Pipeline] = true
				c.checkCallee(h)
			}
		}
	}
	levels := make(map[*tree.Pipeline]int) // so that each pipeline is looked at once
	for _, p := range c.Bundle.Pipelines {
		if c.Bundle.Index.Pipelines[p.ID] == p {
			c.level(p, levels, nil)
		}
		if p.IsCalled() {
			c.checkCalled(p, called[p.ID])
		}
	}
}

// checkCallee reports a call of what is not there, or is not called.
func (c *checker) checkCallee(h *tree.Handler) {
	at := h.Call.PlaceOf("pipeline", h.Call.Span)
	p := c.Bundle.Index.Pipelines[h.Call.Pipeline]
	switch {
	case p == nil:
		known := func() []string {
			var out []string
			for _, p := range c.Bundle.Pipelines {
				if p.IsCalled() {
					out = append(out, p.ID)
				}
			}
			return out
		}
		c.unknown(at, rules.Call, "pipeline", h.Call.Pipeline, known)
	case !p.IsCalled():
		c.Report(diag.Diagnostic{
			Span: at, Code: rules.Call, Message: fmt.Sprintf("pipeline %q is run by events, not by calls", p.ID),
			Hint:    "let it declare inputs: or outputs:, or emit its event",
			Related: []diag.Related{{Span: p.PlaceOf("id", p.Span), Message: "the pipeline"}},
		})
	default:
		c.checkInputs(h, p)
	}
}

// checkInputs compares the names that a call gives with those that the pipeline wants.
func (c *checker) checkInputs(h *tree.Handler, p *tree.Pipeline) {
	with := h.Call.With
	for _, k := range with.Keys() {
		if p.Inputs.Get(k.Name) == nil {
			known := p.Inputs.KeyNames
			c.Report(diag.Diagnostic{
				Span: k.Span, Code: rules.Call, Message: fmt.Sprintf("pipeline %q has no input %q", p.ID, k.Name), Hint: c.DidYouMean(k.Name, known),
				Related: []diag.Related{{Span: p.PlaceOf("inputs", p.PlaceOf("id", p.Span)), Message: "its inputs"}},
			})
		}
	}
	for i, k := range p.Inputs.Keys() {
		if with.Get(k.Name) == nil && p.Inputs.Elems[i].Get("default") == nil {
			c.Report(diag.Diagnostic{
				Span: h.Call.PlaceOf("pipeline", h.Call.Span), Code: rules.Call, Message: fmt.Sprintf("pipeline %q needs the input %q", p.ID,
					k.Name),
				Hint:    "add with: {" + k.Name + ": …}, or give its schema a default",
				Related: []diag.Related{{Span: k.Span, Message: "declared here"}},
			})
		}
	}
}

// level tells how many levels of calls are below a pipeline, and reports those that lead
// back to where they came from. way is how it came here. A call that closes a circle does
// not count as a level: it is an error of its own, and the search has to end.
func (c *checker) level(p *tree.Pipeline, known map[*tree.Pipeline]int, way []*tree.Pipeline) int {
	if n, ok := known[p]; ok {
		return n
	}
	way = append(slices.Clip(way), p)
	level := 0
	for _, s := range p.Stages {
		for _, h := range s.Handlers {
			if h.Call == nil {
				continue
			}
			at := h.Call.PlaceOf("pipeline", h.Call.Span)
			next := c.Bundle.Index.Pipelines[h.Call.Pipeline]
			if i := slices.Index(way, next); next != nil && i >= 0 {
				var ids []string
				for _, q := range append(way[i:], next) {
					ids = append(ids, q.ID)
				}
				c.Errorf(at, rules.Call, "emit an event to begin anew, or repeat with for-each", "pipelines call themselves: %s",
					strings.Join(ids, " → "))
				continue
			}
			if next == nil {
				continue
			}
			below := c.level(next, known, way) + 1
			if below == maxCallDepth+1 { // and not above: the callers would repeat the message
				c.Errorf(at, rules.Call, "emit an event in place of one of the calls", "calls are nested more than %d deep", maxCallDepth)
			}
			level = max(level, below)
		}
	}
	known[p], p.Level = level, level
	return level
}

// checkCalled checks what a pipeline says that others call.
func (c *checker) checkCalled(p *tree.Pipeline, called bool) {
	for _, name := range []string{"on", "when", "flow"} {
		if at := p.PlaceOf(name, diag.Span{}); at != (diag.Span{}) {
			c.Errorf(at, rules.Call, "delete it, or delete inputs: and outputs:", "pipeline %q is run by calls, so it has no %s", p.ID, name)
		}
	}
	if !called && !c.Partial { // the caller may be in a file that could not be read
		c.Warnf(p.PlaceOf("id", p.Span), rules.Call, "call it: call: {pipeline: "+p.ID+"}, or delete inputs: and outputs: to run it by events",
			"nobody calls pipeline %q", p.ID)
	}
	p.InputContracts, p.OutputContracts = make(map[string]*contracts.Contract), make(map[string]*contracts.Contract)
	for i, k := range p.Inputs.Keys() {
		schema := p.Inputs.Elems[i]
		if !contracts.IsSchema(schema, k.Name, c.Reporter) {
			continue
		}
		p.InputContracts[k.Name] = c.ready.Of(schema, fmt.Sprintf("input %s of %s", k.Name, p.ID))
		if preset := schema.Get("default"); preset != nil {
			if data, ok := preset.Literal(); ok {
				p.InputContracts[k.Name].Report(preset, data, preset.Span, c.Reporter)
			}
		}
	}
	for i, k := range p.OutputSchemas.Keys() {
		if p.Outputs.Get(k.Name) == nil {
			known := p.Outputs.KeyNames
			c.Errorf(k.Span, rules.SchemaOfNothing, c.DidYouMean(k.Name, known), "there is no output %q beside output-schemas", k.Name)
			continue
		}
		if contracts.IsSchema(p.OutputSchemas.Elems[i], k.Name, c.Reporter) {
			p.OutputContracts[k.Name] = c.ready.Of(p.OutputSchemas.Elems[i], fmt.Sprintf("output %s of %s", k.Name, p.ID))
		}
	}
}

// checkOutputs compiles the outputs of a pipeline, which read what is known behind its
// last stage, and notes what they are for those who call it.
func (c *pipelineCheck) checkOutputs() {
	p := c.pipeline
	if !p.IsCalled() {
		return
	}
	sc := c.scopeBefore(nil, len(c.steps))
	spec.Compile(p.Outputs, nil, sc, c.Reporter)
	members := make(map[string]*typing.Member)
	for i, k := range p.Outputs.Keys() {
		v, o := p.Outputs.Elems[i], p.Outputs.Elems[i].Outline()
		if contract := p.OutputContracts[k.Name]; contract != nil {
			c.fits(v, contract, contract.Name)
			o = contract.Outline() // the promise, which the engine holds the value against
		}
		members[k.Name] = &typing.Member{Outline: o, Required: true}
	}
	p.Response = &typing.Outline{Shape: datum.MapShape, Closed: true, Members: members}
}

// checkUseOfCall reports fields that do not go with call: they are about one attempt at a
// service, and a call of a pipeline is as many attempts as its handlers make.
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
			hint := "say it of the handlers of pipeline " + h.Call.Pipeline
			switch name {
			case "fallback":
				hint = "say on-error: [{then: continue, result: {…}}], or give the handlers of the pipeline a fallback"
			case "response-schema":
				hint = "say output-schemas: of pipeline " + h.Call.Pipeline
			}
			r.Errorf(span, rules.Call, hint, "handler %q calls a pipeline; field %q is about calls of services", h.ID, name)
		}
	}
}

// checkWith holds what a call gives against the schemas of the inputs.
func (c *pipelineCheck) checkWith(h *tree.Handler) {
	if h.Call == nil {
		return
	}
	p := c.Bundle.Index.Pipelines[h.Call.Pipeline]
	if p == nil {
		return // reported
	}
	for i, k := range h.Call.With.Keys() {
		if contract := p.InputContracts[k.Name]; contract != nil {
			c.fits(h.Call.With.Elems[i], contract, contract.Name)
		}
	}
}

// checkOutputs reports outputs that nobody may have set, as if a last, critical handler
// read them.
func (p *proof) checkOutputs() {
	if p.pipeline.Outputs == nil {
		return
	}
	at := p.pipeline.PlaceOf("outputs", p.pipeline.Span)
	h := &tree.Handler{ID: "outputs", Span: at} // critical, as any handler is that does not say otherwise
	p.steps = append(slices.Clip(p.steps), step{Handler: h, stage: &tree.Stage{ID: "outputs"}})
	reported := make(map[string]bool)
	for _, read := range p.pipeline.Outputs.Reads() {
		p.checkRead(h, read, len(p.steps)-1, nil, reported)
	}
}
