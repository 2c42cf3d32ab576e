package dsl

import "procaas/dsl/diag"

// A Value is a YAML value that may hold expressions at any depth. It is
// immutable and safe for concurrent use. A nil Value is null.
type Value struct {
	// Span is where the value stands.
	Span diag.Span

	// Exactly one of the following is meaningful, told by kind.
	kind    valueKind
	plain   bool     // valueLiteral: it is text without quotes
	literal any      // valueLiteral: nil, bool, int, float64 or string
	expr    *Expr    // valueExpr
	secret  string   // valueSecret: the name after !secret
	items   []*Value // valueList, and the values of valueMap
	keys    []Key    // valueMap: as many as items, in the order of the file
}

// A Key is the key of one entry of a mapping.
type Key struct {
	Name string
	Span diag.Span
}

type valueKind int

const (
	valueLiteral valueKind = iota
	valueExpr
	valueSecret
	valueList
	valueMap
)

// Eval computes the value with all expressions in it. The result is fresh data
// that the caller may change. The error is an [*EvalError].
func (v *Value) Eval(env Env) (any, error) { return v.eval(env, new(total)) }

func (v *Value) eval(env Env, t *total) (any, error) {
	if v == nil {
		return nil, nil
	}
	switch v.kind {
	case valueExpr:
		return v.expr.program.run(v.expr, env, t)
	case valueSecret:
		return Secret{Name: v.secret}, nil
	case valueList:
		list := make([]any, len(v.items))
		for i, item := range v.items {
			data, err := item.eval(env, t)
			if err != nil {
				return nil, err
			}
			list[i] = data
		}
		return list, nil
	case valueMap:
		m := make(map[string]any, len(v.items))
		for i, item := range v.items {
			data, err := item.eval(env, t)
			if err != nil {
				return nil, err
			}
			m[v.keys[i].Name] = data
		}
		return m, nil
	}
	return v.literal, nil
}

// Reads lists what the expressions of the value may read, in file order.
func (v *Value) Reads() []Read {
	var reads []Read
	v.walkExprs(func(e *Expr) { reads = append(reads, e.Reads()...) })
	return reads
}

// walkExprs visits the expressions of the value in file order.
func (v *Value) walkExprs(visit func(*Expr)) {
	if v == nil {
		return
	}
	if v.kind == valueExpr {
		visit(v.expr)
	}
	for _, item := range v.items {
		item.walkExprs(visit)
	}
}

// Literal gives the value when no expression and no secret is in it.
func (v *Value) Literal() (data any, ok bool) {
	if !v.fixed() {
		return nil, false
	}
	data, err := v.Eval(nil)
	return data, err == nil
}

// fixed tells whether neither an expression nor a secret is in the value.
func (v *Value) fixed() bool {
	if v == nil {
		return true
	}
	for _, item := range v.items {
		if !item.fixed() {
			return false
		}
	}
	return v.kind != valueExpr && v.kind != valueSecret
}

// IsNull tells whether the value is absent or a literal null.
func (v *Value) IsNull() bool { return v == nil || v.kind == valueLiteral && v.literal == nil }

// Expr gives the expression when the value as a whole is one; nil otherwise.
func (v *Value) Expr() *Expr {
	if v == nil || v.kind != valueExpr {
		return nil
	}
	return v.expr
}

// Get finds an entry of a mapping; nil when v is no mapping or has no such key.
func (v *Value) Get(name string) *Value {
	if v == nil || v.kind != valueMap {
		return nil
	}
	for i, k := range v.keys {
		if k.Name == name {
			return v.items[i]
		}
	}
	return nil
}

// Keys lists the keys of a mapping in the order of the file.
func (v *Value) Keys() []Key {
	if v == nil || v.kind != valueMap {
		return nil
	}
	return v.keys
}

// Items lists the elements of a list, or the values of a mapping in the order
// of Keys.
func (v *Value) Items() []*Value {
	if v == nil {
		return nil
	}
	return v.items
}
