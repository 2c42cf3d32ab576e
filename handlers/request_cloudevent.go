package handlers

import (
	"errors"
	"fmt"
	"net/http"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/model"
	"procaas/engine/outbound"
)

const binaryMode = "binary"

// event returns the event without its data. All attempts of a call send the same one.
func (e *CloudEvent) event(c *engine.Call) (*outbound.CloudEvent, error) {
	source := e.Source
	if source == "" {
		source = "/" + model.PipelineOf(c.Path)
	}
	switch {
	case e.Type == "":
		return nil, errors.New("cloudevent: type: want text, have an empty one")
	case hasControls(e.Type + source + e.Subject):
		return nil, errors.New("cloudevent: control characters are not allowed in its attributes")
	}
	return &outbound.CloudEvent{
		ID: c.IdempotencyKey, Source: source, Type: e.Type, Subject: e.Subject, Time: e.Time, PartitionKey: c.Key,
	}, nil
}

// encode returns the body of a request with the event, and its type. Both are empty for an event in headers without data.
func (e *CloudEvent) encode(c *engine.Call, s *secrets) (text, contentType string, err error) {
	out, err := e.event(c)
	if err != nil {
		return "", "", err
	}
	if out.Data, err = s.reveal(e.Data); err != nil {
		return "", "", fmt.Errorf("cloudevent: data: %w", err)
	}
	var body any = out.Members()
	contentType = outbound.CloudEventMedia
	if e.Mode == binaryMode {
		if out.Data == nil {
			return "", "", nil
		}
		body, contentType = out.Data, "application/json"
	}
	data, err := datum.FormatJSON(body)
	if err != nil {
		return "", "", fmt.Errorf("cloudevent: data: %w", err)
	}
	return string(data), contentType, nil
}

// header adds the attributes of an event in binary mode.
func (e *CloudEvent) header(h http.Header, c *engine.Call) error {
	if e == nil || e.Mode != binaryMode {
		return nil
	}
	out, err := e.event(c)
	if err != nil {
		return err
	}
	out.SetHeaders(h)
	return nil
}

// eventHeaders are the headers that a request with an event cannot set itself. Others that begin with Ce- are its extensions.
var eventHeaders = []string{"Ce-Id", "Ce-Source", "Ce-Type", "Ce-Specversion", "Ce-Subject", "Ce-Time", "Ce-Partitionkey", "Ce-Datacontenttype"}

// checkCloudEvent checks what the tags of [CloudEvent] cannot express.
func checkCloudEvent(b *tree.Body) {
	event := b.Field("cloudevent")
	if event == nil {
		return
	}
	if v := b.Field("content-type"); v != nil {
		b.Errorf(v.Span, rules.Body, "delete it", "the content type of an event follows from its mode")
	}
	for _, k := range b.Field("headers").Keys() {
		for _, name := range eventHeaders {
			if http.CanonicalHeaderKey(k.Name) == name {
				b.Errorf(k.Span, rules.Body, "delete it; cloudevent has the fields source, type, subject and time, and the engine sets the others",
					"headers: %s is an attribute of the event", name)
			}
		}
	}
	for _, name := range []string{"type", "source", "subject", "time", "mode"} {
		v := event.Get(name)
		if text, ok := v.Text(); ok && text == "" || ok && hasControls(text) {
			b.Errorf(v.Span, rules.Body, "write text without control characters", "%s of an event: want text, have %q", name, text)
		}
		v.Secrets(func(v *expr.Value) {
			b.Errorf(v.Span, rules.Body, "send it in data", "%s of an event cannot be a secret", name)
		})
	}
}

// eventData returns the data of an event that is the body of its request, or nil.
func eventData(body *expr.Value) *expr.Value {
	event := body.Get("cloudevent")
	if mode, _ := event.Get("mode").Text(); mode != binaryMode {
		return nil
	}
	return event.Get("data")
}
