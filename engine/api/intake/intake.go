// Package intake serves the calls that submit events. It reads them by hand, because a request may
// have a thousand of them, in three forms, and each is accepted or refused on its own.
package intake

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"procaas/dsl/tree"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	"procaas/engine/checkpoint"
	"procaas/engine/credentials"
	engineintake "procaas/engine/intake"
	"procaas/engine/model"
)

// An Intake accepts events.
type Intake interface {
	// Submit returns a receipt or an error for each event, in order. Its own error is for all of
	// them. Then it may be unknown whether they are stored.
	Submit(ctx context.Context, events []engineintake.Submission) ([]engineintake.Submitted, error)

	// Overload returns why even one more event would have to wait too long, or nil. It is called
	// before a body is read, so it does not ask the store.
	Overload() *engineintake.OverloadError
	Bundle() *tree.Bundle

	// RefuseSource returns why the bearer of a grant may not submit events of a source, or "".
	RefuseSource(ctx context.Context, g credentials.Grant, source string) (string, error)
}

// A Waiter waits for the ends of runs.
type Waiter interface {
	// AwaitEnd waits for the end of a run, and returns its result. If ctx ends first, the error is
	// that of ctx. It is [watch.ErrFull] if too many callers wait.
	AwaitEnd(ctx context.Context, id string) (checkpoint.RunView, error)
}

// A Group serves the calls that submit events.
type Group struct {
	Intake  Intake
	Runs    Waiter
	Streams *rest.Streams
}

// Refusals lists the codes of all calls that submit events.
func Refusals(more ...string) []string {
	return append(more,
		problem.IDConflict, problem.EventRejected, problem.BufferFull, problem.UnknownEventType, problem.MissingKey, problem.InvalidEvent, problem.InvalidPayload,
		problem.BatchRefused, problem.QuotaExceeded, problem.Overloaded, problem.TooLong, problem.KeyMoving, problem.CellAway,
		problem.StoreUnavailable)
}

// exampleRun is the id of a run in examples.
const exampleRun = "06ct7s3fdpu7n78ad8u1obqe24"

// Receipts returns the replies to events. A call that also accepts tasks has other forms of the
// replies for all and for some events.
func Receipts(all []any, some ...any) []rest.Reply {
	return []rest.Reply{
		{
			Status: http.StatusAccepted, About: "Accepted and durable. For an array or a batch, the reply has items in the same order.",
			Body: wire.Receipt{}, Or: append([]any{wire.Receipts{}}, all...), Example: wire.Receipt{Event: "e-1", Run: exampleRun},
			Headers: []string{"Location: the run of a single event"},
		},
		{
			About: "The event was accepted before. Nothing changed.",
			Body:  wire.Receipt{}, Example: wire.Receipt{Event: "e-1", Run: exampleRun, Duplicate: true},
		},
		{
			Status: http.StatusMultiStatus, About: "The server accepted some events of the array or batch, and refused others: see the items.",
			Body: wire.Receipts{}, Or: some,
		},
	}
}

// withResult adds the reply to a caller that waits.
func withResult(replies []rest.Reply) []rest.Reply {
	for i := range replies {
		if replies[i].Status == 0 {
			replies[i].About = "The event had been accepted before, and nothing has changed. With `wait`: the run has ended, and this is its result."
			replies[i].Body = wire.Result{}
		}
	}
	return replies
}

// Operations lists the calls.
func (g *Group) Operations() []rest.Operation {
	return []rest.Operation{rest.WithParameters(rest.Operation{
		Method: http.MethodPost, Path: "/v1/events", ID: "submit-events", Need: rest.Submits, Tag: "events", Summary: "Submit events",
		About: "Accepts the plain form, one event or an array, and CloudEvents 1.0: structured, batched, or binary with the attributes " +
			"in `ce-` headers. Extensions of CloudEvents: `partitionkey` (or `subject`) is the key. `priority`, `delaytolerance` and `at` " +
			"are as in the plain form. `labels` is text such as `city=berlin,vip=yes`. `traceparent` and `tracestate`, or the headers " +
			"of these names, are the trace context of the event. " +
			"Data must be JSON. With `application/x-ndjson`, the body has one event a line. It may be compressed with gzip.\n\n" +
			"The server refuses a request that it cannot parse as a whole. Otherwise it accepts or refuses each event: 202 if it refuses " +
			"none, 207 if some, 422 `batch_refused` if all. For a repeated `source` and `id` it returns the first run.\n\n" +
			"With `wait`, or `Prefer: wait=10`, the server answers a single event as soon as its run has ended: 200 with `status` and " +
			"`outputs`. If the run has not ended in time, or the node stops, it answers 202, and `Location` says where to ask. For a " +
			"repeated event it waits for the first run.",
		Body: eventBody, Replies: withResult(Receipts(nil)), Refusals: Refusals(problem.InvalidParameter),
		Waits: rest.ForRun,
	}, g.postEvents)}
}

// eventBody describes all forms of events except the binary one, whose attributes are headers.
func eventBody(schema func(any) *huma.Schema) *huma.RequestBody {
	cloud := &huma.Schema{Ref: "#/components/schemas/CloudEvent"}
	plain := wire.Event{Type: "new-order-created", ID: "e-1", Source: "orders", Payload: map[string]any{"order-id": "o-42"}}
	structured := map[string]any{
		"specversion": "1.0", "type": "new-order-created", "id": "e-1", "source": "/orders", "partitionkey": "o-42",
		"datacontenttype": rest.MediaJSON, "data": map[string]any{"order-id": "o-42"},
	}
	return &huma.RequestBody{
		Required: true,
		Content: map[string]*huma.MediaType{
			rest.MediaJSON:  {Schema: OneOrMany(schema(wire.Event{})), Example: plain},
			mediaCloudEvent: {Schema: cloud, Example: structured},
			mediaCloudBatch: {Schema: &huma.Schema{Type: huma.TypeArray, Items: cloud}, Example: []any{structured}},
			mediaLines:      {Schema: &huma.Schema{Type: huma.TypeString, Description: "One event a line, each as in an array."}},
		},
	}
}

// OneOrMany describes a body that is one object, or an array of at most [maxEvents].
func OneOrMany(one *huma.Schema) *huma.Schema {
	many := maxEvents
	return &huma.Schema{OneOf: []*huma.Schema{one, {Type: huma.TypeArray, Items: one, MaxItems: &many}}}
}

// CloudEvent describes a CloudEvent by hand, because no Go type of ours has its form.
func CloudEvent() *huma.Schema {
	text := func(about string) *huma.Schema { return &huma.Schema{Type: huma.TypeString, Description: about} }
	moment := func(about string) *huma.Schema {
		return &huma.Schema{Type: huma.TypeString, Format: "date-time", Description: about}
	}
	return &huma.Schema{
		Type: huma.TypeObject, Description: "A CloudEvent of version 1.0. The server accepts and ignores other extensions.",
		Required: []string{"specversion", "id", "source", "type"},
		Properties: map[string]*huma.Schema{
			"specversion": {Type: huma.TypeString, Enum: []any{"1.0"}},
			"id":          text("Unique within source."), "source": text("The sender."), "type": text("The type, which chooses the pipeline."),
			"time": moment("When it happened."), "subject": text("The key, if there is no partitionkey."),
			"datacontenttype": text("A JSON content type."), "dataschema": text("Ignored."),
			"data": {Description: "The payload: any JSON value."}, "data_base64": text("The payload: JSON in base64."),
			"partitionkey": text("The key of the entity."), "traceparent": text("W3C trace context."), "tracestate": text("W3C trace context."),
			"priority":       {Type: huma.TypeInteger, Format: "int32", Description: "Higher goes first."},
			"delaytolerance": rest.DurationSchema("How long the event may wait beyond its time."), "at": moment("When the event is due."),
		},
	}
}

// PutTasks accepts tasks as events of the first type that a pipeline serves.
func (g *Group) PutTasks(c *rest.Call, pipeline *tree.Pipeline) error {
	eventType := pipeline.ID
	if len(pipeline.On) > 0 {
		eventType = pipeline.On[0]
	}
	if err := g.mayTakeIn(); err != nil {
		return err
	}
	v, err := c.JSON()
	if err != nil {
		return err
	}
	now := time.Now()
	in, err := decodeList(v, func(f *rest.Fields) model.Event {
		e := taskEvent(f, now)
		e.Type = eventType
		return e
	}, pointerOf)
	if err != nil {
		return err
	}
	in.trace(c.R.Header)
	in.queue = pipeline.ID
	return g.submit(c, &in, 0)
}

// taskEvent reads a task that becomes an event. Its delay counts from now.
func taskEvent(f *rest.Fields, now time.Time) model.Event {
	e := model.Event{
		Payload:        f.Get("payload"),
		Priority:       f.Integer("priority"),
		DelayTolerance: f.Duration("delay_tolerance"),
		At:             f.Instant("at"),
		Key:            f.Text("key"),
	}
	delay := f.Duration("delay")
	switch {
	case f.Has("delay") && f.Has("at"):
		f.Fault("delay", "want either delay or at, have both")
	case delay > 0:
		e.At = now.Add(delay).UTC()
	}
	f.RefuseUnknown()
	return e
}

// eventProblem returns the problem of a refused event. field converts a name of the event to its
// place in the request.
func eventProblem(err error, field func(string) string) *problem.Problem {
	p := problem.Of(err)
	var refused *engineintake.Error
	if !errors.As(err, &refused) {
		return p
	}
	for _, f := range refused.Faults {
		p.At(problem.Fault{Location: field(f.Path[0]) + pointerTo(f.Path[1:]), Message: f.Message})
	}
	if refused.Field != "" {
		p.At(problem.Fault{Location: field(refused.Field), Message: refused.Message})
	}
	return p
}
