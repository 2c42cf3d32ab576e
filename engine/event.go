package engine

import "time"

// An Event is what a service submits: it activates a pipeline for one key.
type Event struct {
	ID     string    // unique within Source; the engine makes one when it is empty
	Source string    // who sent it; empty is a source like any other
	Type   string    // which pipelines it may activate
	Time   time.Time // when it happened, by its sender; acceptance time when zero
	Key    string    // the entity, for flows whose key expression is left out

	Payload any // nil, bool, int, float64, string, []any or map[string]any

	// At is when the event is due; at once when zero.
	At time.Time

	// DelayTolerance is how long the event may wait beyond At without harm.
	DelayTolerance time.Duration

	// Priority orders events that are due; higher first, 0 by default.
	Priority int

	// TraceParent and TraceState are the W3C trace context of the sender, as
	// [TraceContext] gives it; may be empty.
	TraceParent, TraceState string
}

// A Receipt says what became of a submitted event.
type Receipt struct {
	Event     string // the event's id
	Run       string // the id of its run
	Duplicate bool   // the event had been accepted before; Run is that run

	// Key is the entity that the event belongs to: its own key, or what the flow makes
	// of the event; then the event's own orders nothing, which senders should know.
	Key string
}
