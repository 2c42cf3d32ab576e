package dsl

// A Value is a YAML value that may hold expressions at any depth. It is
// immutable and safe for concurrent use. A nil Value is null.
type Value struct {
	// Span is where the value stands.
	Span Span

	// Exactly one of the following is meaningful, told by kind.
	kind    valueKind
	literal any      // valueLiteral: nil, bool, int, float64 or string
	expr    *Expr    // valueExpr
	secret  string   // valueSecret: the name after !secret
	items   []*Value // valueList, and the values of valueMap
	keys    []Key    // valueMap: as many as items, in the order of the file
}

// A Key is the key of one entry of a mapping.
type Key struct {
	Name string
	Span Span
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
func (v *Value) Eval(env Env) (any, error) { panic("dsl: Value.Eval is not written yet") }

// Reads lists what the expressions of the value may read, in file order.
func (v *Value) Reads() []Read { panic("dsl: Value.Reads is not written yet") }

// Literal gives the value when no expression and no secret is in it.
func (v *Value) Literal() (data any, ok bool) { panic("dsl: Value.Literal is not written yet") }

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
