package contracts

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"procaas/dsl/datum"
)

// This file checks members of mappings and elements of lists.

// evaluated are the parts of a value that some schema has evaluated. unevaluatedProperties and unevaluatedItems
// apply to the others. A nil *evaluated records nothing.
type evaluated struct {
	names map[string]bool
	items map[int]bool
}

func newEvaluated() *evaluated { return &evaluated{map[string]bool{}, map[int]bool{}} }

// another returns an empty record for a schema that may not fit.
func (e *evaluated) another() *evaluated {
	if e == nil {
		return nil
	}
	return newEvaluated()
}

func (e *evaluated) merge(more *evaluated) {
	if e != nil {
		maps.Copy(e.names, more.names)
		maps.Copy(e.items, more.items)
	}
}

func (e *evaluated) name(name string) {
	if e != nil {
		e.names[name] = true
	}
}

func (e *evaluated) item(i int) {
	if e != nil {
		e.items[i] = true
	}
}

func (j *fitting) mapping(s *jsonschema.Schema, m map[string]any, done *evaluated) (out []Fault) {
	if s.MinProperties != nil && len(m) < *s.MinProperties {
		out = append(out, j.fault(&kind.MinProperties{Got: len(m), Want: *s.MinProperties}, m)...)
	}
	if s.MaxProperties != nil && len(m) > *s.MaxProperties {
		out = append(out, j.fault(&kind.MaxProperties{Got: len(m), Want: *s.MaxProperties}, m)...)
	}
	if lacks := missing(m, s.Required); lacks != nil {
		out = append(out, j.fault(&kind.Required{Missing: lacks}, m)...)
	}
	if !j.step(len(s.Required)) || j.enough(out) {
		return append(out, j.gaveUp()...)
	}
	for _, part := range []func(*fitting, *jsonschema.Schema, map[string]any, *evaluated) []Fault{
		(*fitting).dependencies, (*fitting).members, (*fitting).names,
	} {
		out = append(out, part(j, s, m, done)...)
		if j.enough(out) {
			break
		}
	}
	return out
}

// gaveUp is the fault for too many steps.
func (j *fitting) gaveUp() []Fault {
	if j.err != nil {
		return misfit
	}
	return nil
}

// missing lists the names that a mapping lacks.
func missing(m map[string]any, want []string) (out []string) {
	for _, name := range want {
		if _, ok := m[name]; !ok {
			out = append(out, name)
		}
	}
	return out
}

// dependencies checks what a mapping must have if it has a certain name.
func (j *fitting) dependencies(s *jsonschema.Schema, m map[string]any, done *evaluated) (out []Fault) {
	want := func(name string, names []string, as func([]string) jsonschema.ErrorKind) {
		if _, ok := m[name]; !ok || !j.step(1+len(names)) {
			return
		}
		if lacks := missing(m, names); lacks != nil {
			out = append(out, j.fault(as(lacks), m)...)
		}
	}
	fit := func(name string, schema *jsonschema.Schema) {
		if _, ok := m[name]; ok && !j.enough(out) {
			out = append(out, j.self(schema, m, done)...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Dependencies)) {
		switch d := s.Dependencies[name].(type) {
		case []string:
			want(name, d, func(lacks []string) jsonschema.ErrorKind { return &kind.Dependency{Prop: name, Missing: lacks} })
		case *jsonschema.Schema:
			fit(name, d)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.DependentSchemas)) {
		fit(name, s.DependentSchemas[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.DependentRequired)) {
		want(name, s.DependentRequired[name], func(lacks []string) jsonschema.ErrorKind {
			return &kind.DependentRequired{
				Prop:    name,
				Missing: lacks,
			}
		})
	}
	return append(out, j.gaveUp()...)
}

// members checks properties, patternProperties and additionalProperties.
func (j *fitting) members(s *jsonschema.Schema, m map[string]any, done *evaluated) (out []Fault) {
	if s.Properties == nil && s.PatternProperties == nil && s.AdditionalProperties == nil {
		return nil
	}
	if !j.step(len(m)) {
		return misfit
	}
	for _, name := range j.namesOf(m) {
		v, spoken := m[name], false
		if one, ok := s.Properties[name]; ok {
			spoken, out = true, append(out, j.below(one, name, v)...)
		}
		for re, one := range s.PatternProperties {
			if j.matches(re, name) {
				spoken, out = true, append(out, j.below(one, name, v)...)
			}
		}
		if !spoken && s.AdditionalProperties != nil {
			spoken = true
			switch extra := s.AdditionalProperties.(type) {
			case bool:
				if !extra {
					out = append(out, j.fault(&kind.AdditionalProperties{Properties: []string{name}}, m)...)
				}
			case *jsonschema.Schema:
				out = append(out, j.below(extra, name, v)...)
			}
		}
		if spoken {
			done.name(name)
		}
		if j.enough(out) {
			break
		}
	}
	return append(out, j.gaveUp()...)
}

// namesOf lists the names of a mapping, sorted if faults are described.
func (j *fitting) namesOf(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	if j.tell {
		slices.Sort(names)
	}
	return names
}

// names checks propertyNames.
func (j *fitting) names(s *jsonschema.Schema, m map[string]any, _ *evaluated) (out []Fault) {
	if s.PropertyNames == nil {
		return nil
	}
	for _, name := range j.namesOf(m) {
		for _, f := range j.visit(s.PropertyNames, name, nil) {
			f.Message = fmt.Sprintf("the name %q: %s", name, f.Message)
			out = append(out, f)
		}
		if j.enough(out) {
			break
		}
	}
	return out
}

func (j *fitting) list(s *jsonschema.Schema, list []any, done *evaluated) (out []Fault) {
	if s.MinItems != nil && len(list) < *s.MinItems {
		out = append(out, j.fault(&kind.MinItems{Got: len(list), Want: *s.MinItems}, list)...)
	}
	if s.MaxItems != nil && len(list) > *s.MaxItems {
		out = append(out, j.fault(&kind.MaxItems{Got: len(list), Want: *s.MaxItems}, list)...)
	}
	if s.UniqueItems {
		out = append(out, j.unique(list)...)
	}
	if j.enough(out) {
		return out
	}
	out = append(out, j.elements(s, list, done)...)
	if j.enough(out) || s.Contains == nil {
		return out
	}
	return append(out, j.contains(s, list, done)...)
}

// unique compares elements by their canonical JSON.
func (j *fitting) unique(list []any) []Fault {
	seen := make(map[string]int, len(list))
	for i, x := range list {
		text, err := datum.FormatJSON(x)
		if !j.step(1+len(text)/16) || err != nil {
			return misfit
		}
		if first, twice := seen[string(text)]; twice {
			return j.fault(&kind.UniqueItems{Duplicates: [2]int{first, i}}, list)
		}
		seen[string(text)] = i
	}
	return nil
}

// elements checks each element against its schema. The first ones may have their own.
func (j *fitting) elements(s *jsonschema.Schema, list []any, done *evaluated) (out []Fault) {
	first, rest := s.PrefixItems, s.Items2020
	if s.DraftVersion < 2020 {
		switch items := s.Items.(type) {
		case *jsonschema.Schema:
			rest = items
		case []*jsonschema.Schema:
			first = items
			switch more := s.AdditionalItems.(type) {
			case bool:
				if !more && len(list) > len(first) {
					out = j.fault(&kind.AdditionalItems{Count: len(list) - len(first)}, list)
				}
				if more {
					rest = &jsonschema.Schema{Bool: &more}
				}
			case *jsonschema.Schema:
				rest = more
			}
		}
	}
	for i, x := range list {
		if j.enough(out) {
			return out
		}
		one := rest
		if i < len(first) {
			one = first[i]
		}
		if one == nil {
			break
		}
		out = append(out, j.below(one, strconv.Itoa(i), x)...)
		done.item(i)
	}
	return out
}

func (j *fitting) contains(s *jsonschema.Schema, list []any, done *evaluated) (out []Fault) {
	var fits []int
	for i, x := range list {
		if j.quietly(s.Contains, x, nil) {
			fits = append(fits, i)
			if s.DraftVersion >= 2020 {
				done.item(i)
			}
		}
	}
	switch {
	case j.err != nil:
		return misfit
	case s.MinContains != nil && len(fits) < *s.MinContains:
		out = j.fault(&kind.MinContains{Got: fits, Want: *s.MinContains}, list)
	case s.MinContains == nil && len(fits) == 0:
		out = j.fault(&kind.Contains{}, list)
	}
	if s.MaxContains != nil && len(fits) > *s.MaxContains {
		out = append(out, j.fault(&kind.MaxContains{Got: fits, Want: *s.MaxContains}, list)...)
	}
	return out
}
