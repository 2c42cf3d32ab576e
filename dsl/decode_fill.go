package dsl

import (
	"fmt"
	"reflect"
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
	if h, ok := into.(*Handler); ok {
		if b := d.bodies[v]; b != nil {
			h.Type, h.Body = b.typ.Name, b.value
			h.keep("type", b.key)
		}
	}
}

func (d *decoder) fillField(dst reflect.Value, f *Field, v *Value) {
	switch {
	case f.value:
		if f.ExprKind != MapKind || v.kind == valueMap || v.kind == valueExpr {
			dst.Set(reflect.ValueOf(v))
		}
	case f.Kind == ObjectKind:
		if v.kind == valueMap {
			dst.Set(reflect.New(dst.Type().Elem()))
			d.fill(dst.Interface(), f.Spec, v)
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
