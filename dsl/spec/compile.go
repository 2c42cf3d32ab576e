package spec

import (
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
)

// CompileFields compiles the expressions of a mapping with the fields of a Spec. It ignores unknown fields,
// which are reported elsewhere.
func CompileFields(v *expr.Value, s *Spec, sc *expr.Scope, r *diag.Reporter) {
	if v == nil || v.Kind != expr.ValueMap || s == nil {
		Compile(v, nil, sc, r)
		return
	}
	for i, k := range v.Names {
		if f := s.Field(k.Name); f != nil {
			Compile(v.Elems[i], f, sc, r)
		} else if inline := s.InlineField(); inline != nil {
			Compile(v.Elems[i], inline.Elem, sc, r)
		}
	}
}

// Compile compiles the expressions of a value. An expression that is the whole value must return the kind of
// the field. A nil field accepts any kind.
func Compile(v *expr.Value, f *Field, sc *expr.Scope, r *diag.Reporter) {
	if v == nil {
		return
	}
	f = f.Of(v)
	switch v.Kind {
	case expr.ValueLiteral:
		// Where text is not allowed, the literal itself is already an error.
		if want := wantOf(f); want == datum.AnyKind || want == datum.StringKind {
			sc.WarnForgotten(v, r)
		}
	case expr.ValueExpr:
		v.Computed.Compile(sc, wantOf(f), r)
	case expr.ValueList:
		for _, item := range v.Elems {
			Compile(item, elemOf(f), sc, r)
		}
	case expr.ValueMap:
		if f != nil && f.Kind == datum.ObjectKind {
			CompileFields(v, f.Spec, sc, r)
			return
		}
		for _, item := range v.Elems {
			Compile(item, elemOf(f), sc, r)
		}
	}
}

// wantOf returns the kind that an expression must return for a field.
func wantOf(f *Field) datum.Kind {
	if f == nil {
		return datum.AnyKind
	}
	return f.Want()
}

// elemOf returns the field of a list's elements or a mapping's members, or nil if they may be anything.
func elemOf(f *Field) *Field {
	if f == nil {
		return nil
	}
	return f.Elem
}
