package dsl

import "reflect"

// A Spec describes the fields of a mapping: of the language itself, or of a
// handler type. It is derived from a Go struct by [SpecOf].
type Spec struct {
	Name   string // of the Go struct
	Doc    string // the struct's comment, without the leading article and name kept as written
	Fields []*Field

	// Inline is true when the mapping takes any names, gathered in the one
	// field that is tagged yaml:",inline".
	Inline bool
}

// A Field describes one field of a mapping.
type Field struct {
	Name     string // the YAML key
	GoName   string
	Doc      string
	Kind     Kind
	Elem     *Field // of a list, or of the values of a map
	Spec     *Spec  // of an ObjectKind
	Names    bool   // one string or a list of strings
	Required bool
	Default  string
	Enum     []string
	Min, Max string
	Pattern  string
	NoExpr   bool // expressions are not allowed
	ExprKind Kind // for an AnyKind field: what an expression in it must give
}

// A Type describes a handler type to the language.
type Type struct {
	// Name is the key that names the type in a handler, such as request.
	Name string

	// Spec describes the mapping below that key.
	Spec *Spec

	// SetsState is true when the keys of the body are names of the shared
	// state and its values their new values, without a result mapping.
	SetsState bool

	// Check reports what the tags of Spec cannot say. It may be nil.
	Check func(*Body)
}

// A Body is the body of one handler, as its type's Check sees it.
type Body struct {
	*Reporter

	Span    Span
	Handler *Handler
	Value   *Value // a mapping; its fields were checked against the Spec
	Bundle  *Bundle
}

// Field finds a field of the body; nil when it is not given.
func (b *Body) Field(name string) *Value { return b.Value.Get(name) }

// SpecOf derives the Spec of a struct from its type and the source file that
// declares it. It panics when a field is undocumented or a tag makes no sense:
// that is a bug which the first test must meet.
func SpecOf(t reflect.Type, source string) *Spec { panic("dsl: SpecOf is not written yet") }

// Decode fills the struct that into points to, of the type that s was derived
// from, with defaults and then with data, a map[string]any as [Value.Eval]
// gives it. The error names the field and says what was expected.
func (s *Spec) Decode(data any, into any) error { panic("dsl: Spec.Decode is not written yet") }
