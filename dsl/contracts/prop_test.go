package contracts

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
)

// schemaKeywords make one keyword each, of schemas of at most a depth.
func schemaKeywords() map[string]func(t *rapid.T, depth int) any {
	return map[string]func(t *rapid.T, depth int) any{
		"type": func(t *rapid.T, _ int) any {
			return rapid.SliceOfNDistinct(rapid.SampledFrom([]any{"null", "boolean", "integer", "number", "string", "array", "object"}), 1, 3,
				rapid.ID).Draw(t, "types")
		},
		"const":             func(t *rapid.T, _ int) any { return schemaData(t, 1) },
		"enum":              func(t *rapid.T, _ int) any { return []any{schemaData(t, 1), schemaData(t, 0)} },
		"minimum":           func(t *rapid.T, _ int) any { return aNumber(t) },
		"maximum":           func(t *rapid.T, _ int) any { return aNumber(t) },
		"exclusiveMinimum":  func(t *rapid.T, _ int) any { return aNumber(t) },
		"exclusiveMaximum":  func(t *rapid.T, _ int) any { return aNumber(t) },
		"multipleOf":        func(t *rapid.T, _ int) any { return rapid.SampledFrom([]any{1, 2, 0.5, 0.1}).Draw(t, "multiple") },
		"minLength":         aCount,
		"maxLength":         aCount,
		"pattern":           aPattern,
		"minItems":          aCount,
		"maxItems":          aCount,
		"uniqueItems":       func(t *rapid.T, _ int) any { return true },
		"minProperties":     aCount,
		"maxProperties":     aCount,
		"required":          func(t *rapid.T, _ int) any { return []any{aName(t)} },
		"properties":        someSchemas,
		"dependentSchemas":  someSchemas,
		"patternProperties": func(t *rapid.T, depth int) any { return map[string]any{aPattern(t, 0).(string): aSchema(t, depth)} },
		"dependentRequired": func(t *rapid.T, _ int) any { return map[string]any{aName(t): []any{aName(t)}} },
		"prefixItems":       listOfSchemas,
		"allOf":             listOfSchemas,
		"anyOf":             listOfSchemas,
		"oneOf":             listOfSchemas,
		"minContains":       aCount,
		"maxContains":       aCount,
		"$ref": func(t *rapid.T, _ int) any {
			return rapid.SampledFrom([]any{"#/$defs/leaf", "#/$defs/tree"}).Draw(t, "ref")
		},
	}
}

func aCount(t *rapid.T, _ int) any { return rapid.IntRange(0, 3).Draw(t, "count") }

func aNumber(t *rapid.T) any {
	return rapid.SampledFrom([]any{-1, 0, 1, 2, 3, 0.5, 1.0, 2.3}).Draw(t, "number")
}

func aName(t *rapid.T) string { return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name") }

func aPattern(t *rapid.T, _ int) any {
	return rapid.SampledFrom([]string{"^a", "b$", "[ab]", "^$"}).Draw(t, "pattern")
}

func someSchemas(t *rapid.T, depth int) any {
	return map[string]any{aName(t): aSchema(t, depth), "b": aSchema(t, depth)}
}

func listOfSchemas(t *rapid.T, depth int) any { return []any{aSchema(t, depth), aSchema(t, depth)} }

// aSchema makes a schema of a few keywords.
func aSchema(t *rapid.T, depth int) any {
	if depth == 0 {
		return rapid.SampledFrom([]any{
			true, false,
			map[string]any{},
			map[string]any{"type": "integer"},
			map[string]any{"$ref": "#/$defs/leaf"},
		}).Draw(t, "leaf")
	}
	out := map[string]any{}
	single := []string{
		"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedProperties",
		"unevaluatedItems",
	}
	names := slices.Concat(diag.SortedKeys(schemaKeywords()), single, single)
	for range rapid.IntRange(1, 4).Draw(t, "keywords") {
		name := rapid.SampledFrom(names).Draw(t, "keyword")
		if keyword := schemaKeywords()[name]; keyword != nil {
			out[name] = keyword(t, depth-1)
		} else {
			out[name] = aSchema(t, depth-1)
		}
	}
	return out
}

func schemaData(t *rapid.T, depth int) any {
	simple := []any{nil, true, false, 0, 1, 2, 3, 1.0, 0.5, 2.3, "", "a", "ab", "ba"}
	kinds := 1
	if depth > 0 {
		kinds = 3
	}
	switch rapid.IntRange(0, kinds).Draw(t, "kind") {
	case 2:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, schemaData(t, depth-1))
		}
		return list
	case 3:
		m := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(t, "size") {
			m[aName(t)] = schemaData(t, depth-1)
		}
		return m
	}
	return rapid.SampledFrom(simple).Draw(t, "simple")
}

// The library is the measure of what fits: a contract says the same of any data and any schema.
func TestContractsSayWhatTheLibrarySays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		schema := aSchema(t, 3)
		if m, ok := schema.(map[string]any); ok {
			m["$defs"] = map[string]any{
				"leaf": map[string]any{"enum": []any{1, "a", nil, []any{1}}},
				"tree": map[string]any{"anyOf": []any{
					map[string]any{"properties": map[string]any{"a": map[string]any{"$ref": "#/$defs/tree"}}, "required": []any{"a"}},
					map[string]any{"type": []any{"integer", "array"}, "items": map[string]any{"$ref": "#/$defs/tree"}},
				}},
			}
			if rapid.Bool().Draw(t, "old") {
				m["$schema"] = rapid.SampledFrom([]string{
					"https://json-schema.org/draft/2019-09/schema",
					"http://json-schema.org/draft-07/schema#",
				}).Draw(t, "draft")
			}
		} else {
			schema = map[string]any{"not": schema}
		}
		c := jsonschema.NewCompiler()
		c.UseRegexpEngine(compilePattern)
		if err := c.AddResource("s.json", schema); err != nil {
			t.Fatal(err)
		}
		compiled, err := c.Compile("s.json")
		if err != nil {
			t.Skip("not a schema of that draft")
		}
		contract := &Contract{Name: "it", schema: compiled}
		for range 5 {
			data := schemaData(t, 3)
			want, have := compiled.Validate(data), contract.Check(data)
			if (want == nil) != (have == nil) {
				text, _ := datum.FormatJSON(schema)
				t.Fatalf("schema %s\ndata %v\nthe library says %v\nhave %v", text, data, want, have)
			}
			if have == nil {
				continue
			}
			for _, f := range func() *Error {
				target := &Error{}
				_ = errors.As(have, &target)
				return target
			}().Faults {
				if f.Message == "" {
					t.Fatalf("want a message for each fault, have %v", have)
				}
			}
			if again := contract.Check(data); fmt.Sprint(again) != fmt.Sprint(have) {
				t.Fatalf("want the same faults again, have %v and %v", have, again)
			}
		}
	})
}
