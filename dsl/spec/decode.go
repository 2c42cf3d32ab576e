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

// Decode fills the struct that into points to, of the type that s was derived
// from, with defaults and then with data, a map[string]any as [expr.Value.Eval]
// gives it. The error names the field and says what was expected. A [datum.Secret]
// may only stand where a field takes any value; it stays as it is.
func (s *Spec) Decode(data any, into any) error {
	return (&assigner{}).object(reflect.ValueOf(into).Elem(), s, data, "")
}

// DecodeWith is Decode with every [datum.Secret] in data, however deep, replaced by
// the text that resolve gives for it.
func (s *Spec) DecodeWith(data any, into any, resolve func(datum.Secret) (string, error)) error {
	return (&assigner{resolve}).object(reflect.ValueOf(into).Elem(), s, data, "")
}

// An assigner sets Go values from data.
type assigner struct {
	resolve func(datum.Secret) (string, error) // nil leaves secrets alone
}

// object sets the fields of a struct from a mapping.
func (a *assigner) object(dst reflect.Value, s *Spec, data any, path string) error {
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
		field := dst.Field(f.Index)
		value, at := m[f.Name], joinPath(path, f.Name)
		if f == inline {
			value, at = rest, path
			if rest == nil {
				value = map[string]any{}
			}
		}
		if value == nil || f.Kind == datum.ObjectKind {
			f.SetDefault(field)
		} else {
			field.SetZero()
		}
		if value == nil {
			if f.Required {
				return fieldError(at, "required, but it is not given or null")
			}
			continue
		}
		if err := a.assign(field, f, value, at); err != nil {
			return err
		}
	}
	return nil
}

// Set makes the Go value dst hold data, as the field says.
func (f *Field) Set(dst reflect.Value, data any) error {
	return (&assigner{}).assign(dst, f, data, f.Name)
}

// SetDefault sets the field to its default, or to zero. A pointer stays nil,
// so that its owner can tell what was given.
func (f *Field) SetDefault(dst reflect.Value) {
	switch {
	case !f.initial.IsValid():
		dst.SetZero()
	case f.Kind == datum.ListKind: // which is the owner's to change
		dst.Set(reflect.AppendSlice(reflect.MakeSlice(dst.Type(), 0, f.initial.Len()), f.initial))
	default:
		dst.Set(f.initial)
	}
}

// assign sets a Go value from data that is not null.
func (a *assigner) assign(dst reflect.Value, f *Field, data any, path string) error {
	if secret, ok := data.(datum.Secret); ok && a.resolve != nil {
		text, err := a.resolve(secret)
		if err != nil {
			return fmt.Errorf("field %q: secret %s: %w", path, secret.Name, err)
		}
		data = text
	}
	if dst.Kind() == reflect.Pointer {
		elem := reflect.New(dst.Type().Elem())
		dst.Set(elem)
		dst = elem.Elem()
	}
	switch f.Kind {
	case datum.AnyKind:
		data, err := a.reveal(data, path)
		if err == nil && data != nil {
			dst.Set(reflect.ValueOf(data))
		}
		return err
	case datum.ObjectKind:
		return a.object(dst, f.Spec, data, path)
	case datum.ListKind:
		return a.list(dst, f, data, path)
	case datum.MapKind:
		return a.mapping(dst, f, data, path)
	}
	v, err := f.Scalar(data)
	if err != nil {
		return fieldError(path, "%s", err)
	}
	dst.Set(reflect.ValueOf(v).Convert(dst.Type()))
	return nil
}

func (a *assigner) list(dst reflect.Value, f *Field, data any, path string) error {
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
		if err := a.element(out.Index(i), f.Elem, item, fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	dst.Set(out)
	return nil
}

func (a *assigner) mapping(dst reflect.Value, f *Field, data any, path string) error {
	m, ok := data.(map[string]any)
	if !ok {
		return fieldError(path, "want a mapping, have %s", datum.DescribeData(data))
	}
	out := reflect.MakeMapWithSize(dst.Type(), len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		item := reflect.New(dst.Type().Elem()).Elem()
		if err := a.element(item, f.Elem, m[name], joinPath(path, name)); err != nil {
			return err
		}
		out.SetMapIndex(reflect.ValueOf(name).Convert(dst.Type().Key()), item)
	}
	dst.Set(out)
	return nil
}

// element sets an element of a list or a mapping. Nothing is an element only
// where anything is.
func (a *assigner) element(dst reflect.Value, f *Field, data any, path string) error {
	if data == nil && f.Kind != datum.AnyKind {
		return fieldError(path, "want %s, have null", datum.Wants[f.Kind])
	}
	return a.assign(dst, f, data, path)
}

// reveal copies data with its secrets replaced.
func (a *assigner) reveal(data any, path string) (any, error) {
	if a.resolve == nil {
		return data, nil
	}
	switch x := data.(type) {
	case datum.Secret:
		text, err := a.resolve(x)
		if err != nil {
			return nil, fmt.Errorf("field %q: secret %s: %w", path, x.Name, err)
		}
		return text, nil
	case []any:
		out := make([]any, len(x))
		for i := range x {
			v, err := a.reveal(x[i], fmt.Sprintf("%s[%d]", path, i))
			if err != nil {
				return nil, err
			}
			out[i] = v
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(x))
		for _, name := range slices.Sorted(maps.Keys(x)) {
			v, err := a.reveal(x[name], joinPath(path, name))
			if err != nil {
				return nil, err
			}
			out[name] = v
		}
		return out, nil
	}
	return data, nil
}

// fieldError makes an error about a field, or about the whole when there is no path.
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
