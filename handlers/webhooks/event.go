package webhooks

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
	"procaas/engine/model"
	"procaas/handlers/webhooks/language"
)

// A Mapped is what a request of a provider means: an event, or an answer without one.
type Mapped struct {
	Event model.Event

	// Ignored is why there is no event; empty if there is one.
	Ignored string

	// Challenge is what the provider wants to read, so that it believes in the address; empty for none.
	Challenge string
}

// Source is the source of the events of a webhook. A token that is bound to it keeps others from sending such events.
func Source(w *language.Webhook) string { return SourceOf(w.ID) }

// SourceOf is the source of the events of a webhook, by its id.
func SourceOf(id string) string { return "webhooks/" + id }

// Map makes an event of a request whose signature holds. The error is for people, and names the expression.
func Map(w *language.Webhook, h http.Header, body []byte) (Mapped, error) {
	data, err := decode(h, body)
	if err != nil {
		return Mapped{}, err
	}
	fields, _ := data.(map[string]any)
	if challenge, _ := fields["challenge"].(string); w.Scheme == "slack" && fields["type"] == "url_verification" {
		return Mapped{Challenge: challenge}, nil
	}
	if w.Scheme == "github" && h.Get("X-Github-Event") == "ping" {
		return Mapped{Ignored: "GitHub only asks whether the address answers"}, nil
	}
	env := datum.Env{"body": data, "headers": headersOf(h)}
	if !w.When.IsNull() {
		wanted, err := w.When.Eval(env)
		if err != nil {
			return Mapped{}, fmt.Errorf("when of webhook %s: %w", w.ID, err)
		}
		if wanted != true {
			return Mapped{Ignored: "when of the webhook does not want it"}, nil
		}
	}
	e := model.Event{Source: Source(w), Payload: data}
	for _, f := range []struct {
		name  string
		value *expr.Value
		into  *string
	}{{"event-id", w.EventID, &e.ID}, {"type", w.Type, &e.Type}, {"key", w.Key, &e.Key}} {
		if f.value.IsNull() {
			continue
		}
		if *f.into, err = text(f.value, env); err != nil {
			return Mapped{}, fmt.Errorf("%s of webhook %s: %w", f.name, w.ID, err)
		}
	}
	if !w.Payload.IsNull() {
		if e.Payload, err = w.Payload.Eval(env); err != nil {
			return Mapped{}, fmt.Errorf("payload of webhook %s: %w", w.ID, err)
		}
	}
	if e.ID == "" {
		e.ID = deliveryID(w, h, fields)
		if e.ID == "" {
			return Mapped{}, fmt.Errorf("event-id of webhook %s: the delivery has no id", w.ID)
		}
	}
	return Mapped{Event: e}, nil
}

// decode decodes a body: JSON, or a form. Slack sends buttons as JSON in the field payload of a form.
func decode(h http.Header, body []byte) (any, error) {
	media, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	if media != "application/x-www-form-urlencoded" {
		v, err := datum.ParseJSON(body)
		if err != nil {
			return nil, fmt.Errorf("want a body of JSON or a form: %w", err)
		}
		return v, nil
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, fmt.Errorf("the form cannot be read: %w", err)
	}
	fields := map[string]any{}
	for name, values := range form {
		fields[name] = values[0]
	}
	if payload, ok := fields["payload"].(string); ok && len(form) == 1 {
		v, err := datum.ParseJSON([]byte(payload))
		if err != nil {
			return nil, fmt.Errorf("want JSON in the field payload of the form: %w", err)
		}
		return v, nil
	}
	return fields, nil
}

// headersOf returns the headers for expressions.
func headersOf(h http.Header) map[string]any {
	out := make(map[string]any, len(h))
	for name, values := range h {
		out[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	return out
}

// text evaluates a text. Numbers are common as ids of providers.
func text(v *expr.Value, env datum.Env) (string, error) {
	data, err := v.Eval(env)
	if err != nil {
		return "", err
	}
	switch data := data.(type) {
	case string:
		return data, nil
	case int:
		return fmt.Sprint(data), nil
	}
	return "", fmt.Errorf("%s: want text, have %s", v.Span, datum.Describe(data))
}

// deliveryID returns the id that a provider gives a delivery, the same for each attempt.
func deliveryID(w *language.Webhook, h http.Header, body map[string]any) string {
	var id any
	switch w.Scheme {
	case "github":
		id = h.Get("X-Github-Delivery")
	case "standard":
		id = h.Get("Webhook-Id")
	case "stripe":
		id = body["id"]
	case "slack":
		id = body["event_id"]
		if id == nil {
			id = body["trigger_id"] // of a command or a button, which are sent once
		}
		if id == nil {
			sum := sha256.Sum256([]byte(h.Get("X-Slack-Signature")))
			id = hex.EncodeToString(sum[:])
		}
	}
	text, _ := id.(string)
	return text
}
