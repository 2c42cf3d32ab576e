package wire

import (
	"slices"
	"strconv"
	"time"

	"procaas/engine/api/problem"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
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

// AppendJSON appends the receipt as [encoding/json] would encode it, without escapes for HTML.
func (r Receipt) AppendJSON(b []byte) []byte { return append(r.appendMembers(b), '}') }

// appendMembers appends the receipt without the brace that ends it.
func (r *Receipt) appendMembers(b []byte) []byte {
	b = model.AppendText(append(b, `{"event":`...), r.Event)
	b = model.AppendText(append(b, `,"run":`...), r.Run)
	b = strconv.AppendBool(append(b, `,"duplicate":`...), r.Duplicate)
	return appendRest(b, r.Undecided, r.Key)
}

// AppendJSON is that of [Receipt], for a receipt with a result.
func (r Result) AppendJSON(b []byte) []byte {
	b = appendMember(r.appendMembers(b), "status", r.Status)
	if r.Outputs != nil {
		b = append(append(b, `,"outputs":`...), model.EncodeJSON(r.Outputs)...)
	}
	b = appendMember(b, "failed_handler", r.FailedPath)
	b = appendMember(b, "error", r.Error)
	b = appendMember(b, "error_class", r.ErrorClass)
	return append(appendMember(b, "reason", r.Reason), '}')
}

// AppendJSON is that of [Receipt], for several.
func (r Receipts) AppendJSON(b []byte) []byte {
	if r.Items == nil {
		return append(b, `{"items":null}`...)
	}
	b = append(slices.Grow(b, usualItem*len(r.Items)), `{"items":[`...)
	for i := range r.Items {
		if i > 0 {
			b = append(b, ',')
		}
		b = r.Items[i].appendJSON(b)
	}
	return append(b, `]}`...)
}

// usualItem is about how long an encoded item is, in bytes.
const usualItem = 128

func (r *ReceiptItem) appendJSON(b []byte) []byte {
	start := len(b)
	b = appendMember(b, "event", r.Event)
	b = appendMember(b, "run", r.Run)
	if r.Duplicate != nil {
		b = strconv.AppendBool(append(b, `,"duplicate":`...), *r.Duplicate)
	}
	b = appendRest(b, r.Undecided, r.Key)
	if r.Error != nil {
		b = append(append(b, `,"error":`...), model.EncodeJSON(r.Error)...)
	}
	if len(b) == start {
		return append(b, "{}"...)
	}
	b[start] = '{' // instead of the first comma
	return append(b, '}')
}

// appendRest appends the members that most receipts do not have.
func appendRest(b []byte, undecided bool, key string) []byte {
	if undecided {
		b = append(b, `,"undecided":true`...)
	}
	return appendMember(b, "key", key)
}

// appendMember appends a member that is left out when it is empty.
func appendMember(b []byte, name, text string) []byte {
	if text == "" {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	return model.AppendText(b, text)
}
