package contracts

import (
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
)

// IsSchema reports values that cannot be a schema, where the language itself accepts any value. It returns
// whether v can be one.
func IsSchema(v *expr.Value, name string, r *diag.Reporter) bool {
	CheckKeywords(v, r)
	if mayBeSchema(v) || !v.Fixed() {
		return v.Fixed() // expressions are already reported
	}
	r.Errorf(v.Head(), rules.BadSchema, "", "schema %q: want %s, have %s", name, datum.Wants[datum.SchemaKind], v.Describe())
	return false
}

// keywords are the keywords of JSON Schema (draft 2020-12 and older ones) and those of OpenAPI that often
// appear among them. The value says what they contain: a schema, a mapping or list of schemas, or "" for none.
// nullable is missing because only OpenAPI 3.0 has it.
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
	"$recursiveRef": "", "$recursiveAnchor": "",
}

// CheckKeywords warns of unknown keywords. JSON Schema ignores them, so they would check nothing.
func CheckKeywords(v *expr.Value, r *diag.Reporter) {
	if v == nil || v.Kind != expr.ValueMap {
		return
	}
	for i, k := range v.Names {
		item := v.Elems[i]
		what, known := keywords[k.Name]
		switch {
		case !known && !extension(k.Name):
			r.Warnf(k.Span, rules.Keyword, r.SuggestOr(k.Name, diag.NamesIn(keywords), "see https://json-schema.org/draft/2020-12/schema"),
				"JSON Schema has no word %q and ignores it", k.Name)
		case k.Name == "format":
			checkFormat(item, r)
		case what == "schema":
			CheckKeywords(item, r)
		case what == "schemas" || what == "list":
			for _, s := range item.Items() {
				CheckKeywords(s, r)
			}
		}
	}
}

// extension reports whether a keyword is an extension: x- and a name.
func extension(name string) bool {
	return len(name) > 2 && slices.Contains([]string{"x-", "X-"}, name[:2])
}
