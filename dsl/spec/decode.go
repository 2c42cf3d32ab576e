package spec

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"procaas/dsl/datum"
)

// Decode fills the struct to which into points, of the type from which s was derived. It sets defaults and then
// data, a map[string]any from [expr.Value.Eval]. The error names the field and the expected value. A
// [datum.Secret] is allowed only where a field accepts any value, and stays as it is.
func (s *Spec) Decode(data any, into any) error {
	return assignObject(reflect.ValueOf(into).Elem(), s, data, "")
}

// assignObject sets the fields of a struct from a mapping.
func assignObject(dst reflect.Value, s *Spec, data any, path string) error {
	m, ok := data.(map[string]any)
	if !ok && data != nil {
		return fieldError(path, "want a mapping, have %s", datum.DescribeData(data))
	}
	inline := s.InlineField()
	var rest map[string]any
	unknown := ""
	for name := range m {
		if s.Field(name) != nil {
			continue
		}
		if inline == nil && (unknown == "" || name < unknown) {
			unknown = name
		}
		if rest == nil {
			rest = map[string]any{}
		}
		rest[name] = m[name]
	}
	if inline == nil && rest != nil {
		return fieldError(joinPath(path, unknown), "unknown; the fields are %s", strings.Join(s.Names(), ", "))
	}
	for _, f := range s.Fields {
		value, given := m[f.Name]
		at := joinPath(path, f.Name)
		if f == inline {
			value, at = rest, path
			if rest == nil {
				value = map[string]any{}
			}
		}
		if err := assignField(dst.Field(f.Index), f, value, given, at); err != nil {
			return err
		}
	}
	return nil
}

// assignField sets a field of a struct. A nil value means its default.
func assignField(dst reflect.Value, f *Field, value any, given bool, at string) error {
	if given && value == nil && f.Kind == datum.TimeKind {
		// Otherwise a time that is missing would be now.
		return fieldError(at, "want a time such as 2026-01-31T09:30:00Z, have null; leave the field out for now, or add ?? with another time")
	}
	if value == nil || f.Kind == datum.ObjectKind {
		f.SetDefault(dst)
	} else {
		dst.SetZero()
	}
	if value != nil {
		return assign(dst, f, value, at)
	}
	if f.Required {
		return fieldError(at, "required, but it is not given or null")
	}
	return nil
}

// Set sets the Go value dst from data, according to the field.
func (f *Field) Set(dst reflect.Value, data any) error {
	return assign(dst, f, data, f.Name)
}

// SetDefault sets dst to the field's default, or to zero. A pointer stays nil, so that its owner can see that
// it was not set.
func (f *Field) SetDefault(dst reflect.Value) {
	switch {
	case !f.initial.IsValid():
		dst.SetZero()
	case f.Kind == datum.ListKind: // the owner may change the list
		own := reflect.MakeSlice(dst.Type(), f.initial.Len(), f.initial.Len())
		reflect.Copy(own, f.initial)
		dst.Set(own)
	default:
		dst.Set(f.initial)
	}
}

// assign sets a Go value from data other than null.
func assign(dst reflect.Value, f *Field, data any, path string) error {
	if dst.Kind() == reflect.Pointer {
		elem := reflect.New(dst.Type().Elem())
		dst.Set(elem)
		dst = elem.Elem()
	}
	switch f.Kind {
	case datum.AnyKind:
		if data != nil {
			dst.Set(reflect.ValueOf(data))
		}
		return nil
	case datum.ObjectKind:
		return assignObject(dst, f.Spec, data, path)
	case datum.ListKind:
		return assignList(dst, f, data, path)
	case datum.MapKind:
		return assignMapping(dst, f, data, path)
	}
	v, err := f.Scalar(data)
	if err != nil {
		return fieldError(path, "%s", err)
	}
	dst.Set(reflect.ValueOf(v).Convert(dst.Type()))
	return nil
}

func assignList(dst reflect.Value, f *Field, data any, path string) error {
	items, ok := data.([]any)
	if f.IsName(data) || f.One && !ok {
		items, ok = []any{data}, true
	}
	if !ok {
		want := datum.Wants[datum.ListKind]
		if f.Names {
			want = "a name or a list of names"
		}
		return fieldError(path, "want %s, have %s", want, datum.DescribeData(data))
	}
	out := reflect.MakeSlice(dst.Type(), len(items), len(items))
	for i, item := range items {
		if err := assignElement(out.Index(i), f.Elem, item, fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	dst.Set(out)
	return nil
}

func assignMapping(dst reflect.Value, f *Field, data any, path string) error {
	m, ok := data.(map[string]any)
	if !ok {
		return fieldError(path, "want a mapping, have %s", datum.DescribeData(data))
	}
	out := reflect.MakeMapWithSize(dst.Type(), len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		item := reflect.New(dst.Type().Elem()).Elem()
		if err := assignElement(item, f.Elem, m[name], joinPath(path, name)); err != nil {
			return err
		}
		out.SetMapIndex(reflect.ValueOf(name).Convert(dst.Type().Key()), item)
	}
	dst.Set(out)
	return nil
}

// assignElement sets an element of a list or a mapping. Null is an element only where any value is.
func assignElement(dst reflect.Value, f *Field, data any, path string) error {
	if data == nil && f.Kind != datum.AnyKind {
		return fieldError(path, "want %s, have null", datum.Wants[f.Kind])
	}
	return assign(dst, f, data, path)
}

// fieldError returns an error about a field, or about the whole if path is empty.
func fieldError(path, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	if path == "" {
		return errors.New(message)
	}
	return fmt.Errorf("field %q: %s", path, message)
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
