package spec

import (
	"reflect"
	"slices"
	"sync/atomic"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
)

// A Form fills structs with what one body of the files evaluates to. It converts the simple values that the body
// has without an expression once, and the others for each struct. So no two structs share a list or a mapping. A
// Form is immutable.
type Form struct {
	spec  *Spec
	fixed []fixedField
	open  []*Field // set for each struct
}

// A FirstForm keeps the form that is made first. All forms of one body are the same.
type FirstForm struct{ form atomic.Pointer[Form] }

// Of returns the form of a body with the fields of s.
func (f *FirstForm) Of(s *Spec, body *expr.Value) *Form {
	form := f.form.Load()
	if form == nil {
		form = s.Form(body)
		f.form.Store(form)
	}
	return form
}

// A fixedField is a value other than zero that all structs have.
type fixedField struct {
	index int
	value reflect.Value
}

// Form makes the form of a body with the fields of s.
func (s *Spec) Form(body *expr.Value) *Form {
	f := &Form{spec: s}
	if body != nil && body.Kind != expr.ValueMap || s.InlineField() != nil || slices.ContainsFunc(body.KeyNames(), s.lacks) {
		f.open = s.Fields // Decode says what is wrong
		return f
	}
	like := reflect.New(s.Type).Elem()
	for _, field := range s.Fields {
		if !f.fix(like, field, body.Get(field.Name)) {
			f.open = append(f.open, field)
		}
	}
	return f
}

func (s *Spec) lacks(name string) bool { return s.Field(name) == nil }

// fix takes a field whose value is the same in all structs. It returns false if there may be another value, or an
// error, or a value that its owner may change.
func (f *Form) fix(like reflect.Value, field *Field, v *expr.Value) bool {
	if v != nil && (v.Kind != expr.ValueLiteral || v.Scalar == nil) || field.Kind == datum.ListKind || v == nil && field.Required {
		return false
	}
	dst := like.Field(field.Index)
	if dst.Kind() == reflect.Pointer && v != nil {
		return false
	}
	if v == nil {
		field.SetDefault(dst)
	} else if assign(dst, field, v.Scalar, field.Name) != nil {
		return false
	}
	if !dst.IsZero() {
		f.fixed = append(f.fixed, fixedField{field.Index, dst})
	}
	return true
}

// Fill is [Spec.Decode] for what the body has evaluated to. The fields of into must be zero.
func (f *Form) Fill(data any, into any) error {
	m, ok := data.(map[string]any)
	dst := reflect.ValueOf(into).Elem()
	if !ok || len(f.open) == len(f.spec.Fields) || dst.Type() != f.spec.Type {
		return f.spec.Decode(data, into)
	}
	for _, fixed := range f.fixed {
		dst.Field(fixed.index).Set(fixed.value)
	}
	for _, field := range f.open {
		value, given := m[field.Name]
		if err := assignField(dst.Field(field.Index), field, value, given, field.Name); err != nil {
			return err
		}
	}
	return nil
}
