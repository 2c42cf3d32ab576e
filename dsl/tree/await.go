package tree

import (
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
)

// An Await lets the run wait until an event of the same key comes: of the same flow,
// accepted after the event of the run, before or while the handler waits. The first
// one that fits is taken: it starts no pipeline. It is what
// sources.HANDLER.response holds, with id, type, source, time, key and payload. Events
// that are not taken keep their places behind the run. In a pipeline that others call the
// key is that of the run that it is a part of.
type Await struct {
	Span diag.Span `yaml:"-"`

	places

	// Event is the type of the event, or the types, of which the first to come is
	// taken.
	Event spec.Names `yaml:"event" required:"true"`

	// Where must be true for an event to be taken. It may read what the handler may,
	// and awaited, the event in question, with the members of event. An event for
	// which it cannot be computed is not taken.
	Where *expr.Value `yaml:"where" kind:"bool"`

	// Timeout is how long to wait. Then the handler fails with an error of the class
	// timeout, of which on-error may make something else.
	Timeout time.Duration `yaml:"timeout" required:"true" min:"1ms"`
}

// IsPlaceholder tells whether a handler does nothing.
func (h *Handler) IsPlaceholder() bool {
	return h.Type == "" && h.Await == nil && h.Call == nil && h.loop == nil
}

// AwaitReads lists what the condition of await reads, the awaited event aside.
func (h *Handler) AwaitReads() []datum.Read {
	if h.Await == nil {
		return nil
	}
	return readsWithout(expr.AwaitedRoot, h.Await.Where.Reads())
}

// Awaiting lists the pipelines whose handlers wait for events of a type. All belong to
// the flow that such events do.
func (b *Bundle) Awaiting(eventType string) []*Pipeline { return b.Index.Awaiting[eventType] }
