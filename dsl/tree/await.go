package tree

import (
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
)

// An Await makes the run wait for an event of the same flow and key. The event must be accepted after the event of the
// run, before or while the handler waits, unless buffered is true. The handler takes the first event that matches, and
// that event starts no pipeline. sources.HANDLER.response has its id, type, source, time, key and payload. Other events
// keep their places behind the run. In a pipeline that others call, the key is that of the whole run.
type Await struct {
	Span diag.Span `yaml:"-"`

	places

	// Event lists the types of events to wait for. The handler takes the first that arrives.
	Event spec.Names `yaml:"event" required:"true"`

	// Where must be true for the handler to take an event. It may read what the handler may, and awaited, which is the
	// event and has the members of event. If it cannot be computed, the handler does not take the event.
	Where *expr.Value `yaml:"where" kind:"bool"`

	// Buffered lets the handler also take an event that came before the event of the run. The engine keeps such an event
	// for max-age if no run takes it. No pipeline may serve its type, since it would start there.
	Buffered bool `yaml:"buffered"`

	// MaxAge is how long an event is kept from its turn in its key. Then it ends as ignored. The longest max-age of
	// all handlers that wait for the type counts.
	MaxAge time.Duration `yaml:"max-age" default:"24h" min:"1s" max:"720h"`

	// Timeout is how long to wait. After it the handler fails with an error of the class timeout, which on-error can handle.
	Timeout time.Duration `yaml:"timeout" required:"true" min:"1ms"`
}

// IsPlaceholder reports whether a handler does nothing.
func (h *Handler) IsPlaceholder() bool {
	return h.Type == "" && h.Await == nil && h.Call == nil && h.loop == nil
}

// AwaitReads lists what the condition of await reads, without the awaited event.
func (h *Handler) AwaitReads() []datum.Read {
	if h.Await == nil {
		return nil
	}
	return readsWithout(expr.AwaitedRoot, h.Await.Where.Reads())
}

// Awaiting lists the pipelines whose handlers wait for events of a type. All belong to the flow of these
// events.
func (b *Bundle) Awaiting(eventType string) []*Pipeline { return b.Index.Awaiting[eventType] }

// Keeps returns how long an event is kept for a run of its key that has not begun. 0 means not at all.
func (b *Bundle) Keeps(eventType string) time.Duration {
	if len(b.Index.Serving[eventType]) > 0 {
		return 0
	}
	return b.Index.Kept[eventType]
}
