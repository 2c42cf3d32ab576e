package tree

import (
	"cmp"
	"reflect"
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
)

// Cover makes the expressions of the bundle count their branches. Call it before any of them is evaluated.
func (b *Bundle) Cover() *expr.Cover {
	w := coverWalk{cover: &expr.Cover{}, seen: map[*expr.Expr]bool{}}
	spec := b.Language.File()
	for _, f := range b.Flows {
		w.object(reflect.ValueOf(f), spec.Field("flows").Elem.Spec)
	}
	for _, p := range b.Pipelines {
		w.object(reflect.ValueOf(p), spec.Field("pipelines").Elem.Spec)
	}
	slices.SortStableFunc(w.cover.Forks, func(a, b *expr.Fork) int {
		x, y := a.Span, b.Span
		return cmp.Or(cmp.Compare(x.File, y.File), cmp.Compare(x.Start.Line, y.Start.Line), cmp.Compare(x.Start.Column, y.Start.Column))
	})
	return w.cover
}

// A coverWalk visits the expressions of a tree.
type coverWalk struct {
	cover *expr.Cover
	seen  map[*expr.Expr]bool
}

// object visits the fields of a struct of the language. v is a pointer to it.
func (w *coverWalk) object(v reflect.Value, s *spec.Spec) {
	if v.IsNil() {
		return
	}
	switch x := v.Interface().(type) {
	case *Handler:
		w.value(x.Body, false)
	case *Compensation:
		w.value(x.Body, false)
	case *Verify:
		w.value(x.Body, false)
	case *Use:
		return // the handler has its fields
	}
	for _, f := range s.Fields {
		if f.Index >= 0 {
			w.field(v.Elem().Field(f.Index), f)
			continue
		}
		if added := v.Interface().(interface{ AddedField(name string) any }).AddedField(f.Name); added != nil {
			w.field(reflect.ValueOf(added), f)
		}
	}
}

func (w *coverWalk) field(v reflect.Value, f *spec.Field) {
	switch {
	case f.IsValue:
		w.value(v.Interface().(*expr.Value), f.ExprKind == datum.BoolKind)
	case f.Kind == datum.ObjectKind:
		w.object(v, f.Spec)
	case f.Kind == datum.ListKind && f.Elem.Kind == datum.ObjectKind:
		for i := range v.Len() {
			w.object(v.Index(i), f.Elem.Spec)
		}
	}
}

// value covers the expressions of a value. A condition is one fork as a whole.
func (w *coverWalk) value(v *expr.Value, condition bool) {
	v.WalkExprs(func(e *expr.Expr) {
		if !w.seen[e] {
			w.seen[e] = true
			e.CountWays(w.cover, condition && v.Expr() == e)
		}
	})
}
