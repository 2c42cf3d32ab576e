// Package subscriptions brings messages of brokers in as events.
package subscriptions

import (
	"fmt"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/tracing"
	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/language"
)

// MaxBody bounds the body of a message, as the API bounds that of an event.
const MaxBody = 1 << 20

// Map makes an event of a message. wanted is false if the subscription does not want it. The error is for people, and names the
// expression.
func Map(s *language.Subscription, m *broker.Message) (in intake.Submission, wanted bool, err error) {
	if len(m.Body) > MaxBody {
		return in, false, fmt.Errorf("the body has %d bytes, and an event may have %d", len(m.Body), MaxBody)
	}
	body, err := datum.ParseJSON(m.Body)
	if err != nil {
		return in, false, fmt.Errorf("want a body of JSON: %w", err)
	}
	env := datum.Env{"message": map[string]any{
		"id": m.ID, "subject": m.Subject, "key": m.Key, "headers": m.Headers, "body": body, "time": m.Time.UTC().Format(time.RFC3339Nano),
	}}
	failed := func(field string, err error) error { return fmt.Errorf("%s of subscription %s: %w", field, s.ID, err) }
	if !s.When.IsNull() {
		is, err := s.When.Eval(env)
		if err != nil || is != true {
			if err != nil {
				err = failed("when", err)
			}
			return in, false, err
		}
	}
	e := model.Event{ID: m.ID, Source: s.Path(), Payload: body, Time: m.Time}
	if s.OfStore() {
		e.Key = m.Key
	}
	for _, f := range []struct {
		name  string
		value *expr.Value
		into  *string
	}{{"event-id", s.EventID, &e.ID}, {"type", s.Type, &e.Type}, {"key", s.Key, &e.Key}} {
		if f.value.IsNull() {
			continue
		}
		if *f.into, err = text(f.value, env); err != nil {
			return in, false, failed(f.name, err)
		}
	}
	if !s.Payload.IsNull() {
		if e.Payload, err = s.Payload.Eval(env); err != nil {
			return in, false, failed("payload", err)
		}
	}
	parent, _ := m.Headers["traceparent"].(string)
	state, _ := m.Headers["tracestate"].(string)
	e.TraceParent, e.TraceState = tracing.Context(parent, state)
	return intake.Submission{Event: e, Hash: e.ID}, true, nil // the place says what it is, whatever the mapping makes of it
}

// text evaluates a text that must not be empty. Numbers are common as ids and keys.
func text(v *expr.Value, env datum.Env) (string, error) {
	data, err := v.Eval(env)
	if err != nil {
		return "", err
	}
	switch data := data.(type) {
	case string:
		if data == "" {
			return "", fmt.Errorf("%s: want text, have an empty one", v.Span)
		}
		return data, nil
	case int:
		return fmt.Sprint(data), nil
	}
	return "", fmt.Errorf("%s: want text, have %s", v.Span, datum.Describe(data))
}
