package decode

import (
	"cmp"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/source"
	"procaas/dsl/spec"
)

// File reads a YAML file that does not contain pipelines, such as one of stub services, into the struct to
// which into points. s is the [spec.OfFile] of that struct. Expressions in its fields of type Value are
// compiled in scope, which may be nil if it has none. Findings are as in dsl.Load. into has everything that is valid. Do not use it if one of the
// findings is a [diag.Error].
func File(f diag.File, s *spec.Spec, into any, scope *expr.Scope) []diag.Diagnostic {
	r := new(diag.Reporter)
	src, ok := source.New(f, r)
	if !ok {
		return r.Diagnostics()
	}
	root := src.Read()
	if root == nil || !src.Measure(root) {
		return r.Diagnostics()
	}
	d := &decoder{Source: src}
	v := src.Value(root)
	if v.Kind != expr.ValueMap {
		d.Errorf(v.Head(), rules.Kind, "begin with one of "+strings.Join(s.Names(), ", "),
			"a file must be a mapping, this one is %s", v.Describe())
		return r.Diagnostics()
	}
	whole := &spec.Field{Kind: datum.ObjectKind, Spec: s}
	d.check(v, whole, "", allowance{})
	d.fill(into, s, v)
	spec.Compile(v, whole, cmp.Or(scope, &expr.Scope{}), r)
	return r.Diagnostics()
}
