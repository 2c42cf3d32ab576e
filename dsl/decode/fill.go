package decode

import (
	"reflect"
	"slices"
	"strconv"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// fill sets the fields of the struct to which into points: defaults, then the values of the mapping. It ignores
// what check has reported.
func (d *decoder) fill(into any, s *spec.Spec, v *expr.Value) {
	dst := reflect.ValueOf(into).Elem()
	if span := dst.FieldByName("Span"); span.IsValid() {
		span.Set(reflect.ValueOf(v.Span))
	}
	keeper, _ := into.(interface {
		GrowPlaces(fields int)
		Note(string, diag.Span)
	})
	if keeper != nil {
		places := len(v.Names) + 1 // one for the type of a handler
		for _, item := range v.Elems {
			if item.Kind == expr.ValueList && len(item.Elems) > 0 && item.Elems[0].Kind == expr.ValueLiteral {
				places += len(item.Elems) // most likely names
			}
		}
		keeper.GrowPlaces(places)
	}
	for _, f := range s.Fields {
		item := v.Get(f.Name)
		if f.Index < 0 {
			if item != nil {
				d.fillAdded(into.(adder), f, item)
			}
		} else {
			f.SetDefault(dst.Field(f.Index))
			if item != nil {
				d.fillField(dst.Field(f.Index), f, item)
			}
		}
		if item == nil {
			continue
		}
		if f.Live && item.Kind == expr.ValueExpr {
			live := dst.FieldByName("Live").Addr().Interface().(*tree.Times)
			live.Keep(f.Name, item)
		}
		if keeper == nil {
			continue
		}
		keeper.Note(f.Name, item.Span)
		if f.Kind == datum.ListKind && f.Elem.Kind == datum.StringKind {
			for i, name := range item.Elems {
				keeper.Note(f.Name+"["+strconv.Itoa(i)+"]", name.Span)
			}
		}
	}
	b := d.bodies[v]
	if b == nil {
		return
	}
	switch into := into.(type) {
	case *tree.Handler:
		into.Type, into.Body = b.typ.Name, b.value
		into.Note("type", b.key)
	case *tree.Compensation:
		into.Type, into.Body = b.typ.Name, b.value
		into.Note("type", b.key)
	case *tree.Verify:
		into.Type, into.Body = b.typ.Name, b.value
		into.Note("type", b.key)
	}
}

// An adder takes the values of fields of add-ons.
type adder interface{ KeepField(name string, value any) }

// fillAdded decodes a field of an add-on. Like a field of the struct, it is not set if nothing of its value is valid.
func (d *decoder) fillAdded(into adder, f *spec.Field, v *expr.Value) {
	value := reflect.New(f.Type).Elem()
	d.fillField(value, f, v)
	if !value.IsZero() {
		into.KeepField(f.Name, value.Interface())
	}
}

func (d *decoder) fillField(dst reflect.Value, f *spec.Field, v *expr.Value) {
	switch {
	case f.IsValue:
		if f.ExprKind != datum.MapKind || v.Kind == expr.ValueMap || v.Kind == expr.ValueExpr {
			dst.Set(reflect.ValueOf(v))
		}
	case f.Kind == datum.ObjectKind:
		d.fillObject(dst, f, v)
	case f.Kind == datum.ListKind && f.Elem.Kind == datum.ObjectKind:
		items := v.Elems
		if f.Of(v) != f {
			items = []*expr.Value{v}
		}
		for _, item := range items {
			elem := reflect.New(dst.Type().Elem()).Elem()
			if (v.Kind == expr.ValueList || f.Of(v) != f) && d.fillObject(elem, f.Elem, item) {
				dst.Set(reflect.Append(dst, elem))
			}
		}
	case f.Kind == datum.MapKind && f.Innermost().Kind == datum.ObjectKind:
		d.fillEntries(dst, f, v)
	default:
		if data, ok := v.Literal(); ok && data != nil {
			_ = f.Set(dst, data) // check has reported errors
		}
	}
}

// fillObject decodes a mapping, or a word that replaces it, into a struct. It returns false for any other
// value.
func (d *decoder) fillObject(dst reflect.Value, f *spec.Field, v *expr.Value) bool {
	word, _ := v.Scalar.(string)
	if v.Kind != expr.ValueMap && !slices.Contains(f.Words, word) {
		return false
	}
	dst.Set(reflect.New(dst.Type().Elem()))
	d.fill(dst.Interface(), f.Spec, v)
	if v.Kind != expr.ValueMap {
		dst.Elem().FieldByName("Word").SetString(word)
	}
	return true
}

// fillEntries fills a map of structs, or of lists of them. A struct with a field Key gets its key.
func (d *decoder) fillEntries(dst reflect.Value, f *spec.Field, v *expr.Value) {
	if v.Kind != expr.ValueMap {
		return
	}
	dst.Set(reflect.MakeMapWithSize(dst.Type(), len(v.Names)))
	for i, key := range v.Names {
		entry := reflect.New(dst.Type().Elem()).Elem()
		d.fillField(entry, f.Elem, v.Elems[i])
		if entry.IsZero() {
			continue
		}
		dst.SetMapIndex(reflect.ValueOf(key.Name), entry)
		structs := []reflect.Value{entry}
		if f.Elem.Kind == datum.ListKind {
			structs = structs[:0]
			for j := range entry.Len() {
				structs = append(structs, entry.Index(j))
			}
		}
		for _, s := range structs {
			if at := s.Elem().FieldByName("Key"); at.IsValid() && at.Type() == reflect.TypeFor[expr.Key]() {
				at.Set(reflect.ValueOf(key))
			}
		}
	}
}
