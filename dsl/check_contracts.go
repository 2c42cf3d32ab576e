package dsl

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
)

// An entry is one entry of a mapping.
type entry struct {
	key   expr.Key
	value *expr.Value
}

// checkContracts makes all schemas ready, and holds against them what is fixed
// before anything runs.
func (c *checker) checkContracts() {
	c.ready = newContracts(c.files, c.schemas, c.Reporter)
	c.checkNamed()
	for _, e := range c.bundle.Events {
		c.checkEventType(e)
	}
	c.checkConfigSchemas()
	c.checkTemplates()
	for _, s := range c.bundle.Services {
		s.api = c.ready.openAPI(s)
	}
	for _, f := range c.bundle.Flows {
		f.contracts = c.stateContracts(f.StateSchemas, f.SharedState)
	}
	for _, p := range c.bundle.Pipelines {
		p.contracts = c.stateContracts(p.StateSchemas, p.SharedState)
		if f := c.bundle.flows[p.Flow]; f != nil {
			// A name is declared by one of both; by both, it is an error of its own.
			maps.Copy(p.contracts, f.contracts)
		}
		for _, s := range p.Stages {
			if s.once != nil {
				s.once.contracts = c.stateContracts(s.StateSchemas, s.SharedState)
			}
			for _, h := range s.Handlers {
				h.response = c.ready.contract(h.ResponseSchema, "the response of "+h.ID)
				c.checkOperation(h)
			}
		}
	}
	for _, h := range c.bundle.Detached {
		h.response = c.ready.contract(h.ResponseSchema, "the response of "+h.ID)
	}
	for _, t := range c.bundle.Triggers {
		if payload, ok := t.Payload.Literal(); ok {
			c.checkFixed(c.bundle.Event(t.Event).Contract(), t.Payload, payload, t.PlaceOf("payload", t.PlaceOf("event", t.Span)))
		}
	}
}

// checkNamed makes the schemas ready that have names, whether anybody uses them
// or not.
func (c *checker) checkNamed() {
	for _, name := range diag.SortedKeys(c.schemas) {
		v := c.schemas[name]
		if !isSchemaName(name) {
			key := c.first["schema "+name]
			c.Errorf(key, rules.BadSchema, "", "the name of a schema: want %s, have %q", datum.TextForms["id"].Want, name)
		}
		if c.isSchema(v, name) {
			c.ready.contract(v, "schema "+name)
		}
	}
}

// isSchema reports what cannot be a schema, where the language itself takes any
// value.
func (c *checker) isSchema(v *expr.Value, name string) bool {
	c.checkKeywords(v)
	if mayBeSchema(v) || !v.Fixed() {
		return v.Fixed() // what holds expressions was reported
	}
	c.Errorf(head(v), rules.BadSchema, "", "schema %q: want %s, have %s", name, datum.Wants[datum.SchemaKind], describeValue(v))
	return false
}

// checkEventType makes the schema of a payload ready, and warns of one of a type that nobody
// serves: its name is probably mistyped, and the schema would check nothing.
func (c *checker) checkEventType(e *EventType) {
	c.checkKeywords(e.Payload)
	e.contract = c.ready.contract(e.Payload, "the payload of "+e.Type)
	if e.Type != "" && c.bundle.byEvent[e.Type] == nil && c.bundle.awaiting[e.Type] == nil && !c.partial {
		c.Warnf(e.PlaceOf("type", e.Span), rules.SchemaOfNothing, c.DidYouMean(e.Type, diag.NamesIn(c.bundle.byEvent)),
			"no pipeline serves event type %q", e.Type)
	}
}

// checkConfigSchemas makes the schemas of live settings ready, and holds their first values
// against them. They come after all documents: a schema may stand in another file.
func (c *checker) checkConfigSchemas() {
	configs := make(map[string]*Config, len(c.bundle.Configs))
	for _, config := range c.bundle.Configs {
		configs[config.Name] = config
	}
	for _, e := range c.configSchemas {
		config := configs[e.key.Name]
		if config == nil {
			c.unknownConfig(e.key)
			continue
		}
		if !c.isSchema(e.value, e.key.Name) {
			continue
		}
		config.contract = c.ready.contract(e.value, "config "+e.key.Name)
		c.checkFixed(config.contract, c.configValues[e.key.Name], config.Value, config.Span)
	}
}

// unknownConfig reports a schema of a setting that nobody declares.
func (c *checker) unknownConfig(k expr.Key) {
	if !c.partial {
		c.Errorf(k.Span, rules.SchemaOfNothing, c.DidYouMean(k.Name, func() []string { return c.configs }),
			"there is no config %q", k.Name)
	}
}

// stateContracts makes the schemas of a shared state ready and holds its first
// values against them. One of null has not been set yet.
func (c *checker) stateContracts(schemas, state *expr.Value) map[string]*Contract {
	out := make(map[string]*Contract)
	for i, k := range schemas.Keys() {
		first := state.Get(k.Name)
		if first == nil {
			known := func() []string {
				var names []string
				for _, key := range state.Keys() {
					names = append(names, key.Name)
				}
				return names
			}
			c.Errorf(k.Span, rules.SchemaOfNothing, c.DidYouMean(k.Name, known),
				"shared-state.%s is not declared beside state-schemas", k.Name)
			continue
		}
		if !c.isSchema(schemas.Elems[i], k.Name) {
			continue
		}
		contract := c.ready.contract(schemas.Elems[i], "shared-state."+k.Name)
		out[k.Name] = contract
		if value, ok := first.Literal(); ok && value != nil {
			c.checkFixed(contract, first, value, first.Span)
		}
	}
	return out
}

// checkFixed holds a fixed value against a contract; a nil one takes anything. whole is the
// place to name when the fault is in no part of v.
func (c *checker) checkFixed(contract *Contract, v *expr.Value, data any, whole diag.Span) {
	reportFaults(contract, v, data, whole, c.Reporter)
}

// reportFaults reports where a fixed value does not fit a contract.
func reportFaults(contract *Contract, v *expr.Value, data any, whole diag.Span, r *diag.Reporter) {
	err := contract.Check(data)
	if err == nil {
		return
	}
	for _, f := range func() *ContractError {
		target := &ContractError{}
		_ = errors.As(err, &target)
		return target
	}().Faults {
		at, path := whole, f.Path
		// What is missing has no place: the nearest part around it that was written has.
		for n := len(path); n >= 0; n-- {
			if part := v.At(path[:n]); part != nil {
				at = head(part)
				break
			}
		}
		d := diag.Diagnostic{Span: at, Code: rules.Misfit, Message: fmt.Sprintf("%s: %s", contract.Name, f)}
		if contract.at != (diag.Span{}) {
			d.Related = []diag.Related{{Span: head(&expr.Value{Span: contract.at}), Message: "its schema"}}
		}
		r.Report(d)
	}
}

// keywords are those of JSON Schema (draft 2020-12, and those of older drafts that are read), and those of OpenAPI that often stand among
// them, by what their values are: a schema, a mapping or list of schemas, or "" for what
// holds none. nullable is missing on purpose: only documents of OpenAPI 3.0 know it.
var keywords = map[string]string{
	"properties": "schemas", "patternProperties": "schemas", "$defs": "schemas", "definitions": "schemas", "dependentSchemas": "schemas",
	"items": "schema", "additionalProperties": "schema", "not": "schema", "if": "schema", "then": "schema", "else": "schema",
	"contains": "schema", "propertyNames": "schema", "unevaluatedProperties": "schema", "unevaluatedItems": "schema",
	"contentSchema":   "schema",
	"additionalItems": "schema",
	"allOf":           "list", "anyOf": "list", "oneOf": "list", "prefixItems": "list",
	"type": "", "enum": "", "const": "", "required": "", "format": "", "pattern": "", "minimum": "", "maximum": "", "exclusiveMinimum": "",
	"exclusiveMaximum": "", "multipleOf": "", "minLength": "", "maxLength": "", "minItems": "", "maxItems": "", "uniqueItems": "",
	"minContains": "", "maxContains": "", "minProperties": "", "maxProperties": "", "dependentRequired": "", "dependencies": "",
	"title": "", "description": "", "default": "", "examples": "", "example": "", "deprecated": "", "readOnly": "", "writeOnly": "",
	"contentEncoding": "", "contentMediaType": "", "discriminator": "", "xml": "", "externalDocs": "",
	"$ref": "", "$id": "", "$schema": "", "$anchor": "", "$comment": "", "$dynamicRef": "", "$dynamicAnchor": "", "$vocabulary": "",
}

// checkKeywords warns of words that JSON Schema does not know: it would pass over
// them, and so check nothing.
func (c *checker) checkKeywords(v *expr.Value) {
	if v == nil || v.Kind != expr.ValueMap {
		return
	}
	for i, k := range v.Names {
		item := v.Elems[i]
		what, known := keywords[k.Name]
		switch {
		case !known && !extension(k.Name):
			c.Warnf(k.Span, rules.Keyword, c.SuggestOr(k.Name, diag.NamesIn(keywords), "see https://json-schema.org/draft/2020-12/schema"),
				"JSON Schema has no word %q and passes over it", k.Name)
		case what == "schema":
			c.checkKeywords(item)
		case what == "schemas" || what == "list":
			for _, s := range item.Items() {
				c.checkKeywords(s)
			}
		}
	}
}

// extension tells the words that anybody may add: x- and a name.
func extension(name string) bool {
	return len(name) > 2 && slices.Contains([]string{"x-", "X-"}, name[:2])
}
