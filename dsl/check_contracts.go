package dsl

import (
	"maps"

	"procaas/dsl/contracts"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// checkContracts makes all schemas ready, and holds against them what is fixed
// before anything runs.
func (c *checker) checkContracts() {
	c.ready = contracts.New(c.Files, c.Schemas, c.Reporter)
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
		p.Contracts = c.stateContracts(p.StateSchemas, p.SharedState)
		if f := c.Bundle.Index.Flows[p.Flow]; f != nil {
			// A name is declared by one of both; by both, it is an error of its own.
			maps.Copy(p.Contracts, f.Contracts)
		}
		for _, s := range p.Stages {
			if s.Once() != nil {
				s.Once().Contracts = c.stateContracts(s.StateSchemas, s.SharedState)
			}
			for _, h := range s.Handlers {
				h.ResponseContract = c.ready.Of(h.ResponseSchema, "the response of "+h.ID)
				c.checkOperation(h, apis)
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

// checkNamed makes the schemas ready that have names, whether anybody uses them
// or not.
func (c *checker) checkNamed() {
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

// checkEventType makes the schema of a payload ready, and warns of one of a type that nobody
// serves: its name is probably mistyped, and the schema would check nothing.
func (c *checker) checkEventType(e *tree.EventType) {
	contracts.CheckKeywords(e.Payload, c.Reporter)
	e.PayloadContract = c.ready.Of(e.Payload, "the payload of "+e.Type)
	if e.Type != "" && c.Bundle.Index.Serving[e.Type] == nil && c.Bundle.Index.Awaiting[e.Type] == nil && !c.Partial {
		c.Warnf(e.PlaceOf("type", e.Span), rules.SchemaOfNothing, c.DidYouMean(e.Type, diag.NamesIn(c.Bundle.Index.Serving)),
			"no pipeline serves event type %q", e.Type)
	}
}

// checkConfigSchemas makes the schemas of live settings ready, and holds their first values
// against them. They come after all documents: a schema may stand in another file.
func (c *checker) checkConfigSchemas() {
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

// unknownConfig reports a schema of a setting that nobody declares.
func (c *checker) unknownConfig(k expr.Key) {
	if !c.Partial {
		c.Errorf(k.Span, rules.SchemaOfNothing, c.DidYouMean(k.Name, func() []string { return c.Configs }),
			"there is no config %q", k.Name)
	}
}

// stateContracts makes the schemas of a shared state ready and holds its first
// values against them. One of null has not been set yet.
func (c *checker) stateContracts(schemas, state *expr.Value) map[string]*contracts.Contract {
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
