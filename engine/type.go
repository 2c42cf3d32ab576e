package engine

import (
	"reflect"

	"procaas/dsl/contracts"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
)

// A HandlerType is one kind of handler: its description for the language, and how to make one.
type HandlerType struct {
	tree.Type

	// New makes an empty handler for one call.
	New func() Handler
}

// Types returns what the language and plans need to know of the handler types.
func Types(types []HandlerType) []tree.Type {
	out := make([]tree.Type, len(types))
	for i, t := range types {
		out[i] = t.Type
	}
	return out
}

// Type describes the handler type whose struct is T. Sources are the Go files that may declare T.
// Type panics if a field of T is undocumented.
//
// The methods of *T add to this, all of them optional:
//
//   - CheckBody(*tree.Body) checks what tags cannot express.
//   - SetsState() says that the keys of the body set the shared state. The core computes them, and
//     nothing calls Handle.
//   - Emits() says that the type sends events. Emission(*dsl.Value) returns which event or task it
//     sends.
//   - KeepsBody() says that Handle changes nothing of what the fields have, and returns nothing of it. Then
//     they may share memory with the run.
//   - Operation(*dsl.Value) returns which operation of a service's API it calls.
//   - Peer(*dsl.Value) returns which declaration of an add-on it calls.
//   - Response(*dsl.Value) returns what the response is.
//   - Takes(*tree.Body) returns how long an attempt may take.
//   - Waits() says that the time of Takes is a wait for somebody, which is not repeated.
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
	if p, ok := zero.(interface{ Peer(*expr.Value) string }); ok {
		t.Peer = p.Peer
	}
	if r, ok := zero.(interface {
		Response(*expr.Value) *typing.Outline
	}); ok {
		t.Response = r.Response
	}
	if e, ok := zero.(interface {
		Emission(*expr.Value) tree.Emission
	}); ok {
		t.Emission = e.Emission
	}
	_, t.SetsState = zero.(interface{ SetsState() })
	_, t.KeepsBody = zero.(interface{ KeepsBody() })
	_, t.Emits = zero.(interface{ Emits() })
	_, t.Waits = zero.(interface{ Waits() })
	return t
}
