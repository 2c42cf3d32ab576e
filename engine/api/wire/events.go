package wire

import (
	"time"

	"procaas/engine/api/problem"
)

// An Event is what a service submits, in the plain form.
type Event struct {
	Type           string    `json:"type" minLength:"1" doc:"Which pipelines the event may activate." example:"new-order-created"`
	ID             string    `json:"id,omitempty" doc:"Unique within source: the same id again is a duplicate. The engine makes one when it is left out." example:"e-1"`
	Source         string    `json:"source,omitempty" doc:"Who sends it." example:"orders"`
	Key            string    `json:"key,omitempty" doc:"The entity, for flows whose key expression is left out. Others compute it: the reply says so when it is another one."`
	Payload        any       `json:"payload,omitempty" doc:"What happened: any JSON value. Whole numbers of 64 bits stay exact."`
	At             time.Time `json:"at,omitzero" doc:"When the event is due; at once when it is left out."`
	DelayTolerance Duration  `json:"delay_tolerance,omitempty" doc:"How long the event may wait beyond that without harm: text such as 90s, or a number of seconds."`
	Priority       int       `json:"priority,omitempty" format:"int32" doc:"Higher goes first among events that are due."`
}

// A Receipt says what became of one event.
type Receipt struct {
	Event     string `json:"event" doc:"The event's id."`
	Run       string `json:"run" doc:"The id of its run."`
	Duplicate bool   `json:"duplicate" doc:"The event had been accepted before; run is that run."`
	Undecided bool   `json:"undecided,omitempty" doc:"Nobody knows yet whether the state of the key will allow the event, which a flow with states and otherwise: reject asks: events of the key that are due come before it, or it is due later itself. If the state then does not, its run ends ignored. Where it is absent, the state allows the event."`
	Key       string `json:"key,omitempty" doc:"The entity by which the run is ordered. Only told when the event names another key, which the flow does not go by."`
}

// A Receipts says what became of each of several events, in order.
type Receipts struct {
	Items []ReceiptItem `json:"items" doc:"One for each event, in order."`
}

// A ReceiptItem is a [Receipt], or an error.
type ReceiptItem struct {
	Event     string           `json:"event,omitempty" doc:"The event's id."`
	Run       string           `json:"run,omitempty" doc:"The id of its run; absent when the event is refused."`
	Duplicate *bool            `json:"duplicate,omitempty" doc:"The event had been accepted before; absent when the event is refused."`
	Undecided bool             `json:"undecided,omitempty" doc:"As that of a single receipt."`
	Key       string           `json:"key,omitempty" doc:"The entity by which the run is ordered. Only told when the event names another key, which the flow does not go by."`
	Error     *problem.Problem `json:"error,omitempty" doc:"Why the event is refused; absent when it is accepted."`
}
