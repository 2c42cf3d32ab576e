package dsl

import (
	"fmt"
	"reflect"
	"slices"
)

// fill sets the fields of the struct that into points to: defaults, then what
// the mapping gives. It passes over what check has reported.
func (d *decoder) fill(into any, s *Spec, v *Value) {
	dst := reflect.ValueOf(into).Elem()
	if span := dst.FieldByName("Span"); span.IsValid() {
		span.Set(reflect.ValueOf(v.Span))
	}
	keeper, _ := into.(interface{ keep(string, Span) })
	for _, f := range s.Fields {
		f.setDefault(dst.Field(f.index))
		item := v.Get(f.Name)
		if item == nil {
			continue
		}
		d.fillField(dst.Field(f.index), f, item)
		if keeper == nil {
			continue
		}
		keeper.keep(f.Name, item.Span)
		if f.Kind == ListKind && f.Elem.Kind == StringKind {
			for i, name := range item.items {
				keeper.keep(fmt.Sprintf("%s[%d]", f.Name, i), name.Span)
			}
		}
	}
	b := d.bodies[v]
	if b == nil {
		return
	}
	switch into := into.(type) {
	case *Handler:
		into.Type, into.Body = b.typ.Name, b.value
		into.keep("type", b.key)
	case *Verify:
		into.Type, into.Body = b.typ.Name, b.value
		into.keep("type", b.key)
	}
}

func (d *decoder) fillField(dst reflect.Value, f *Field, v *Value) {
	switch {
	case f.value:
		if f.ExprKind != MapKind || v.kind == valueMap || v.kind == valueExpr {
			dst.Set(reflect.ValueOf(v))
		}
	case f.Kind == ObjectKind:
		word, _ := v.literal.(string)
		if v.kind != valueMap && !slices.Contains(f.Words, word) {
			return
		}
		dst.Set(reflect.New(dst.Type().Elem()))
		d.fill(dst.Interface(), f.Spec, v)
		if v.kind != valueMap {
			dst.Elem().FieldByName("Word").SetString(word)
		}
	case f.Kind == ListKind && f.Elem.Kind == ObjectKind:
		for _, item := range v.items {
			if v.kind == valueList && item.kind == valueMap {
				elem := reflect.New(dst.Type().Elem().Elem())
				d.fill(elem.Interface(), f.Elem.Spec, item)
				dst.Set(reflect.Append(dst, elem))
			}
		}
	default:
		if data, ok := v.Literal(); ok && data != nil {
			_ = (&assigner{}).assign(dst, f, data, f.Name) // check has reported what is wrong
		}
	}
}
