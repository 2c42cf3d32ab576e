package tree

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/source"
	"procaas/dsl/spec"
)

// JSONSchema returns the JSON Schema (draft 2020-12) of files of the language with these handler types, for editors.
// dsl.Load also refuses what it refuses, and checks more.
func (l *Language) JSONSchema(types []Type) ([]byte, error) {
	b := newSchemaBuilder()
	root := b.object(l.File(), false)
	b.addTypes(types, "handler", 0)
	b.addTypes(types, "verify", 2) // done, and a field of a request
	b.addTypes(types, "compensation", 1)
	root["type"] = []string{"object", "null"}
	return b.encode(root, "ProcaaS pipelines")
}

// FileSchema returns the JSON Schema of another kind of file, see [spec.OfFile].
func FileSchema(title string, s *spec.Spec) ([]byte, error) {
	b := newSchemaBuilder()
	return b.encode(b.object(s, false), title)
}

// encode completes the schema of a file.
func (b *schemaBuilder) encode(root schema, title string) ([]byte, error) {
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = title
	root["$defs"] = b.defs

	var out bytes.Buffer
	err := datum.WriteJSON(&out, root)
	return out.Bytes(), err
}

// A schema is a JSON Schema as data.
type schema map[string]any

// A schemaBuilder derives schemas from Specs. The mappings of the language become definitions with the names of
// their structs.
type schemaBuilder struct{ defs map[string]any }

func newSchemaBuilder() *schemaBuilder {
	return &schemaBuilder{defs: map[string]any{
		"expression": schema{
			"type":        "string",
			"description": "An expression, tagged !$, or a secret, tagged !secret.",
		},
	}}
}

// object describes a mapping. In the body of a handler, operators of the first version of the language may also
// set its fields.
func (b *schemaBuilder) object(s *spec.Spec, body bool) schema {
	properties, byOperator := schema{}, []string(nil)
	var required []string
	var either []any
	for _, f := range s.Fields {
		if f.Name == "" {
			continue
		}
		properties[f.Name] = b.field(f)
		if !f.NoExpr {
			byOperator = append(byOperator, regexp.QuoteMeta(f.Name))
		}
		switch {
		case f.Required && f.NoExpr:
			required = append(required, f.Name)
		case f.Required:
			either = append(either, schema{"anyOf": givenBy(f.Name)})
		}
	}
	out := schema{"type": "object", "description": s.Doc, "properties": properties, "additionalProperties": false}
	if inline := s.InlineField(); inline != nil {
		out["additionalProperties"] = b.value(inline.Elem)
	}
	if len(byOperator) > 0 {
		out["patternProperties"] = schema{operatorPattern(byOperator): true}
	}
	if len(required) > 0 {
		out["required"] = required
	}
	if len(either) > 0 {
		out["allOf"] = either
	}
	if body {
		out["type"] = []string{"object", "null"}
	}
	return out
}

// operatorPattern matches keys that set fields by an operator of the first version.
func operatorPattern(names []string) string {
	return "^(" + strings.Join(names, "|") + ")#(" + strings.Join(source.V1Operators, "|") + ")$"
}

// givenBy lists the ways to set a field: by its name, or by an operator.
func givenBy(name string) []any {
	ways := []any{schema{"required": []string{name}}}
	for _, op := range source.V1Operators {
		ways = append(ways, schema{"required": []string{name + "#" + op}})
	}
	return ways
}

// field describes a field. Null means that it is not set.
func (b *schemaBuilder) field(f *spec.Field) schema {
	out := b.value(f)
	if !f.Required {
		out = orNull(out)
	}
	out["description"] = described(f)
	if f.Default != "" {
		out["default"] = defaultOf(f)
	}
	return out
}

// described returns the text of a field, with limits that JSON Schema cannot express.
func described(f *spec.Field) string {
	doc := f.Doc
	if f.Kind == datum.IntKind || f.Kind == datum.FloatKind {
		return doc
	}
	if f.Min != "" {
		doc += " At least " + f.Min + "."
	}
	if f.Max != "" {
		doc += " At most " + f.Max + "."
	}
	return doc
}

func defaultOf(f *spec.Field) any {
	if data, err := f.DefaultData(); err == nil && f.Kind != datum.DurationKind {
		return data
	}
	return f.Default
}

// value describes a value that may be an expression.
func (b *schemaBuilder) value(f *spec.Field) schema {
	out := b.literal(f)
	if f.NoExpr || len(out) == 0 || out["type"] == "string" && out["pattern"] == nil && out["enum"] == nil {
		return out // any text is allowed already
	}
	return schema{"anyOf": []any{out, schema{"$ref": "#/$defs/expression"}}}
}

// literal describes a value without expressions.
func (b *schemaBuilder) literal(f *spec.Field) schema {
	switch f.Kind {
	case datum.AnyKind:
		return kindSchema(f.ExprKind)
	case datum.IntKind, datum.FloatKind:
		return bounded(kindSchema(f.Kind), f)
	case datum.StringKind:
		return text(f)
	case datum.ListKind:
		list := schema{"type": "array", "items": b.value(f.Elem)}
		if f.Names || f.One {
			return schema{"anyOf": []any{b.value(f.Elem), list}}
		}
		return list
	case datum.MapKind:
		return schema{"type": "object", "additionalProperties": b.value(f.Elem)}
	case datum.ObjectKind:
		name := spec.Kebab(f.Spec.Name)
		if _, known := b.defs[name]; !known {
			b.defs[name] = nil // a struct may contain itself
			b.defs[name] = b.object(f.Spec, false)
		}
		ref := schema{"$ref": "#/$defs/" + name}
		if len(f.Words) > 0 {
			return schema{"anyOf": []any{schema{"type": "string", "enum": f.Words}, ref}}
		}
		return ref
	}
	return kindSchema(f.Kind)
}

// kindSchema describes the values of a kind.
func kindSchema(kind datum.Kind) schema {
	switch kind {
	case datum.BoolKind:
		return schema{"type": "boolean"}
	case datum.IntKind:
		return schema{"type": "integer"}
	case datum.FloatKind:
		return schema{"type": "number"}
	case datum.StringKind:
		return schema{"type": "string"}
	case datum.DurationKind:
		return schema{"type": "string", "pattern": datum.DurationText.String()}
	case datum.TimeKind:
		return schema{"type": "string", "format": "date-time"}
	case datum.BytesKind:
		return schema{"anyOf": []any{schema{"type": "string", "pattern": datum.BytesText.String()}, schema{"type": "integer", "minimum": 0}}}
	case datum.RateKind:
		return schema{"type": "string", "pattern": datum.RateText.String()}
	case datum.JitterKind:
		return schema{"anyOf": []any{
			schema{"type": "number", "minimum": 0, "maximum": 1},
			schema{"type": "string", "enum": []string{datum.FullJitter, datum.DecorrelatedJitter}},
		}}
	case datum.SecretKind:
		return schema{"type": "string", "pattern": datum.TextForms["secret"].Expr.String(), "description": "The name of a secret, tagged !secret."}
	case datum.SchemaKind:
		return schema{"type": []string{"object", "string", "boolean"}}
	case datum.ListKind:
		return schema{"type": "array"}
	case datum.MapKind, datum.ObjectKind:
		return schema{"type": "object"}
	}
	return schema{}
}

func bounded(s schema, f *spec.Field) schema {
	if n, err := strconv.ParseFloat(f.Min, 64); err == nil {
		s["minimum"] = n
	}
	if n, err := strconv.ParseFloat(f.Max, 64); err == nil {
		s["maximum"] = n
	}
	return s
}

func text(f *spec.Field) schema {
	s := schema{"type": "string"}
	if len(f.Enum) > 0 {
		s["enum"] = f.Enum
	}
	form := datum.TextForms[f.Pattern]
	if form.Expr != nil {
		s["pattern"] = form.Expr.String()
	}
	if form.Numbers {
		number := schema{"type": "integer", "minimum": form.Least}
		if form.Most > 0 {
			number["maximum"] = form.Most
		}
		return schema{"anyOf": []any{s, number}}
	}
	return s
}

func orNull(s schema) schema {
	null := schema{"type": "null"}
	switch t := s["type"].(type) {
	case string:
		if s["enum"] == nil {
			s["type"] = []string{t, "null"}
			return s
		}
	case nil:
		if ways, ok := s["anyOf"].([]any); ok {
			s["anyOf"] = append(ways, null)
			return s
		}
		if s["$ref"] == nil {
			return s // accepts anything
		}
	}
	return schema{"anyOf": []any{s, null}}
}

// addTypes completes the definition of a handler, or of another mapping with the body of one. Besides its own
// fields it has a key that names its type, or the fields of a request. With fewer keys than least it has
// neither.
func (b *schemaBuilder) addTypes(types []Type, name string, least int) {
	h := b.defs[name].(schema)
	properties := h["properties"].(schema)
	own := make(map[string]bool)
	for name := range properties {
		own[name] = true
	}
	bare := schema{}
	var byOperator []string
	for _, t := range types {
		b.defs["type-"+t.Name] = b.object(t.Spec, true)
		properties[t.Name] = schema{"$ref": "#/$defs/type-" + t.Name}
		if t.Name != RequestType {
			continue
		}
		for _, f := range t.Spec.Fields {
			if f.Name == "" || own[f.Name] {
				continue
			}
			properties[f.Name] = b.field(f)
			bare[f.Name] = false
			byOperator = append(byOperator, regexp.QuoteMeta(f.Name))
		}
	}
	if len(byOperator) > 0 {
		patterns, ok := h["patternProperties"].(schema)
		if !ok {
			patterns = schema{}
			h["patternProperties"] = patterns
		}
		patterns[operatorPattern(byOperator)] = true
	}
	var ways, named []any
	for _, t := range types {
		with := schema{"required": []string{t.Name}}
		named = append(named, with)
		ways = append(ways, schema{"required": []string{t.Name}, "properties": bare})
	}
	nameless := schema{"not": schema{"anyOf": named}}
	if least > 0 {
		nameless["minProperties"] = least
	}
	h["oneOf"] = append(ways, nameless)
}
