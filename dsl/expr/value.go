package expr

import (
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
)

// A Value is a YAML value that may hold expressions at any depth. It is
// immutable and safe for concurrent use. A nil Value is null.
type Value struct {
	// Span is where the value stands.
	Span diag.Span

	// Exactly one of the following is meaningful, told by kind.
	Kind     valueKind
	Plain    bool     // valueLiteral: it is text without quotes
	Scalar   any      // valueLiteral: nil, bool, int, float64 or string
	Computed *Expr    // valueExpr
	Secret   string   // valueSecret: the name after !secret
	Elems    []*Value // valueList, and the values of valueMap
	Names    []Key    // valueMap: as many as items, in the order of the file
}

// A Key is the key of one entry of a mapping.
type Key struct {
	Name string
	Span diag.Span
}

type valueKind int

// What a [Value] is.
const (
	ValueLiteral valueKind = iota
	ValueExpr
	ValueSecret
	ValueList
	ValueMap
)

// Eval computes the value with all expressions in it. The result is fresh data
// that the caller may change. The error is an [*EvalError].
func (v *Value) Eval(env datum.Env) (any, error) { return v.eval(env, new(total)) }

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

// Reads lists what the expressions of the value may read, in file order.
func (v *Value) Reads() []datum.Read {
	var reads []datum.Read
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

// Literal returns the value when no expression and no secret is in it.
func (v *Value) Literal() (data any, ok bool) {
	if !v.Fixed() {
		return nil, false
	}
	data, err := v.Eval(nil)
	return data, err == nil
}

// Fixed reports whether neither an expression nor a secret is in the value.
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

// Expr returns the expression when the value as a whole is one; nil otherwise.
func (v *Value) Expr() *Expr {
	if v == nil || v.Kind != ValueExpr {
		return nil
	}
	return v.Computed
}

// Get finds an entry of a mapping; nil when v is no mapping or has no such key.
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

// With returns the mapping with one more entry, or with another value of one that it
// has. Without any mapping it returns one of this entry only.
func (v *Value) With(key Key, value *Value) *Value {
	out := v.Without([]string{key.Name})
	if out == nil {
		out = &Value{Span: key.Span, Kind: ValueMap}
	}
	out.Names, out.Elems = append(out.Names, key), append(out.Elems, value)
	return out
}

// Without returns the mapping without some of its entries; what is no mapping as it is.
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

// Count finds how often a name has a value, at any depth.
func (v *Value) Count(name string, want any) (n int) {
	if data, ok := v.Get(name).Literal(); ok && data == want {
		n++
	}
	for _, item := range v.Items() {
		n += item.Count(name, want)
	}
	return n
}

// At finds a part of a value; nil when there is none.
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

// WalkRefs visits the $ref of a schema and of all that is in it.
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

// Text returns a value that is a string.
func (v *Value) Text() (string, bool) {
	if v == nil || v.Kind != ValueLiteral {
		return "", false
	}
	text, ok := v.Scalar.(string)
	return text, ok
}

// Scalars appends where the texts, numbers and expressions of a value stand.
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

// Head is the part of a value that a message about the whole points at.
func (v *Value) Head() diag.Span {
	at := v.Span
	if at.Start.Line != at.End.Line && len(v.Names) > 0 && v.Names[0].Span.Start == at.Start {
		at.End = v.Names[0].Span.End
		return at
	}
	return at.Head()
}

// Describe says what a value is, for people.
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
