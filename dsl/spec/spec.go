package spec

import (
	"reflect"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
)

// A Spec describes the fields of a mapping: of the language itself, or of a
// handler type. It is derived from a Go struct by [SpecOf].
type Spec struct {
	Name   string // of the Go struct
	Doc    string // the struct's comment, in paragraphs separated by empty lines
	Fields []*Field

	// Inline is true when the mapping takes any names, gathered in the one
	// field that is tagged yaml:",inline".
	Inline bool
}

// A Field describes one field of a mapping.
type Field struct {
	Name     string // the YAML key; empty for the inline field
	GoName   string
	Doc      string // the field's comment, in paragraphs separated by empty lines
	Kind     datum.Kind
	Elem     *Field // of a list, or of the values of a map
	Spec     *Spec  // of an ObjectKind
	Names    bool   // one string or a list of strings; Kind is ListKind
	One      bool   // one element may stand in place of a list of one; Kind is ListKind
	Required bool
	Default  string // as it is written in YAML; elements of a list between commas
	Enum     []string
	Words    []string // that may stand in place of the mapping; of an ObjectKind
	Min, Max string
	Pattern  string     // id: a name; class: a class of errors, as in retry; status: a status or a class of them
	NoExpr   bool       // expressions are not allowed
	ExprKind datum.Kind // for an AnyKind field: what it must be, or an expression in it give

	Index     int           // in the Go struct
	IsValue   bool          // the Go type is *Value
	low, high any           // Min and Max as scalars of the kind; nil for none
	preset    any           // Default as data; nil for none
	initial   reflect.Value // preset as the Go value; of fields that are no pointers
}

// Field finds a field by its YAML key; nil when there is none.
func (s *Spec) Field(name string) *Field {
	for _, f := range s.Fields {
		if f.Name == name && name != "" {
			return f
		}
	}
	return nil
}

// Names lists the YAML keys of the fields in the order of the struct.
func (s *Spec) Names() []string {
	var names []string
	for _, f := range s.Fields {
		if f.Name != "" {
			names = append(names, f.Name)
		}
	}
	return names
}

// InlineField returns the field that gathers names without a field of their own.
func (s *Spec) InlineField() *Field {
	for _, f := range s.Fields {
		if f.Name == "" {
			return f
		}
	}
	return nil
}

// Want is the kind that an expression must give in place of the field's value.
func (f *Field) Want() datum.Kind {
	switch {
	case f.Names:
		return datum.AnyKind // one name or a list of them
	case f.Kind == datum.ObjectKind:
		return datum.MapKind
	case f.Kind == datum.AnyKind:
		return f.ExprKind
	}
	return f.Kind
}

// Of returns the field that a value is held against: that of the element when one
// stands in place of a list.
func (f *Field) Of(v *expr.Value) *Field {
	if f != nil && f.One && v.Kind != expr.ValueList && !v.IsNull() {
		return f.Elem
	}
	return f
}

// IsName reports whether data may stand for a list of one name. Whole numbers may
// where they are names, as the status 429 is.
func (f *Field) IsName(data any) bool {
	if !f.Names {
		return false
	}
	switch data.(type) {
	case string:
		return true
	case int:
		return datum.TextForms[f.Elem.Pattern].Numbers
	}
	return false
}

// OfFile derives the Spec of a kind of file, as Of does: only the fields of
// type Value take expressions.
func OfFile(t reflect.Type, from Sources) *Spec {
	s := Of(t, from)
	forbidExprs(s, map[*Spec]bool{})
	return s
}

// forbidExprs notes that only fields of type Value take expressions: the rest
// is fixed before anything runs. The specs that were seen are left out, since they
// may be recursive.
func forbidExprs(s *Spec, seen map[*Spec]bool) {
	if seen[s] {
		return
	}
	seen[s] = true
	for _, f := range s.Fields {
		for ; f != nil; f = f.Elem {
			f.NoExpr = f.NoExpr || !f.IsValue
			if f.Spec != nil {
				forbidExprs(f.Spec, seen)
			}
		}
	}
}
