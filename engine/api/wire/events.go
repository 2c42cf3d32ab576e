package wire

import (
	"time"

	"procaas/engine/api/problem"
	"procaas/engine/checkpoint"
)

// An Event is what a service submits, in the plain form.
type Event struct {
	Type           string            `json:"type" minLength:"1" doc:"The type, which chooses the pipeline." example:"new-order-created"`
	ID             string            `json:"id,omitempty" doc:"Unique within source: the same id again is a duplicate. The default is an id that the engine makes." example:"e-1"`
	Source         string            `json:"source,omitempty" doc:"The sender." example:"orders"`
	Key            string            `json:"key,omitempty" doc:"The entity, for flows without a key expression. Other flows compute the key, and the reply has it if it differs."`
	Labels         map[string]string `json:"labels,omitempty" maxProperties:"8" doc:"What to find the run by: up to 8 names of up to 40 letters, digits and ._/- with values of up to 100 bytes." example:"{\"city\": \"berlin\"}"`
	Payload        any               `json:"payload,omitempty" doc:"What happened: any JSON value. Whole numbers of 64 bits stay exact."`
	At             time.Time         `json:"at,omitzero" doc:"When the event is due. The default is now."`
	DelayTolerance Duration          `json:"delay_tolerance,omitempty" doc:"How long the event may wait beyond that without harm: text such as 90s, or seconds."`
	Priority       int               `json:"priority,omitempty" format:"int32" doc:"Higher goes first among events that are due."`
}

// A Receipt is the result of one event.
type Receipt struct {
	Event     string `json:"event" doc:"The event's id."`
	Run       string `json:"run" doc:"The id of its run."`
	Duplicate bool   `json:"duplicate" doc:"true if the event was accepted before. run is the earlier run."`
	Undecided bool   `json:"undecided,omitempty" doc:"true if it is not known yet whether the state of the key will allow the event. This happens in a flow with states and otherwise: reject, if earlier events of the key are due or the event is due later. If the state then does not allow it, the run ends as ignored. If absent, the state allows the event."`
	Key       string `json:"key,omitempty" doc:"The key of the run. It is only present if the event names another key than the flow computes."`
}

// A Result is the receipt of an event, with the end of its run.
type Result struct {
	Receipt
	Status     string         `json:"status,omitempty" enum:"succeeded,failed,cancelled,ignored" doc:"How the run has ended. Absent for a caller who has not waited."`
	Outputs    map[string]any `json:"outputs,omitzero" doc:"What the outputs of its pipeline came to. Absent when the pipeline declares none, or the run has not succeeded."`
	FailedPath string         `json:"failed_handler,omitempty" doc:"Of a run that has failed: the path of the handler, or of the pipeline."`
	Error      string         `json:"error,omitempty" doc:"Why the run has failed, for people."`
	ErrorClass string         `json:"error_class,omitempty" doc:"The class of the error: timeout, connection, a status such as 503, schema, other."`
	Reason     string         `json:"reason,omitempty" doc:"Why the run was cancelled or ignored."`
}

// ResultOf adds the end of a run to the receipt of its event.
func ResultOf(receipt Receipt, run *checkpoint.RunView) Result {
	return Result{
		Receipt: receipt, Status: string(run.Status), Outputs: run.Outputs,
		FailedPath: run.FailedPath, Error: run.Error, ErrorClass: run.ErrorClass, Reason: run.Reason,
	}
}

// Receipts has the results of several events, in order.
type Receipts struct {
	Items []ReceiptItem `json:"items" doc:"One for each event, in order."`
}

// A ReceiptItem is a [Receipt], or an error.
type ReceiptItem struct {
	Event     string           `json:"event,omitempty" doc:"The event's id."`
	Run       string           `json:"run,omitempty" doc:"The id of its run; absent if the event is refused."`
	Duplicate *bool            `json:"duplicate,omitempty" doc:"true if the event was accepted before; absent if it is refused."`
	Undecided bool             `json:"undecided,omitempty" doc:"As in a single receipt."`
	Key       string           `json:"key,omitempty" doc:"The key of the run. It is only present if the event names another key than the flow computes."`
	Error     *problem.Problem `json:"error,omitempty" doc:"The reason why the event is refused; absent if it is accepted."`
}
