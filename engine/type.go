package engine

import (
	"reflect"

	"procaas/dsl"
)

// A HandlerType is one kind of handler: what the language knows of it, and how
// to make one.
type HandlerType struct {
	dsl.Type

	// New makes an empty handler for one call.
	New func() Handler
}

// Type describes the handler type whose struct is T, declared in source. It
// panics when a field of T is undocumented.
//
// A *T that has a method CheckBody(*dsl.Body) checks what tags cannot say. A *T
// that has a method SetsState() sets the shared state with the keys of its body.
func Type[T any, P interface {
	*T
	Handler
}](name, source string) HandlerType {
	t := HandlerType{
		Type: dsl.Type{Name: name, Spec: dsl.SpecOf(reflect.TypeFor[T](), source)},
		New:  func() Handler { return P(new(T)) },
	}
	var zero any = P(new(T))
	if c, ok := zero.(interface{ CheckBody(*dsl.Body) }); ok {
		t.Check = c.CheckBody
	}
	_, t.SetsState = zero.(interface{ SetsState() })
	return t
}
