package intake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	engineintake "procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/tracing"
	"procaas/engine/watch"
)

// These are the media types of CloudEvents.
const (
	mediaCloudEvent = "application/cloudevents+json"
	mediaCloudBatch = "application/cloudevents-batch+json"
)

// mediaLines is the media type of one event a line. Many programs give it other names.
const mediaLines = "application/x-ndjson"

var linesToo = []string{"application/ndjson", "application/jsonl"}

// accepted lists the media types of events.
var accepted = append([]string{rest.MediaJSON, mediaCloudEvent, mediaCloudBatch, mediaLines}, linesToo...)

// maxEvents bounds the events of one request, because one short transaction stores them.
const maxEvents = 1000

// A submission has the events of one request.
type submission struct {
	events []engineintake.Submission
	queue  string              // the pipeline whose tasks they are; empty for none
	many   bool                // the sender sent an array, and gets one
	field  func(string) string // returns where a field of the engine's event is in the request
}

// postEvents accepts events. An unreadable request is refused as a whole, before anything is
// stored. Otherwise each event is accepted or refused on its own.
func (g *Group) postEvents(c *rest.Call, how *rest.WaitQuery) error {
	wait, err := how.For(c)
	if err != nil {
		return err
	}
	if err := g.mayTakeIn(); err != nil {
		return err
	}
	decode, err := eventDecoder(c)
	if err != nil {
		return err
	}
	body, err := c.Body()
	if err != nil {
		return err
	}
	in, err := decode(body)
	if err != nil {
		return err
	}
	if in.many && how.Wait != "" && wait > 0 {
		return problem.Parameter([]problem.Fault{{
			Location: "query/wait", Message: "want a single event, have an array: send the events one by one, or wait for each run at /v1/runs/{id}",
		}})
	}
	in.trace(c.R.Header)
	return g.submit(c, &in, wait)
}

// mayTakeIn refuses events before they are read if even one would have to wait too long.
func (g *Group) mayTakeIn() error {
	if over := g.Intake.Overload(); over != nil {
		return over
	}
	return nil
}

// trace sets the trace context of events without one to that of their request.
func (in *submission) trace(h http.Header) {
	parent, state := tracing.Context(h.Get("Traceparent"), strings.Join(h.Values("Tracestate"), ","))
	for i := range in.events {
		if e := &in.events[i].Event; e.TraceParent == "" {
			e.TraceParent, e.TraceState = parent, state
		}
	}
}

// eventDecoder chooses the decoder by the request's headers.
func eventDecoder(c *rest.Call) (func([]byte) (submission, error), error) {
	if isBinary(c.R.Header) {
		return func(body []byte) (submission, error) { return decodeBinary(c.R.Header, body) }, nil
	}
	media, err := c.Media(accepted...)
	switch {
	case err != nil:
		return nil, err
	case media == mediaLines, slices.Contains(linesToo, media):
		return decodeLines, nil
	case media == mediaCloudEvent:
		return decodeCloudEvent, nil
	case media == mediaCloudBatch:
		return decodeCloudBatch, nil
	}
	return decodePlain, nil
}

// decodeLines decodes one event a line. The reply is that to an array.
func decodeLines(body []byte) (submission, error) {
	events := []any{}
	number := 0
	for line := range bytes.Lines(body) {
		number++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if len(events) == maxEvents {
			return submission{}, problem.New(problem.InvalidBody, "want at most %d events in one body, have more at line %d", maxEvents, number)
		}
		v, err := rest.Parse(line)
		if wrong, ok := errors.AsType[*problem.Problem](err); ok {
			wrong.Detail = fmt.Sprintf("line %d: %s", number, wrong.Detail)
			for i := range wrong.Errors {
				wrong.Errors[i].Location = fmt.Sprintf("/%d%s", len(events), wrong.Errors[i].Location)
			}
		}
		if err != nil {
			return submission{}, err
		}
		events = append(events, v)
	}
	return decodeEvents(events)
}

// decodePlain decodes one event, or an array of them.
func decodePlain(body []byte) (submission, error) {
	v, err := rest.Parse(body)
	if err != nil {
		return submission{}, err
	}
	return decodeEvents(v)
}

// decodeEvents reads events of the plain form. CloudEvents are recognized by their specversion, because many clients send all
// JSON as application/json.
func decodeEvents(v any) (submission, error) {
	first := v
	if list, ok := v.([]any); ok && len(list) > 0 {
		first = list[0]
	}
	if event, ok := first.(map[string]any); ok && event["specversion"] != nil {
		return decodeList(v, structuredEvent, dataPointerOf)
	}
	return decodeList(v, plainEvent, pointerOf)
}

// decodeList decodes one object, or an array of them.
func decodeList(v any, one func(*rest.Fields) model.Event, field func(string) string) (in submission, err error) {
	in.field = field
	if list, ok := v.([]any); ok {
		in.events = make([]engineintake.Submission, 0, min(len(list), maxEvents))
	}
	in.many, err = rest.Each(v, maxEvents, func(f *rest.Fields) { in.events = append(in.events, engineintake.Submission{Event: one(f)}) })
	return in, err
}

// plainEvent reads an event of the plain form. An absent member becomes the zero value.
func plainEvent(f *rest.Fields) model.Event {
	e := model.Event{
		Type:           f.Required("type"),
		ID:             f.Text("id"),
		Source:         f.Text("source"),
		Key:            f.Text("key"),
		Labels:         labelsOf(f),
		Payload:        f.Get("payload"),
		At:             f.Instant("at"),
		DelayTolerance: f.Duration("delay_tolerance"),
		Priority:       f.Integer("priority"),
	}
	f.RefuseUnknown()
	return e
}

// labelsOf reads the labels of the plain form.
func labelsOf(f *rest.Fields) string {
	var labels map[string]string
	switch v := f.Get("labels").(type) {
	case nil:
		return ""
	case map[string]any:
		labels = make(map[string]string, len(v))
		for name, value := range v {
			text, ok := value.(string)
			labels[name] = text
			if !ok {
				f.Fault("labels", "label %s: want a string, have %s", name, datum.JSONKind(value))
				return ""
			}
		}
	default:
		f.Fault("labels", "want an object of strings, have %s", datum.JSONKind(v))
		return ""
	}
	text, err := model.FormatLabels(labels)
	if err != nil {
		f.Fault("labels", "%s", err)
	}
	return text
}

// pointerOf converts a name such as payload.order-id to a JSON pointer.
func pointerOf(field string) string {
	return "/" + strings.ReplaceAll(rest.Escape(field), ".", "/")
}

// pointerTo converts a path of names to a JSON pointer.
func pointerTo(path []string) string {
	var b strings.Builder
	for _, name := range path {
		b.WriteString("/" + rest.Escape(name))
	}
	return b.String()
}

// submit submits events and replies. The reply to a single event may wait for the end of its run.
// It serves no client that has gone, because it will send again.
func (g *Group) submit(c *rest.Call, in *submission, wait time.Duration) error {
	if err := c.Context().Err(); err != nil {
		return err
	}
	if len(in.events) == 0 {
		return c.Reply(http.StatusAccepted, wire.Receipts{Items: []wire.ReceiptItem{}})
	}
	if err := g.maySubmit(c, in.events); err != nil {
		return err
	}
	if in.queue == "" { // tasks have a source of the engine
		if err := g.maySend(c, in.events); err != nil {
			return err
		}
	}
	if err := c.Spend(len(in.events)); err != nil {
		return err
	}
	signature := signatureOf(c)
	for i := range in.events {
		e := &in.events[i]
		e.Queue, e.Signed = in.queue, signature != "" && e.Event.Source == signature
	}
	// One call for all, so that one transaction stores them.
	results, err := g.Intake.Submit(c.Context(), in.events)
	if err != nil {
		return err
	}
	if in.many {
		c.W.Header().Del("Preference-Applied")
		return replyMany(c, in, results)
	}
	if results[0].Err == nil && wait > 0 {
		return g.replyEnd(c, in, &results[0], wait)
	}
	return replyOne(c, in, &results[0], 0)
}

// replyEnd waits for the end of a run and replies with it. If that takes too long, the reply is
// that of an accepted event.
func (g *Group) replyEnd(c *rest.Call, in *submission, result *engineintake.Submitted, wait time.Duration) error {
	if err := rest.LetLast(c.W, wait+rest.WriteTime); err != nil {
		return err
	}
	ctx, cancel := g.Streams.UntilEnd(c.Context(), wait)
	defer cancel()
	run, err := g.Runs.AwaitEnd(ctx, result.Receipt.Run)
	switch {
	case c.Context().Err() != nil:
		return c.Context().Err() // the caller has left
	case errors.Is(err, watch.ErrFull):
		c.W.Header().Set("Retry-After", "1")
		return replyOne(c, in, result, http.StatusAccepted)
	case err != nil:
		return replyOne(c, in, result, http.StatusAccepted)
	}
	c.W.Header().Set("Location", "/v1/runs/"+result.Receipt.Run)
	return c.Reply(http.StatusOK, wire.ResultOf(receiptOf(in, &result.Receipt), &run))
}

// maySubmit refuses events for pipelines that the caller's grant does not cover.
func (g *Group) maySubmit(c *rest.Call, events []engineintake.Submission) error {
	if !c.Bound() {
		return nil
	}
	for i := range events {
		b, eventType := g.Intake.Bundle(), events[i].Event.Type
		for _, p := range slices.Concat(b.On(eventType), b.Awaiting(eventType)) {
			if err := c.MayAt(p.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// maySend refuses events whose source the caller may not use: it is bound to other tokens, or the
// caller's token is bound to other sources. The ids of events are unique within their source, so
// this also keeps others from taking ids. An event without a source gets that of a token that is
// bound to a single one.
func (g *Group) maySend(c *rest.Call, events []engineintake.Submission) error {
	grant, signature := rest.Granted(c.R), signatureOf(c)
	checked := make(map[string]bool, 1)
	for i := range events {
		e := &events[i].Event
		if e.Source == "" && len(grant.Sources) == 1 {
			e.Source = grant.Sources[0]
		}
		if checked[e.Source] || signature != "" && e.Source == signature {
			continue
		}
		checked[e.Source] = true
		why, err := g.Intake.RefuseSource(c.Context(), grant, e.Source)
		if err != nil {
			return err
		}
		if why != "" {
			p := problem.New(problem.Forbidden, "%s", why)
			p.Token = grant.Name
			return p
		}
	}
	return nil
}

// A consoleKey marks the context of an event that the console submits.
type consoleKey struct{}

// FromConsole marks an event as submitted by the console, for the caller of the request.
func FromConsole(ctx context.Context) context.Context {
	return context.WithValue(ctx, consoleKey{}, true)
}

// signatureOf returns the source of the caller in the console, or "" for other callers.
func signatureOf(c *rest.Call) string {
	if c.Context().Value(consoleKey{}) == nil {
		return ""
	}
	return model.ConsoleSource + rest.Granted(c.R).Name
}

// replyOne replies with a receipt: by default 202 for a new event, and 200 for one that was stored
// before.
func replyOne(c *rest.Call, in *submission, result *engineintake.Submitted, status int) error {
	if result.Err != nil {
		return eventProblem(result.Err, in.field)
	}
	if status == 0 {
		status = http.StatusAccepted
		if result.Receipt.Duplicate {
			status = http.StatusOK
		}
	}
	c.W.Header().Set("Location", "/v1/runs/"+result.Receipt.Run)
	return c.Reply(status, receiptOf(in, &result.Receipt))
}

func receiptOf(in *submission, rc *model.Receipt) wire.Receipt {
	return wire.Receipt{
		Event: rc.Event, Run: rc.Run, Duplicate: rc.Duplicate, Undecided: rc.Undecided,
		Key: otherKey(&in.events[0].Event, rc),
	}
}

// otherKey returns the key of a run if its event has another one, or empty. The sender of such an
// event may expect an order that does not exist.
func otherKey(e *model.Event, rc *model.Receipt) string {
	if e.Key == "" || e.Key == rc.Key {
		return ""
	}
	return rc.Key
}

// replyMany replies 202 if no event was refused, 207 if some were, and with a problem if all were.
func replyMany(c *rest.Call, in *submission, results []engineintake.Submitted) error {
	reply, refused := wire.Receipts{Items: make([]wire.ReceiptItem, 0, len(results))}, []problem.Fault(nil)
	for i := range results {
		result := &results[i]
		if result.Err == nil {
			rc := &result.Receipt
			reply.Items = append(reply.Items, wire.ReceiptItem{
				Event: rc.Event, Run: rc.Run, Duplicate: &rc.Duplicate, Undecided: rc.Undecided,
				Key: otherKey(&in.events[i].Event, rc),
			})
			continue
		}
		at := fmt.Sprintf("/%d", i)
		p := eventProblem(result.Err, func(field string) string { return at + in.field(field) })
		reply.Items = append(reply.Items, wire.ReceiptItem{Event: in.events[i].Event.ID, Error: p})
		refused = append(refused, problem.Fault{Location: at, Message: p.Detail, Code: p.Code})
	}
	switch len(refused) {
	case 0:
		return c.Reply(http.StatusAccepted, reply)
	case len(results):
		if p := reply.Items[0].Error; p.Status >= http.StatusInternalServerError {
			return p
		}
		return problem.New(problem.BatchRefused, "none of the %d events was accepted; the first: %s", len(results),
			refused[0].Message).At(refused...)
	}
	return c.Reply(http.StatusMultiStatus, reply)
}
