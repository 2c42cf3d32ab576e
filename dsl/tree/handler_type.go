package tree

import (
	"slices"
	"strings"
	"time"

	"procaas/dsl/contracts"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
	"procaas/dsl/typing"
)

// RequestType is the handler type whose fields may be directly in the handler, such as url.
const RequestType = "request"

// A Type describes a handler type to the language.
type Type struct {
	// Name is the key that names the type in a handler, such as request.
	Name string

	// Spec describes the mapping below that key.
	Spec *spec.Spec

	// SetsState reports whether the keys of the body are names of the shared state and its values their new
	// values, without a result mapping.
	SetsState bool

	// Emits reports whether handlers of the type emit events. Handlers of one stage emit in the order of their
	// declaration.
	Emits bool

	// KeepsBody reports whether handlers of the type change nothing of their body, and return nothing of it. Then a
	// call needs no copy.
	KeepsBody bool

	// Operation returns the operation of a service's API that a body calls, to check the call against the
	// service's OpenAPI document. It returns false if nothing is known before the handler runs. It is nil for
	// types that make no calls.
	Operation func(body *expr.Value) (contracts.Operation, bool)

	// Peer returns the id of the [Declaration] with a service that a body calls, or empty. It is nil for types that call none.
	Peer func(body *expr.Value) string

	// Emission returns the event or task that a body sends. It is nil for types that send none.
	Emission func(body *expr.Value) Emission

	// Response returns what the response of a body is, or nil if it may be anything. It is nil for types that know of none.
	Response func(body *expr.Value) *typing.Outline

	// Takes returns how long one attempt of a body may take, without the handler's own timeout. It is nil if
	// that is unknown.
	Takes func(*Body) Longest

	// Waits reports whether the time of Takes is a wait for somebody, which no retry repeats.
	Waits bool

	// Check reports errors that the tags of Spec cannot express. It may be nil.
	Check func(*Body)
}

// Types are handler types by name.
type Types map[string]Type

// SetsState reports whether a handler only sets the shared state.
func (t Types) SetsState(h *Handler) bool { return t[h.Type].SetsState }

// Calls reports whether a handler calls somebody.
func (t Types) Calls(h *Handler) bool { return t[h.Type].Operation != nil && h.Body != nil }

// Fetches reports whether a handler only asks a service for something.
func (t Types) Fetches(h *Handler) bool {
	if !t.Calls(h) {
		return false
	}
	o, ok := t[h.Type].Operation(h.Body)
	return ok && (o.Method == "GET" || o.Method == "HEAD")
}

// Emission returns what event a handler hands in, or what task it puts.
func (t Types) Emission(h *Handler) (e Emission, ok bool) {
	emission := t[h.Type].Emission
	if emission == nil || h.Body == nil {
		return e, false
	}
	return emission(h.Body), true
}

// An Emission is an event that a handler hands in, or a task that it puts.
type Emission struct {
	Type, Payload *expr.Value // of the event or the task; nil when the body has none

	Task  bool // it is a task
	Named bool // it has a name, by which it may already be known
}

// A Body is the body of one handler, as its type's Check sees it.
type Body struct {
	*diag.Reporter

	Span    diag.Span
	Handler *Handler
	Value   *expr.Value // a mapping; its fields were checked against the Spec
	Bundle  *Bundle
}

// Field returns a field of the body, or nil if it is not set.
func (b *Body) Field(name string) *expr.Value { return b.Value.Get(name) }

// Duration returns a field with a duration. ok is false if the field is not set, or computed.
func (b *Body) Duration(name string) (d time.Duration, ok bool) {
	text, ok := b.Field(name).Text()
	if !ok {
		return 0, false
	}
	d, err := datum.ParseDuration(text)
	return d, err == nil
}

// Timeout returns the longest time of one attempt that the body sets, or else its handler. ok is false if neither does.
func (b *Body) Timeout() (d time.Duration, ok bool) {
	if d, ok = b.Duration("timeout"); ok {
		return d, true
	}
	return b.Handler.Timeout, b.Handler.Timeout > 0
}

// OwnTypes lists the handler types that authors use, and how to see those of the built-in pipelines, whose names have
// a dot.
func OwnTypes(types []string) []string {
	own := slices.DeleteFunc(slices.Clone(types), func(name string) bool { return strings.Contains(name, ".") })
	if len(own) > 0 && len(own) < len(types) {
		own[len(own)-1] += "; all: procaas explain"
	}
	return own
}
