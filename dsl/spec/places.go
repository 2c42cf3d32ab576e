package spec

import (
	"slices"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
)

// Names is one name or a list of names.
type Names []string

// Places has the positions of the given fields of a mapping, by YAML name. For a list of names it also has the
// position of each, as on[0]. Structs that are read from files embed it.
type Places []expr.Key

// Note records the position of a field.
func (p *Places) Note(name string, at diag.Span) { *p = append(*p, expr.Key{Name: name, Span: at}) }

// GrowPlaces makes room for the positions of some more fields.
func (p *Places) GrowPlaces(fields int) { *p = slices.Grow(*p, fields) }

// PlaceOf returns the position of a field's value, or of an element of a list of names. If the field is not
// set, it returns whole.
func (p Places) PlaceOf(name string, whole diag.Span) diag.Span {
	for _, k := range p {
		if k.Name == name {
			return k.Span
		}
	}
	return whole
}

// Added has the values of fields of add-ons, by YAML name. Structs that take such fields embed it.
type Added map[string]any

// KeepField records the value of a field.
func (a *Added) KeepField(name string, value any) {
	if *a == nil {
		*a = Added{}
	}
	(*a)[name] = value
}

// AddedField returns the value of a field, or nil if it is not given.
func (a Added) AddedField(name string) any { return a[name] }

// Before returns p, followed by others. The first position of a field counts.
func (p Places) Before(others Places) Places { return slices.Concat(p, others) }
