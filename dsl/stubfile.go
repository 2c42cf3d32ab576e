package dsl

import "strings"

// DecodeFile reads a YAML file of another kind than pipelines, such as one of
// stub services, into the struct that into points to; s is that struct's Spec.
// The expressions in its fields of type Value may read the given roots. What is
// reported is as in [Load]; into holds everything that is sound, and must not be
// used when one of the findings is an [Error].
func DecodeFile(f File, s *Spec, into any, roots []string) []Diagnostic {
	r := new(Reporter)
	src, ok := newSource(f, r)
	if !ok {
		return r.Diagnostics()
	}
	root := src.read()
	if root == nil || !src.measure(root) {
		return r.Diagnostics()
	}
	forbidExprs(s)
	d := &decoder{source: src}
	v := src.value(root)
	if v.kind != valueMap {
		d.errorf(head(v), codeKind, "begin with one of "+strings.Join(s.Names(), ", "),
			"a file must be a mapping, this one is %s", describeValue(v))
		return r.Diagnostics()
	}
	whole := &Field{Kind: ObjectKind, Spec: s}
	d.check(v, whole, "", allowance{})
	d.fill(into, s, v)
	compileAll(v, whole, &scope{roots: roots}, r)
	return r.Diagnostics()
}

// compileAll compiles the expressions of a value for the kinds that its field
// wants. It passes over unknown fields, which are reported anyway.
func compileAll(v *Value, f *Field, sc *scope, r *Reporter) {
	if f == nil {
		return
	}
	if v.kind == valueExpr {
		v.expr.compile(sc, f.want(), r)
	}
	for i, item := range v.items {
		below := anything
		switch {
		case v.kind == valueMap && f.Spec != nil:
			below = f.Spec.Field(v.keys[i].Name)
		case f.Elem != nil:
			below = f.Elem
		}
		compileAll(item, below, sc, r)
	}
}
