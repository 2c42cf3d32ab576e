package tree

import (
	"slices"
	"strings"

	"procaas/dsl/spec"
)

// A Part is a mapping of the language, such as a stage or a retry.
type Part struct {
	// Type has the name of the part for authors, and its fields.
	Type

	// At is the place of the part in a file, such as pipelines.stages for a stage. If there are several places,
	// it is the first.
	At string
}

// Parts lists the mappings of the language without duplicates. Outer ones precede inner ones. Sections of add-ons may share a mapping,
// which each of them describes for itself.
func (l *Language) Parts() []Part {
	var out []Part
	var add func(s *spec.Spec, at string)
	add = func(s *spec.Spec, at string) {
		for _, f := range s.Fields {
			inner := f
			for inner.Elem != nil {
				inner = inner.Elem
			}
			if inner.Spec == nil || slices.ContainsFunc(out, func(p Part) bool { return p.Spec.Type == inner.Spec.Type }) {
				continue
			}
			p := Part{Type{Name: spec.Kebab(inner.Spec.Name), Spec: inner.Spec}, strings.TrimPrefix(at+"."+f.Name, ".")}
			out = append(out, p)
			add(p.Spec, p.At)
		}
	}
	add(l.File(), "")
	return out
}
