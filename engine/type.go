package engine

import (
	"reflect"

	"procaas/dsl/contracts"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// A HandlerType is one kind of handler: what the language knows of it, and how
// to make one.
type HandlerType struct {
	tree.Type

	// New makes an empty handler for one call.
	New func() Handler
}

// Types gives what the language and plans know of handler types.
func Types(types []HandlerType) []tree.Type {
	out := make([]tree.Type, len(types))
	for i, t := range types {
		out[i] = t.Type
	}
	return out
}

// Type describes the handler type whose struct is T, declared in one of the sources. It
// panics when a field of T is undocumented.
//
// A *T that has a method CheckBody(*tree.Body) checks what tags cannot say. A *T
// that has a method SetsState() sets the shared state with the keys of its
// body: the core computes it by itself, and Handle is not called. A *T that has
// a method Emits() hands in events, and one with Emission(*dsl.Value) tells which, or
// what task it puts.
// A *T that has a method Operation(*dsl.Value) tells what of a service's API it
// calls, and one with Takes(*tree.Body) how long an attempt may take.
func Type[T any, P interface {
	*T
	Handler
}](name string, from spec.Sources) HandlerType {
	t := HandlerType{
		Type: tree.Type{Name: name, Spec: spec.Of(reflect.TypeFor[T](), from)},
		New:  func() Handler { return P(new(T)) },
	}
	var zero any = P(new(T))
	if c, ok := zero.(interface{ CheckBody(*tree.Body) }); ok {
		t.Check = c.CheckBody
	}
	if o, ok := zero.(interface {
		Operation(*expr.Value) (contracts.Operation, bool)
	}); ok {
		t.Operation = o.Operation
	}
	if l, ok := zero.(interface {
		Takes(*tree.Body) tree.Longest
	}); ok {
		t.Takes = l.Takes
	}
	if e, ok := zero.(interface {
		Emission(*expr.Value) tree.Emission
	}); ok {
		t.Emission = e.Emission
	}
	_, t.SetsState = zero.(interface{ SetsState() })
	_, t.Emits = zero.(interface{ Emits() })
	return t
}
