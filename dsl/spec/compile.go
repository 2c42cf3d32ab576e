package spec

import (
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
)

// CompileFields compiles the expressions of a mapping that a Spec describes. It
// passes over unknown fields, which are reported anyway.
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

// Compile compiles the expressions of a value. An expression that is the
// whole value must give what the field wants; a nil field wants nothing
// particular.
func Compile(v *expr.Value, f *Field, sc *expr.Scope, r *diag.Reporter) {
	if v == nil {
		return
	}
	f = f.Of(v)
	switch v.Kind {
	case expr.ValueLiteral:
		// Where text makes no sense, the literal itself is an error already.
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

// wantOf is the kind that an expression in the place of a field must give.
func wantOf(f *Field) datum.Kind {
	if f == nil {
		return datum.AnyKind
	}
	return f.Want()
}

// elemOf is the field of the elements of a list or the members of a mapping; nil when nothing
// particular is wanted of them.
func elemOf(f *Field) *Field {
	if f == nil {
		return nil
	}
	return f.Elem
}
