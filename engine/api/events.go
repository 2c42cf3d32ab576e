package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"procaas/engine"
)

// The forms in which events come.
const (
	mediaJSON       = "application/json"
	mediaProblem    = "application/problem+json"
	mediaCloudEvent = "application/cloudevents+json"
	mediaCloudBatch = "application/cloudevents-batch+json"
)

// maxEvents bounds the events of one request: they are stored in one
// transaction, which must be short.
const maxEvents = 1000

// An Event is what a service submits, in the plain form.
type Event struct {
	Type           string `json:"type" minLength:"1" doc:"Which pipelines the event may activate." example:"new-order-created"`
	ID             string `json:"id,omitempty" doc:"Unique within source: the same id again is a duplicate. The engine makes one when it is left out." example:"e-1"`
	Source         string `json:"source,omitempty" doc:"Who sends it." example:"orders"`
	Key            string `json:"key,omitempty" doc:"The entity, for flows whose key expression is left out. Others compute it: the reply says so when it is another one."`
	Payload        any    `json:"payload,omitempty" doc:"What happened: any JSON value. Whole numbers of 64 bits stay exact."`
	At             string `json:"at,omitempty" format:"date-time" doc:"When the event is due; at once when it is left out."`
	DelayTolerance any    `json:"delay_tolerance,omitempty" doc:"How long the event may wait beyond that without harm: text such as 90s, or a number of seconds."`
	Priority       int    `json:"priority,omitempty" format:"int32" doc:"Higher goes first among events that are due."`
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
	Event     string   `json:"event,omitempty" doc:"The event's id."`
	Run       string   `json:"run,omitempty" doc:"The id of its run; absent when the event is refused."`
	Duplicate *bool    `json:"duplicate,omitempty" doc:"The event had been accepted before; absent when the event is refused."`
	Undecided bool     `json:"undecided,omitempty" doc:"As that of a single receipt."`
	Key       string   `json:"key,omitempty" doc:"The entity by which the run is ordered. Only told when the event names another key, which the flow does not go by."`
	Error     *Problem `json:"error,omitempty" doc:"Why the event is refused; absent when it is accepted."`
}

// An intake is the events of one request.
type intake struct {
	events []engine.Event
	queue  string              // the pipeline that they are tasks of; empty for none
	many   bool                // the sender sent an array, and wants one
	field  func(string) string // where a field of the engine's event stands in what was sent
}

// postEvents takes events in. What cannot be read is refused as a whole, before
// anything is stored; what can be read is accepted or refused event by event.
func (s *server) postEvents(w http.ResponseWriter, r *http.Request) error {
	if err := s.mayTakeIn(); err != nil {
		return err
	}
	decode, err := eventDecoder(r)
	if err != nil {
		return err
	}
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	in, err := decode(body)
	if err != nil {
		return err
	}
	in.trace(r.Header)
	return s.submit(w, r, in)
}

// trace gives events that have no trace context the one of their request.
func (in *intake) trace(h http.Header) {
	parent, state := engine.TraceContext(h.Get("Traceparent"), strings.Join(h.Values("Tracestate"), ","))
	for i := range in.events {
		if e := &in.events[i]; e.TraceParent == "" {
			e.TraceParent, e.TraceState = parent, state
		}
	}
}

// eventDecoder chooses how to read a request by its headers.
func eventDecoder(r *http.Request) (func([]byte) (intake, error), error) {
	if isBinary(r.Header) {
		return func(body []byte) (intake, error) { return decodeBinary(r.Header, body) }, nil
	}
	media, err := mediaType(r, mediaJSON, mediaCloudEvent, mediaCloudBatch)
	switch {
	case err != nil:
		return nil, err
	case media == mediaCloudEvent:
		return func(body []byte) (intake, error) { return decodeCloudEvents(body, false) }, nil
	case media == mediaCloudBatch:
		return func(body []byte) (intake, error) { return decodeCloudEvents(body, true) }, nil
	}
	return decodePlain, nil
}

// decodePlain reads one event of the plain form, or an array of them. CloudEvents
// are known by their specversion: many clients send all JSON as application/json.
func decodePlain(body []byte) (intake, error) {
	v, err := parse(body)
	if err != nil {
		return intake{}, err
	}
	first := v
	if list, ok := v.([]any); ok && len(list) > 0 {
		first = list[0]
	}
	if f, fault := objectAt("", first); fault == nil && f.get("specversion") != nil {
		return decodeList(v, structuredEvent, dataPointerOf)
	}
	return decodeList(v, plainEvent, pointerOf)
}

// decodeList reads one object, or an array of them.
func decodeList(v any, one func(*fields) engine.Event, field func(string) string) (intake, error) {
	in := intake{field: field}
	items, pointers := []any{v}, []string{""}
	if list, ok := v.([]any); ok {
		items, in.many, pointers = list, true, nil
		for i := range list {
			pointers = append(pointers, fmt.Sprintf("/%d", i))
		}
	}
	if len(items) > maxEvents {
		return in, refuse(codeInvalidBody, "want at most %d in one array, have %d", maxEvents, len(items))
	}
	var faults []Fault
	for i, item := range items {
		f, fault := objectAt(pointers[i], item)
		if fault != nil {
			faults = append(faults, *fault)
			continue
		}
		in.events = append(in.events, one(f))
		faults = append(faults, f.faults...)
	}
	return in, faulty(faults)
}

// plainEvent reads an event of the plain form. An absent member is the zero value of its field.
func plainEvent(f *fields) engine.Event {
	e := engine.Event{
		Type:           f.required("type"),
		ID:             f.str("id"),
		Source:         f.str("source"),
		Key:            f.str("key"),
		Payload:        f.get("payload"),
		At:             f.instant("at"),
		DelayTolerance: f.duration("delay_tolerance"),
		Priority:       f.integer("priority"),
	}
	f.refuseUnknown()
	return e
}

// pointerOf makes a JSON pointer of a name such as payload.order-id.
func pointerOf(field string) string {
	return "/" + strings.ReplaceAll(escapePointer(field), ".", "/")
}

// pointerTo makes a JSON pointer of the names on the way to a part.
func pointerTo(path []string) string {
	var b strings.Builder
	for _, name := range path {
		b.WriteString("/" + escapePointer(name))
	}
	return b.String()
}

// submit hands events over and replies. A client that has gone is not served:
// it will send again.
func (s *server) submit(w http.ResponseWriter, r *http.Request, in intake) error {
	if err := r.Context().Err(); err != nil {
		return err
	}
	if len(in.events) == 0 {
		return writeJSON(w, http.StatusAccepted, Receipts{Items: []ReceiptItem{}})
	}
	if err := s.maySubmit(r, in.events); err != nil {
		return err
	}
	submissions := make([]engine.Submission, len(in.events))
	for i, e := range in.events {
		submissions[i] = engine.Submission{Event: e, Queue: in.queue}
	}
	// One call for all of them: they are stored in one transaction.
	results, err := s.engine.Submit(r.Context(), submissions)
	if err != nil {
		return err
	}
	if in.many {
		return replyMany(w, in, results)
	}
	return replyOne(w, in, results[0])
}

// maySubmit refuses events for pipelines that the caller's grant does not cover.
func (s *server) maySubmit(r *http.Request, events []engine.Event) error {
	if len(granted(r).Paths) == 0 {
		return nil
	}
	for _, e := range events {
		b := s.engine.Bundle()
		for _, p := range slices.Concat(b.On(e.Type), b.Awaiting(e.Type)) {
			if err := mayAt(r, p.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// replyOne replies 202 to an event that is stored now, and 200 to one that was before.
func replyOne(w http.ResponseWriter, in intake, result engine.Submitted) error {
	if result.Err != nil {
		return eventProblem(result.Err, in.field)
	}
	status := http.StatusAccepted
	if result.Receipt.Duplicate {
		status = http.StatusOK
	}
	w.Header().Set("Location", "/v1/runs/"+result.Receipt.Run)
	rc := result.Receipt
	return writeJSON(w, status, Receipt{Event: rc.Event, Run: rc.Run, Duplicate: rc.Duplicate, Undecided: rc.Undecided, Key: otherKey(in.events[0], rc)})
}

// otherKey gives the key of a run when its event names another one; empty otherwise. The
// sender of such an event may believe in an order that there is not.
func otherKey(e engine.Event, rc engine.Receipt) string {
	if e.Key == "" || e.Key == rc.Key {
		return ""
	}
	return rc.Key
}

// replyMany replies 202 when no event was refused, 207 when some were, and
// with a problem when all were.
func replyMany(w http.ResponseWriter, in intake, results []engine.Submitted) error {
	reply, refused := Receipts{}, []Fault(nil)
	for i, result := range results {
		if result.Err == nil {
			rc := result.Receipt
			reply.Items = append(reply.Items, ReceiptItem{Event: rc.Event, Run: rc.Run, Duplicate: &rc.Duplicate, Undecided: rc.Undecided, Key: otherKey(in.events[i], rc)})
			continue
		}
		at := fmt.Sprintf("/%d", i)
		p := eventProblem(result.Err, func(field string) string { return at + in.field(field) })
		reply.Items = append(reply.Items, ReceiptItem{Event: in.events[i].ID, Error: p})
		refused = append(refused, Fault{Location: at, Message: p.Detail, Code: p.Code})
	}
	switch len(refused) {
	case 0:
		return writeJSON(w, http.StatusAccepted, reply)
	case len(results):
		if p := reply.Items[0].Error; p.Status >= http.StatusInternalServerError {
			return p
		}
		return refuse(codeBatchRefused, "none of the %d events was accepted; the first: %s", len(results), refused[0].Message).at(refused...)
	}
	return writeJSON(w, http.StatusMultiStatus, reply)
}
