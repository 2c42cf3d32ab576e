package spec

import (
	"reflect"
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
)

// A Spec describes the fields of a mapping of the language or of a handler type. [Of] derives it from a Go
// struct.
type Spec struct {
	Type   reflect.Type // the Go struct
	Name   string       // of the Go struct
	Doc    string       // the struct's comment, in paragraphs separated by empty lines
	Fields []*Field

	// Inline reports whether the mapping accepts any names. The field with the tag yaml:",inline" collects
	// them.
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
	One      bool   // a single element may replace a list of one; Kind is ListKind
	Required bool
	Default  string // in YAML; commas separate the elements of a list
	Enum     []string
	Words    []string // words that may replace the mapping of an ObjectKind
	Min, Max string
	Pattern  string     // id: a name; class: a class of errors, as in retry; status: a status or a class of statuses
	NoExpr   bool       // expressions are not allowed
	Live     bool       // an expression is allowed whose value changes with configs; the struct keeps it in its field Live
	ExprKind datum.Kind // for an AnyKind field: the kind that it, or an expression in it, must have

	Index     int           // in the Go struct; -1 if the value is kept in [Added]
	Type      reflect.Type  // in the Go struct; nil for an element
	IsValue   bool          // the Go type is *Value
	low, high any           // Min and Max as scalars of the kind; nil for none
	preset    any           // Default as data; nil for none
	initial   reflect.Value // preset as a Go value, for fields that are not pointers
}

// Field returns a field by its YAML key, or nil.
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

// Take adds a field of an add-on, after the one with the key after, or at the end. Its values are kept in [Added].
func (s *Spec) Take(f *Field, after string) {
	own := *f
	own.Index = -1
	at := len(s.Fields)
	if after != "" {
		at = slices.IndexFunc(s.Fields, func(f *Field) bool { return f.Name == after }) + 1
	}
	switch {
	case at == 0:
		panic("spec: " + s.Name + " has no field " + after + " before " + f.Name)
	case s.Field(f.Name) != nil:
		panic("spec: " + s.Name + " names two fields " + f.Name)
	case f.Default != "" || f.Required:
		panic("spec: field " + f.Name + " of an add-on must be optional, and nil without a value")
	}
	s.Fields = slices.Insert(s.Fields, at, &own)
}

// InlineField returns the field that collects other names.
func (s *Spec) InlineField() *Field {
	for _, f := range s.Fields {
		if f.Name == "" {
			return f
		}
	}
	return nil
}

// Want returns the kind that an expression must return for the field.
func (f *Field) Want() datum.Kind {
	switch {
	case f.Names:
		return datum.AnyKind // one name or a list of names
	case f.Kind == datum.ObjectKind:
		return datum.MapKind
	case f.Kind == datum.AnyKind:
		return f.ExprKind
	}
	return f.Kind
}

// Of returns the field for a value: the field of the element if a single element replaces a list.
func (f *Field) Of(v *expr.Value) *Field {
	if f != nil && f.One && v.Kind != expr.ValueList && !v.IsNull() {
		return f.Elem
	}
	return f
}

// IsName reports whether data may replace a list of one name. That includes integers if they are names, such as
// the status 429.
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

// OfFile derives the Spec of a kind of file. Unlike with Of, only fields of type Value accept expressions.
func OfFile(t reflect.Type, from Sources) *Spec {
	s := Of(t, from)
	forbidExprs(s, map[*Spec]bool{})
	return s
}

// forbidExprs forbids expressions in all fields except those of type Value. It skips visited specs, since specs
// may be recursive.
func forbidExprs(s *Spec, seen map[*Spec]bool) {
	if seen[s] {
		return
	}
	seen[s] = true
	for _, f := range s.Fields {
		for ; f != nil; f = f.Elem {
			f.NoExpr = f.NoExpr || !f.IsValue && !f.Live
			if f.Spec != nil {
				forbidExprs(f.Spec, seen)
			}
		}
	}
}
