package check

import (
	"fmt"
	"maps"

	"procaas/dsl/contracts"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// A readying compiles the schemas of a whole.
type readying struct {
	*merge.Whole
	*diag.Reporter
	ready *contracts.Set
}

// Contracts compiles all schemas, and checks constant values against them.
func Contracts(w *merge.Whole, r *diag.Reporter) {
	c := &readying{w, r, contracts.New(w.Files, w.Schemas, r)}
	c.checkNamed()
	for _, e := range c.Bundle.Events {
		c.checkEventType(e)
	}
	c.checkConfigSchemas()
	c.checkTemplates()
	apis := map[string]*contracts.API{} // by service
	for _, s := range c.Bundle.Services {
		if s.OpenAPI == "" {
			continue
		}
		if api := c.ready.API(s.ID, s.OpenAPI, s.PlaceOf("openapi", s.Span)); c.Bundle.Index.Services[s.ID] == s {
			apis[s.ID] = api
		}
	}
	for _, f := range c.Bundle.Flows {
		f.Contracts = c.stateContracts(f.StateSchemas, f.SharedState)
	}
	for _, p := range c.Bundle.Pipelines {
		if p.CanBeCalled() || p.OutputSchemas != nil {
			c.calledContracts(p)
		}
		p.Contracts = c.stateContracts(p.StateSchemas, p.SharedState)
		if f := c.Bundle.Index.Flows[p.Flow]; f != nil {
			// One of the two declares a name. If both do, that is an error of its own.
			maps.Copy(p.Contracts, f.Contracts)
		}
		for _, s := range p.Stages {
			if s.Once() != nil {
				s.Once().Contracts = c.stateContracts(s.StateSchemas, s.SharedState)
			}
			for _, h := range s.Handlers {
				h.ResponseContract = c.ready.Of(h.ResponseSchema, "the response of "+h.ID)
				checkOperation(c.Whole, h, apis)
			}
		}
	}
	for _, h := range c.Bundle.Detached {
		h.ResponseContract = c.ready.Of(h.ResponseSchema, "the response of "+h.ID)
	}
	for _, t := range c.Bundle.Triggers {
		if payload, ok := t.Payload.Literal(); ok {
			c.Bundle.Event(t.Event).Contract().Report(t.Payload, payload, t.PlaceOf("payload", t.PlaceOf("event", t.Span)), c.Reporter)
		}
	}
}

// checkNamed compiles the schemas that have names, even unused ones.
func (c *readying) checkNamed() {
	for _, name := range diag.SortedKeys(c.Schemas) {
		v := c.Schemas[name]
		if !contracts.IsSchemaName(name) {
			key := c.DeclaredAt("schema", name)
			c.Errorf(key, rules.BadSchema, "", "the name of a schema: want %s, have %q", datum.TextForms["id"].Want, name)
		}
		if contracts.IsSchema(v, name, c.Reporter) {
			c.ready.Of(v, "schema "+name)
		}
	}
}

// checkEventType compiles the schema of a payload. It warns if no pipeline serves the type: the name is
// probably mistyped, and the schema would check nothing.
func (c *readying) checkEventType(e *tree.EventType) {
	contracts.CheckKeywords(e.Payload, c.Reporter)
	e.PayloadContract = c.ready.Of(e.Payload, "the payload of "+e.Type)
	if e.Type != "" && c.Bundle.Index.Serving[e.Type] == nil && c.Bundle.Index.Awaiting[e.Type] == nil && !c.Partial {
		c.Warnf(e.PlaceOf("type", e.Span), rules.SchemaOfNothing, c.DidYouMean(e.Type, diag.NamesIn(c.Bundle.Index.Serving)),
			"no pipeline serves event type %q", e.Type)
	}
}

// checkConfigSchemas compiles the schemas of live settings, and checks initial values against them. It runs
// after all documents are read, since a schema may be in another file.
func (c *readying) checkConfigSchemas() {
	configs := make(map[string]*tree.Config, len(c.Bundle.Configs))
	for _, config := range c.Bundle.Configs {
		configs[config.Name] = config
	}
	for _, e := range c.ConfigSchemas {
		config := configs[e.Key.Name]
		if config == nil {
			c.unknownConfig(e.Key)
			continue
		}
		if !contracts.IsSchema(e.Value, e.Key.Name, c.Reporter) {
			continue
		}
		config.Contract = c.ready.Of(e.Value, "config "+e.Key.Name)
		config.Contract.Report(c.ConfigValues[e.Key.Name], config.Value, config.Span, c.Reporter)
	}
}

// unknownConfig reports a schema of an undeclared setting.
func (c *readying) unknownConfig(k expr.Key) {
	if !c.Partial {
		c.Errorf(k.Span, rules.SchemaOfNothing, c.DidYouMean(k.Name, func() []string { return c.Configs }),
			"there is no config %q", k.Name)
	}
}

// stateContracts compiles the schemas of a shared state and checks the initial values against them. Null means
// that a name is not set yet.
func (c *readying) stateContracts(schemas, state *expr.Value) map[string]*contracts.Contract {
	out := make(map[string]*contracts.Contract)
	for i, k := range schemas.Keys() {
		first := state.Get(k.Name)
		if first == nil {
			known := state.KeyNames
			c.Errorf(k.Span, rules.SchemaOfNothing, c.DidYouMean(k.Name, known),
				"shared-state.%s is not declared beside state-schemas", k.Name)
			continue
		}
		if !contracts.IsSchema(schemas.Elems[i], k.Name, c.Reporter) {
			continue
		}
		contract := c.ready.Of(schemas.Elems[i], "shared-state."+k.Name)
		out[k.Name] = contract
		if value, ok := first.Literal(); ok && value != nil {
			contract.Report(first, value, first.Span, c.Reporter)
		}
	}
	return out
}

// calledContracts compiles the schemas of the inputs and outputs of a called pipeline.
func (c *readying) calledContracts(p *tree.Pipeline) {
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
