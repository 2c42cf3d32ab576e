package spec

import (
	"slices"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
)

// Names is one name or a list of names.
type Names []string

// Places holds where the value of each given field of a mapping stands, under the
// field's YAML name; for a list of names also where each name stands, under on[0].
// Structs that are read from files embed it.
type Places []expr.Key

// Note keeps the place of a field.
func (p *Places) Note(name string, at diag.Span) { *p = append(*p, expr.Key{Name: name, Span: at}) }

// PlaceOf finds the place of a field's value, or of an element of a list of names; whole
// when it is not given.
func (p Places) PlaceOf(name string, whole diag.Span) diag.Span {
	for _, k := range p {
		if k.Name == name {
			return k.Span
		}
	}
	return whole
}

// Before returns the places of p, and those of others that p does not have.
func (p Places) Before(others Places) Places { return slices.Concat(p, others) }
