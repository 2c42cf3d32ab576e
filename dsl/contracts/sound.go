package contracts

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/ops"
	"procaas/dsl/rules"
)

// This file reports schemas that cannot be checked in a bounded time.

// A schemaPattern is a regular expression in a schema, of known size.
type schemaPattern struct {
	*regexp.Regexp
	size int // instructions
}

// errPatternSize refuses a pattern that repeated parts make too large, as in expressions.
var errPatternSize = fmt.Errorf("it needs more than %d instructions; bound the length by minLength and maxLength, "+
	"and let the pattern say which characters: ^[a-z]+$", ops.MaxInstructions)

// compilePattern is the [jsonschema.RegexpEngine] of contracts.
func compilePattern(text string) (jsonschema.Regexp, error) {
	size, err := ops.Instructions(text)
	if err != nil {
		return nil, err
	}
	if size > ops.MaxInstructions {
		return nil, errPatternSize
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	return &schemaPattern{re, size}, nil
}

// ends reports whether checking a value against a schema terminates. It does not if a schema refers to itself
// without descending into the value. ends then adds a finding.
func (k *Set) ends(v *expr.Value, root *jsonschema.Schema) bool {
	var around []*jsonschema.Schema // schemas of the same value, outermost first
	var walk func(s *jsonschema.Schema) bool
	walk = func(s *jsonschema.Schema) bool {
		if done, seen := k.finite[s]; seen {
			if !done && slices.Contains(around, s) {
				k.reportCircle(v, around[slices.Index(around, s):])
				return false
			}
			return true // already visited, or visited now for an enclosing value
		}
		if k.ambiguous(s) {
			k.Errorf(k.where(s, v), rules.BadSchema, "name the schema by $ref",
				"a dynamic reference cannot be used here: its anchor must be declared once in these files")
			return false
		}
		k.finite[s] = false
		around = append(around, s)
		for _, one := range ofSameValue(s) {
			if !walk(one) {
				return false
			}
		}
		outer := around
		around = nil
		for _, one := range ofParts(s) {
			if !walk(one) {
				return false
			}
		}
		around = outer[:len(outer)-1]
		k.finite[s] = true
		return true
	}
	return walk(root)
}

// reportCircle reports schemas that refer to one another in a cycle.
func (k *Set) reportCircle(v *expr.Value, circle []*jsonschema.Schema) {
	var names []string
	for _, s := range append(circle, circle[0]) {
		if name := k.where(s, v).String(); len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	by := ""
	if len(names) > 1 {
		by = ": " + expr.Shorten(strings.Join(names, " → "), 200)
	}
	k.Errorf(k.where(circle[0], v), rules.BadSchema, "put the $ref below properties or items, or take it out",
		"the schema refers to itself for the same value, so that checking would never end%s", by)
}

// where returns the position of a schema. v is where it is used.
func (k *Set) where(s *jsonschema.Schema, v *expr.Value) diag.Span {
	if at := k.place(s.Location); at != (diag.Span{}) {
		return at
	}
	return v.Head()
}

// ambiguous reports whether the target of a dynamic reference depends on the path to it. That is so unless its
// anchor is declared once.
func (k *Set) ambiguous(s *jsonschema.Schema) bool {
	declared := 0
	switch {
	case s.DynamicRef != nil && s.DynamicRef.Anchor != "":
		for _, tree := range k.trees {
			declared += tree.Count("$dynamicAnchor", s.DynamicRef.Anchor)
		}
	case s.RecursiveRef != nil && s.RecursiveRef.RecursiveAnchor:
		for _, tree := range k.trees {
			declared += tree.Count("$recursiveAnchor", true)
		}
	default:
		return false
	}
	return declared != 1
}

// ofSameValue lists the subschemas that apply to the same value.
func ofSameValue(s *jsonschema.Schema) []*jsonschema.Schema {
	out := slices.Concat(referredTo(s), s.AllOf, s.AnyOf, s.OneOf)
	for _, one := range []*jsonschema.Schema{s.Not, s.If, s.Then, s.Else} {
		if one != nil {
			out = append(out, one)
		}
	}
	for _, name := range diag.SortedKeys(s.DependentSchemas) {
		out = append(out, s.DependentSchemas[name])
	}
	for _, name := range diag.SortedKeys(s.Dependencies) {
		if one, ok := s.Dependencies[name].(*jsonschema.Schema); ok {
			out = append(out, one)
		}
	}
	return out
}

// ofParts lists the subschemas that apply to parts of a value, and to its names.
func ofParts(s *jsonschema.Schema) []*jsonschema.Schema {
	out := slices.Clone(s.PrefixItems)
	for _, name := range diag.SortedKeys(s.Properties) {
		out = append(out, s.Properties[name])
	}
	for _, one := range s.PatternProperties {
		out = append(out, one)
	}
	for _, one := range []any{
		s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems, s.AdditionalProperties, s.AdditionalItems,
		s.Items,
	} {
		switch one := one.(type) {
		case *jsonschema.Schema:
			if one != nil {
				out = append(out, one)
			}
		case []*jsonschema.Schema:
			out = append(out, one...)
		}
	}
	return out
}
