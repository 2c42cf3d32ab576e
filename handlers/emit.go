package handlers

import (
	"context"
	"fmt"
	"strings"
	"time"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/model"
)

// Emit sends another event, to the same flow or to another one.
//
// A pipeline of the same files must serve the event, or a run must await it. A pipeline with
// stages: [] does nothing with it.
//
// One transaction accepts the event and marks the handler as done. So each run emits the event
// exactly once, even after crashes. An event for the key of the run itself starts when this run and
// all earlier events of the key have ended.
//
//	id: ask-for-rating
//	emit:
//	  type: rating-wanted
//	  payload:
//	    order-id: !$ event.payload['order-id']
//	  delay: 15m
//	  delay-tolerance: 1h
type Emit struct {
	// Type is the type of the event. It chooses the pipeline, which must exist.
	Type string `yaml:"type" required:"true"`

	// Key is the entity that the event belongs to. A flow without a key expression needs it.
	Key string `yaml:"key"`

	// Payload is the content of the event.
	Payload any `yaml:"payload"`

	// Source is the sender of the event. Its default is procaas/pipeline/ID of the running pipeline. Other sources
	// under procaas/, and those under console/, are refused.
	Source string `yaml:"source"`

	// ID detects duplicates: the server accepts one emitted event for each source and id. Ids of submitted events are
	// separate. Without an id, each run emits an event of its own.
	ID string `yaml:"id"`

	// At is when the event is due, in RFC 3339. Its default is now.
	At time.Time `yaml:"at"`

	// Delay is how long after this handler the event is due. Use either at or delay.
	Delay time.Duration `yaml:"delay" min:"0s"`

	// DelayTolerance is how long the event may wait without harm after it is due.
	DelayTolerance time.Duration `yaml:"delay-tolerance" min:"0s"`

	// Priority orders events that are due. Higher priorities start first.
	Priority int `yaml:"priority" default:"0"`
}

// Emits tells the plan that handlers of this type emit events.
func (*Emit) Emits() {}

// Emission returns the event that a body emits.
func (*Emit) Emission(body *expr.Value) tree.Emission {
	return tree.Emission{Type: body.Get("type"), Payload: body.Get("payload"), Named: body.Get("id") != nil}
}

// Handle implements [engine.Handler].
func (e *Emit) Handle(_ context.Context, c *engine.Call) (model.Result, error) {
	event := model.Event{
		ID: e.ID, Source: e.Source, Type: e.Type, Time: c.Now, Key: e.Key, Payload: e.Payload,
		At: e.At, DelayTolerance: e.DelayTolerance, Priority: e.Priority,
	}
	if model.IsReservedSource(e.Source) {
		return model.Result{}, model.Permanent(fmt.Errorf(
			"source: %q is reserved for the engine's own events and for people in the console; leave source out, or name the program that the event is about", e.Source))
	}
	if event.Source == "" {
		pipeline, _, _ := strings.Cut(c.Path, "/")
		event.Source = "procaas/pipeline/" + pipeline
	}
	// By the clock of the store, because the clock of the node that starts the event may differ.
	if e.Delay > 0 {
		event.At = c.Now.Add(e.Delay)
	}
	return model.Result{Emit: []model.Event{event}}, nil
}

// Takes reports that a call takes no time.
func (*Emit) Takes(*tree.Body) tree.Longest { return tree.Longest{} }

// CheckBody checks what the tags of [Emit] cannot express.
func (*Emit) CheckBody(b *tree.Body) {
	checkNoSecrets(b)
	if b.Field("at") != nil && b.Field("delay") != nil {
		b.Errorf(b.Field("delay").Span, rules.Body, "keep one of them", "at and delay exclude each other")
	}
	if source, ok := b.Field("source").Text(); ok && model.IsReservedSource(source) {
		b.Errorf(b.Field("source").Span, rules.Body, "leave source out, or name the program that the event is about",
			"the source %q is reserved for the engine's own events and for people in the console", source)
	}
	eventType, ok := b.Field("type").Text()
	if !ok {
		return
	}
	at := b.Field("type").Span
	served := b.Bundle.On(eventType)
	if len(served) > 0 && served[0].Sends != nil {
		served = nil // only the end of a run starts it
	}
	// A run may also wait for the event.
	if len(served) == 0 {
		served = b.Bundle.Awaiting(eventType)
	}
	if len(served) == 0 {
		b.Errorf(at, rules.UnservedEvent, suggestEvent(b.Bundle, eventType), "no pipeline serves the event %q", eventType)
		return
	}
	flow := b.Bundle.Flow(served[0].Flow)
	if flow != nil && flow.Key == nil && b.Field("key") == nil {
		b.Errorf(at, rules.Body, "add key: …", "flow %s finds no key in its events, so the event needs one", flow.ID)
	}
}

// suggestEvent suggests an event with a similar name that a pipeline accepts, or says what is
// missing.
func suggestEvent(bundle *tree.Bundle, eventType string) string {
	var known []string
	for _, p := range bundle.Pipelines {
		if len(p.On) == 0 {
			known = append(known, p.ID)
		}
		known = append(known, p.On...)
	}
	if near := diag.Suggest(eventType, known); near != "" {
		return "did you mean " + near + "?"
	}
	return "declare a pipeline with on: " + eventType + ", and stages: [] if it has nothing to do. " +
		"To tell another program, call it with request"
}
