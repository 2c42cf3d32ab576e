package contracts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/source"
	"procaas/dsl/typing"
)

// An outliner derives outlines from compiled JSON Schemas. It treats a schema as a set of alternatives. Each
// alternative is a list of schemas that must all fit. anyOf and oneOf add alternatives, allOf and $ref extend
// the lists. If it does not understand something, the outline says less, but never something wrong.
type outliner struct {
	known map[string]*typing.Outline
	queue []pending
	place func(location string) diag.Span
}

// A pending outline is needed, but its parts are not computed yet. So recursive schemas terminate.
type pending struct {
	*typing.Outline
	from alternatives
}

// An all is a list of schemas that a value must all fit. It must fit one of the alternatives.
type (
	all          []*jsonschema.Schema
	alternatives []all
)

// maxAlternatives limits the alternatives of one schema. With more, its outline is unknown. maxOutlines limits
// all outlines of one schema.
const (
	maxAlternatives = 32
	maxOutlines     = 20_000
)

func newOutliner(place func(string) diag.Span) *outliner {
	return &outliner{known: map[string]*typing.Outline{}, place: place}
}

// outline returns the outline of a schema.
func (b *outliner) outline(s *jsonschema.Schema) *typing.Outline {
	out := b.need(alternatives{{s}})
	for len(b.queue) > 0 {
		p := b.queue[0]
		b.queue = b.queue[1:]
		b.complete(p)
	}
	return out
}

// need returns the outline of alternatives: types at once, parts later. It returns nil if nothing is known.
func (b *outliner) need(from alternatives) *typing.Outline {
	key := from.key()
	if out, ok := b.known[key]; ok || len(b.known) > maxOutlines {
		return out
	}
	b.known[key] = nil
	expanded, ok := from.expand()
	if !ok {
		return nil
	}
	out := &typing.Outline{}
	var words []any
	var possible alternatives
	bounded := true
	for _, a := range expanded {
		s, w := a.bounds()
		if s == 0 {
			continue
		}
		possible = append(possible, a)
		out.Shape |= s
		words = typing.UnionWords(words, w)
		bounded = bounded && (w != nil || s&^(datum.NullShape|datum.MapShape|datum.ListShape) == 0)
	}
	if out.Shape == 0 || out.Shape|datum.SecretShape == datum.AnyShape {
		return nil
	}
	if bounded {
		out.Words = words
	}
	if out.Shape&datum.NullShape != 0 {
		out.Why = "its schema allows null"
	}
	out.At = b.place(referred(from[0][0]).Location)
	out.About = expanded.about()
	b.known[key] = out
	if out.Shape&(datum.MapShape|datum.ListShape) != 0 {
		b.queue = append(b.queue, pending{out, possible})
	}
	return out
}

// about returns the first title or description.
func (as alternatives) about() string {
	for _, a := range as {
		for _, s := range a {
			if text := cmp.Or(s.Description, s.Title); text != "" {
				return text
			}
		}
	}
	return ""
}

// referred resolves $ref.
func referred(s *jsonschema.Schema) *jsonschema.Schema {
	for range source.MaxNesting {
		if s.Ref == nil || s.Types != nil && !s.Types.IsEmpty() || len(s.Properties) > 0 {
			break
		}
		s = s.Ref
	}
	return s
}

// complete computes the parts of a mapping and of a list.
func (b *outliner) complete(p pending) {
	var elems alternatives
	anyElem := false
	var maps alternatives
	for _, a := range p.from {
		s, _ := a.bounds()
		if s&datum.ListShape != 0 {
			elem := a.elements()
			elems, anyElem = append(elems, elem), anyElem || elem == nil
		}
		if s&datum.MapShape != 0 {
			maps = append(maps, a)
		}
	}
	if len(elems) > 0 && !anyElem {
		p.Elem = b.need(elems)
	}
	if len(maps) > 0 {
		b.members(p.Outline, maps)
	}
}

// members computes the members of a mapping that fits one of several alternatives.
func (b *outliner) members(out *typing.Outline, maps alternatives) {
	out.Members, out.Closed = map[string]*typing.Member{}, true
	var rest alternatives
	restKnown := true
	for _, a := range maps {
		others, open := a.others()
		out.Closed = out.Closed && !open
		if open {
			rest, restKnown = append(rest, others), restKnown && others != nil
		}
	}
	if !out.Closed && restKnown {
		out.Rest = b.need(rest)
	}
	for _, name := range maps.names() {
		m := &typing.Member{Required: true}
		var fits alternatives
		known := true
		for _, a := range maps {
			property, required := a.property(name)
			m.Required = m.Required && required
			others, open := a.others()
			switch {
			case property != nil:
				fits = append(fits, property)
			case open && others != nil:
				fits = append(fits, others)
			case open:
				known = false
			}
		}
		if known && len(fits) > 0 {
			m.Outline = b.need(fits)
		}
		out.Members[name] = m
	}
}

// key identifies alternatives independently of their order.
func (as alternatives) key() string {
	keys := make([]string, len(as))
	for i, a := range as {
		parts := make([]string, len(a))
		for j, s := range a {
			parts[j] = fmt.Sprintf("%p", s)
		}
		slices.Sort(parts)
		keys[i] = strings.Join(slices.Compact(parts), "&")
	}
	slices.Sort(keys)
	return strings.Join(slices.Compact(keys), "|")
}

// names returns the sorted properties that any alternative has.
func (as alternatives) names() []string {
	var out []string
	for _, a := range as {
		for _, s := range a {
			for name := range s.Properties {
				out = append(out, name)
			}
			out = append(out, s.Required...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// expand resolves $ref, allOf, anyOf and oneOf until none is left. It returns false if there are too many
// alternatives.
func (as alternatives) expand() (alternatives, bool) {
	var out alternatives
	for _, a := range as {
		more, ok := a.expand(0)
		out = append(out, more...)
		if !ok || len(out) > maxAlternatives {
			return nil, false
		}
	}
	return out, true
}

func (a all) expand(depth int) (alternatives, bool) {
	if depth > source.MaxNesting {
		return nil, false
	}
	done := alternatives{{}}
	seen := map[*jsonschema.Schema]bool{}
	for work := slices.Clone(a); len(work) > 0; {
		s := work[0]
		work = work[1:]
		if s == nil || seen[s] {
			continue
		}
		seen[s] = true
		for i := range done {
			done[i] = append(slices.Clip(done[i]), s)
		}
		work = append(work, s.AllOf...)
		if s.Ref != nil {
			work = append(work, s.Ref)
		}
		for _, either := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
			if len(either) == 0 {
				continue
			}
			var next alternatives
			for _, one := range either {
				more, ok := all{one}.expand(depth + 1)
				if !ok || len(done)*len(more)+len(next) > maxAlternatives {
					return nil, false
				}
				for _, d := range done {
					for _, m := range more {
						next = append(next, slices.Concat(d, m))
					}
				}
			}
			done = next
		}
	}
	return done, true
}

// bounds returns the types of a value that fits all schemas, or 0 if there is none. It also returns its
// possible scalars, or nil if they are not listed.
func (a all) bounds() (datum.Shape, []any) {
	out := datum.Shape(datum.AnyShape)
	var words []any
	listed := false
	for _, s := range a {
		out &= typesOf(s)
		values := wordsOf(s)
		if values == nil {
			continue
		}
		if listed {
			values = slices.DeleteFunc(values, func(v any) bool { return !typing.ContainsWord(words, v) })
		}
		words, listed = values, true
	}
	if !listed {
		return out, nil
	}
	var held datum.Shape
	for _, w := range words {
		held |= datum.ShapeOfValue(w)
	}
	if held&datum.NumberShape != 0 {
		held |= datum.NumberShape
	}
	out &= held
	words = slices.DeleteFunc(slices.Clone(words), func(w any) bool {
		return datum.ShapeOfValue(w)&(datum.BoolShape|datum.NumberShape|datum.StringShape) == 0 || datum.ShapeOfValue(w)&out == 0
	})
	return out, words
}

// typesOf returns the types that one schema allows.
func typesOf(s *jsonschema.Schema) datum.Shape {
	if s.Bool != nil {
		if *s.Bool {
			return datum.AnyShape
		}
		return 0
	}
	if s.Types == nil || s.Types.IsEmpty() {
		return datum.AnyShape
	}
	var out datum.Shape
	for _, name := range s.Types.ToStrings() {
		out |= typeShapes[name]
	}
	return out
}

// typeShapes are the types of JSON Schema. 5.0 is an integer there.
var typeShapes = map[string]datum.Shape{
	"null": datum.NullShape, "boolean": datum.BoolShape, "integer": datum.NumberShape, "number": datum.NumberShape,
	"string": datum.StringShape, "array": datum.ListShape, "object": datum.MapShape,
}

// wordsOf lists the values of enum and const, or nil if there is neither.
func wordsOf(s *jsonschema.Schema) []any {
	switch {
	case s.Const != nil:
		return []any{*s.Const}
	case s.Enum != nil:
		return slices.Clone(s.Enum.Values)
	}
	return nil
}

// property returns the schemas of a member, or nil if none names it.
func (a all) property(name string) (found all, required bool) {
	for _, s := range a {
		if p := s.Properties[name]; p != nil {
			found = append(found, p)
		}
		required = required || slices.Contains(s.Required, name)
	}
	return found, required
}

// others reports whether a mapping may have unnamed members. fit has their schemas, or nil if there are none.
// If a schema names members and does not mention others, expressions cannot read others, although data with
// more members fits it.
func (a all) others() (fit all, open bool) {
	named := false
	for _, s := range a {
		named = named || len(s.Properties) > 0
		if s.PatternProperties != nil || s.If != nil || s.DependentSchemas != nil || s.Dependencies != nil || s.Not != nil ||
			s.DynamicRef != nil || s.RecursiveRef != nil {
			return nil, true
		}
		switch extra := s.AdditionalProperties.(type) {
		case bool:
			if !extra {
				return nil, false
			}
			open = true
		case *jsonschema.Schema:
			fit, open = append(fit, extra), true
		}
	}
	return fit, open || !named
}

// elements returns the schemas that every element of a list must fit, or nil.
func (a all) elements() all {
	var out all
	for _, s := range a {
		if len(s.PrefixItems) > 0 {
			return nil
		}
		if s.Items2020 != nil {
			out = append(out, s.Items2020)
		}
		if items, ok := s.Items.(*jsonschema.Schema); ok {
			out = append(out, items)
		}
	}
	return out
}
