package expr

import (
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
)

// A Value is a YAML value that may contain expressions at any depth. It is immutable and safe for concurrent
// use. A nil Value is null.
type Value struct {
	// Span is the position of the value.
	Span diag.Span

	// Kind says which of the following fields are set.
	Kind     valueKind
	Plain    bool     // valueLiteral: text without quotes
	Scalar   any      // valueLiteral: nil, bool, int, float64 or string
	Computed *Expr    // valueExpr
	Secret   string   // valueSecret: the name after !secret
	Elems    []*Value // elements of valueList, values of valueMap
	Names    []Key    // valueMap: same length as Elems, in the order of the file
}

// A Key is the key of one entry of a mapping.
type Key struct {
	Name string
	Span diag.Span
}

type valueKind int

// The kinds of a [Value].
const (
	ValueLiteral valueKind = iota
	ValueExpr
	ValueSecret
	ValueList
	ValueMap
)

// Eval evaluates the value with all its expressions. The caller may change the result. The error is an
// [*EvalError].
func (v *Value) Eval(env datum.Env) (any, error) { return v.eval(env, new(total)) }

// Share is Eval without copies: the result may share memory with env. Nobody may change either.
func (v *Value) Share(env datum.Env) (any, error) { return v.eval(env, &total{shares: true}) }

func (v *Value) eval(env datum.Env, t *total) (any, error) {
	if v == nil {
		return nil, nil
	}
	switch v.Kind {
	case ValueExpr:
		return v.Computed.Program.run(v.Computed, env, t)
	case ValueSecret:
		return datum.Secret{Name: v.Secret}, nil
	case ValueList:
		list := make([]any, len(v.Elems))
		for i, item := range v.Elems {
			data, err := item.eval(env, t)
			if err != nil {
				return nil, err
			}
			list[i] = data
		}
		return list, nil
	case ValueMap:
		m := make(map[string]any, len(v.Elems))
		for i, item := range v.Elems {
			data, err := item.eval(env, t)
			if err != nil {
				return nil, err
			}
			m[v.Names[i].Name] = data
		}
		return m, nil
	}
	return v.Scalar, nil
}

// Reads lists the paths that the expressions of the value may read, in file order. The list may be that of an expression, so nobody may
// change its elements.
func (v *Value) Reads() []datum.Read {
	if v == nil || v.Kind == ValueExpr {
		return slices.Clip(v.Expr().Reads())
	}
	n := 0
	v.WalkExprs(func(e *Expr) { n += len(e.Reads()) })
	if n == 0 {
		return nil
	}
	reads := make([]datum.Read, 0, n)
	v.WalkExprs(func(e *Expr) { reads = append(reads, e.Reads()...) })
	return reads
}

// WalkExprs visits the expressions of the value in file order.
func (v *Value) WalkExprs(visit func(*Expr)) {
	if v == nil {
		return
	}
	if v.Kind == ValueExpr {
		visit(v.Computed)
	}
	for _, item := range v.Elems {
		item.WalkExprs(visit)
	}
}

// Walk visits the value and its parts in file order.
func (v *Value) Walk(visit func(*Value)) {
	if v == nil {
		return
	}
	visit(v)
	for _, item := range v.Elems {
		item.Walk(visit)
	}
}

// Secrets visits the secrets in the value.
func (v *Value) Secrets(visit func(*Value)) {
	v.Walk(func(v *Value) {
		if v.Kind == ValueSecret {
			visit(v)
		}
	})
}

// SecretName returns the name of the secret that the value is. It is empty for an absent value.
func (v *Value) SecretName() string {
	if v == nil {
		return ""
	}
	return v.Secret
}

// Literal returns the value if it contains neither expressions nor secrets.
func (v *Value) Literal() (data any, ok bool) {
	if !v.Fixed() {
		return nil, false
	}
	data, err := v.Eval(nil)
	return data, err == nil
}

// Fixed reports whether the value contains neither expressions nor secrets.
func (v *Value) Fixed() bool {
	if v == nil {
		return true
	}
	for _, item := range v.Elems {
		if !item.Fixed() {
			return false
		}
	}
	return v.Kind != ValueExpr && v.Kind != ValueSecret
}

// IsNull reports whether the value is absent or a literal null.
func (v *Value) IsNull() bool { return v == nil || v.Kind == ValueLiteral && v.Scalar == nil }

// Expr returns the expression if the whole value is one, or nil.
func (v *Value) Expr() *Expr {
	if v == nil || v.Kind != ValueExpr {
		return nil
	}
	return v.Computed
}

// Get returns an entry of a mapping. It returns nil if v is not a mapping or has no such key.
func (v *Value) Get(name string) *Value {
	if v == nil || v.Kind != ValueMap {
		return nil
	}
	for i, k := range v.Names {
		if k.Name == name {
			return v.Elems[i]
		}
	}
	return nil
}

// Keys lists the keys of a mapping in the order of the file.
func (v *Value) Keys() []Key {
	if v == nil || v.Kind != ValueMap {
		return nil
	}
	return v.Names
}

// KeyNames lists the names of a mapping in the order of the file.
func (v *Value) KeyNames() []string {
	var out []string
	for _, k := range v.Keys() {
		out = append(out, k.Name)
	}
	return out
}

// With returns a copy of the mapping with an added or replaced entry. Without a mapping, the result has only
// this entry.
func (v *Value) With(key Key, value *Value) *Value {
	out := v.Without([]string{key.Name})
	if out == nil {
		out = &Value{Span: key.Span, Kind: ValueMap}
	}
	out.Names, out.Elems = append(out.Names, key), append(out.Elems, value)
	return out
}

// Without returns a copy of the mapping without some entries. It returns other values unchanged.
func (v *Value) Without(names []string) *Value {
	if v == nil || v.Kind != ValueMap {
		return v
	}
	out := &Value{Span: v.Span, Kind: ValueMap}
	for i, k := range v.Names {
		if !slices.Contains(names, k.Name) {
			out.Names, out.Elems = append(out.Names, k), append(out.Elems, v.Elems[i])
		}
	}
	return out
}

// FindKey finds the key of a mapping.
func FindKey(keys []Key, name string) (Key, bool) {
	i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == name })
	if i < 0 {
		return Key{}, false
	}
	return keys[i], true
}

// Items lists the elements of a list, or the values of a mapping in the order
// of Keys.
func (v *Value) Items() []*Value {
	if v == nil {
		return nil
	}
	return v.Elems
}

// Count returns how often a name has a value, at any depth.
func (v *Value) Count(name string, want any) (n int) {
	if data, ok := v.Get(name).Literal(); ok && data == want {
		n++
	}
	for _, item := range v.Items() {
		n += item.Count(name, want)
	}
	return n
}

// At returns a part of a value, or nil.
func (v *Value) At(p datum.Path) *Value {
	for _, name := range p {
		if v == nil {
			return nil
		}
		switch v.Kind {
		case ValueMap:
			v = v.Get(name)
		case ValueList:
			i, ok := datum.ElementIndex(name)
			if !ok || i >= len(v.Elems) {
				return nil
			}
			v = v.Elems[i]
		default:
			return nil
		}
	}
	return v
}

// WalkRefs visits every $ref in a schema.
func (v *Value) WalkRefs(visit func(v *Value, text string)) {
	if v == nil {
		return
	}
	if text, ok := v.Get("$ref").Text(); ok {
		visit(v.Get("$ref"), text)
	}
	for _, item := range v.Elems {
		item.WalkRefs(visit)
	}
}

// Text returns the value if it is a string.
func (v *Value) Text() (string, bool) {
	if v == nil || v.Kind != ValueLiteral {
		return "", false
	}
	text, ok := v.Scalar.(string)
	return text, ok
}

// Scalars appends the positions of the texts, numbers and expressions of a value.
func (v *Value) Scalars(to []diag.Span) []diag.Span {
	if v == nil {
		return to
	}
	for _, key := range v.Names {
		to = append(to, key.Span)
	}
	for _, item := range v.Elems {
		to = item.Scalars(to)
	}
	if v.Kind != ValueList && v.Kind != ValueMap {
		to = append(to, v.Span)
	}
	return to
}

// Head returns the position for a message about the whole value.
func (v *Value) Head() diag.Span {
	at := v.Span
	if at.Start.Line != at.End.Line && len(v.Names) > 0 && v.Names[0].Span.Start == at.Start {
		at.End = v.Names[0].Span.End
		return at
	}
	return at.Head()
}

// Describe describes a value for messages.
func (v *Value) Describe() string {
	switch v.Kind {
	case ValueExpr:
		return "an expression"
	case ValueSecret:
		return "a secret"
	case ValueList:
		return "a list"
	case ValueMap:
		return "a mapping"
	}
	return datum.DescribeData(v.Scalar)
}
