// Package publish sends messages of flows to brokers.
package publish

import (
	"context"
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
	"procaas/engine"
	"procaas/engine/clock"
	"procaas/engine/model"
	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/language"
)

// Publish sends a message to a broker, at least once.
//
// It succeeds when the broker has stored the message. The response says where. JetStream has stream, sequence and duplicate, and Kafka
// has topic, partition and offset. RabbitMQ has exchange and routing-key. Every attempt sends the same message, also after a restart. Its
// Idempotency-Key is the id by which JetStream drops a repeat within the duplicate window of the stream. Kafka and RabbitMQ store a repeat
// of a later attempt. Its header Idempotency-Key, and its message-id in RabbitMQ, tell readers that it is one.
//
// Other headers are X-Procaas-Run, X-Procaas-Path, X-Procaas-Key with the key, Content-Type, which is application/json, and traceparent
// and tracestate.
//
//	id: tell
//	publish:
//	  broker: hub
//	  subject: orders.paid
//	  body: {order: !$ event.payload.id}
type Publish struct {
	pool *Pool // nil in commands that have no node

	// Broker is the id of a declared broker.
	Broker string `yaml:"broker" required:"true"`

	// Subject is the subject of the message in NATS. A stream must have it.
	Subject string `yaml:"subject"`

	// Topic is the topic of Kafka to send to.
	Topic string `yaml:"topic"`

	// Exchange is the exchange of RabbitMQ to send to. Without it, the message goes to the queue that the routing-key names.
	Exchange string `yaml:"exchange"`

	// RoutingKey is the routing key of the message in RabbitMQ. Some queue must take messages with it.
	RoutingKey string `yaml:"routing-key"`

	// Key is the key by which Kafka chooses the partition, so messages with the same key keep their order. Its default is the key of the run.
	Key string `yaml:"key"`

	// Headers are added to those of the engine. null omits a header.
	Headers map[string]any `yaml:"headers"`

	// Body is sent as JSON. It takes no secret, because the broker keeps it.
	Body any `yaml:"body"`

	// Timeout is the longest time of one attempt. Its default is the timeout of the handler, then 5s.
	Timeout time.Duration `yaml:"timeout" min:"1ms"`
}

const defaultTimeout = 5 * time.Second

//go:embed publish.go
var typeFiles embed.FS

// Types lists the handler type publish as the language sees it, or with the pool of a node.
func Types(pool *Pool) []engine.HandlerType {
	t := engine.Type[Publish]("publish", spec.Read(typeFiles))
	t.New = func() engine.Handler { return &Publish{pool: pool} }
	return []engine.HandlerType{t}
}

// Handle implements [engine.Handler].
func (h *Publish) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	b := language.BrokerOf(c.Bundle, h.Broker)
	switch {
	case b == nil:
		return model.Result{}, model.Permanent(fmt.Errorf("broker %q is not declared", h.Broker))
	case h.pool == nil:
		return model.Result{}, engine.WithoutNode("brokers")
	}
	m, err := h.message(c)
	if err != nil {
		return model.Result{}, model.Permanent(err)
	}
	if limit := h.Timeout; limit > 0 || c.Timeout == 0 {
		if limit == 0 {
			limit = defaultTimeout
		}
		var cancel context.CancelFunc
		ctx, cancel = clock.WithTimeout(ctx, limit)
		defer cancel()
	}
	out, err := h.pool.publish(ctx, b, m)
	if err != nil {
		return model.Result{}, fmt.Errorf("publish to %s of broker %s: %w", m.To, b.ID, err)
	}
	return model.Result{Response: out.Place}, nil
}

// Response returns what the response has, by the broker whose fields the body has.
func (*Publish) Response(body *expr.Value) *typing.Outline {
	text, number := typing.OfShape(datum.StringShape), typing.OfShape(datum.NumberShape)
	switch {
	case body.Get("subject") != nil:
		return typing.Record(map[string]*typing.Outline{"stream": text, "sequence": number, "duplicate": typing.OfShape(datum.BoolShape)})
	case body.Get("topic") != nil:
		return typing.Record(map[string]*typing.Outline{"topic": text, "partition": number, "offset": number})
	case body.Get("routing-key") != nil:
		return typing.Record(map[string]*typing.Outline{"exchange": text, "routing-key": text})
	}
	return nil
}

// message returns what each attempt of the call sends. Its errors are mistakes in the pipeline.
func (h *Publish) message(c *engine.Call) (*broker.Outgoing, error) {
	body, err := datum.FormatJSON(h.Body)
	if err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	m := &broker.Outgoing{ID: c.IdempotencyKey, To: h.Subject + h.Topic + h.RoutingKey, Exchange: h.Exchange, Key: h.Key, Body: body, Headers: map[string]string{}}
	if m.Key == "" {
		m.Key = c.Key
	}
	for name, value := range h.Headers {
		if value == nil {
			continue
		}
		switch value.(type) {
		case string, bool, int, float64:
		default:
			return nil, fmt.Errorf("headers: %s: want a simple value, have %s", name, datum.Describe(value))
		}
		text := fmt.Sprint(value)
		if err := checkHeader(name); err != nil {
			return nil, err
		}
		if hasControls(text) {
			return nil, fmt.Errorf("headers: %s: control characters are not allowed", name)
		}
		m.Headers[name] = text
	}
	maps.Copy(m.Headers, map[string]string{
		"Content-Type": "application/json", "Idempotency-Key": c.IdempotencyKey, "X-Procaas-Run": c.Run, "X-Procaas-Path": c.Path,
	})
	for name, value := range map[string]string{"X-Procaas-Key": m.Key, "traceparent": c.TraceParent, "tracestate": c.TraceState} {
		if value != "" && !hasControls(value) {
			m.Headers[name] = value
		}
	}
	return m, nil
}

func hasControls(text string) bool {
	return strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f })
}

// reserved headers belong to the engine.
var reserved = []string{"content-type", "idempotency-key", "traceparent", "tracestate"}

// checkHeader refuses names that a broker does not take, and headers that the engine or the broker sets.
func checkHeader(name string) error {
	low := strings.ToLower(name)
	switch {
	case name == "" || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == ':' }):
		return fmt.Errorf("headers: %q is no name of a header", name)
	case slices.Contains(reserved, low) || strings.HasPrefix(low, "x-procaas-") || strings.HasPrefix(low, "nats-"):
		return fmt.Errorf("headers: %s is set by the engine and cannot be changed", name)
	}
	return nil
}

// Takes returns the longest time of an attempt.
func (*Publish) Takes(b *tree.Body) tree.Longest {
	if d, ok := b.Timeout(); ok {
		return tree.Longest{Time: d}
	}
	return tree.Longest{Time: defaultTimeout}
}

// CheckBody checks what the tags of [Publish] cannot express.
func (*Publish) CheckBody(b *tree.Body) {
	for _, k := range b.Field("headers").Keys() {
		if err := checkHeader(k.Name); err != nil {
			b.Errorf(k.Span, rules.Body, "", "%v", err)
		}
	}
	b.Value.Secrets(func(v *expr.Value) {
		b.Errorf(v.Span, rules.Body, "give the reader the secret in another way", "the broker keeps what it is sent, so a message takes no secret")
	})
	name := b.Field("broker")
	if name == nil {
		return
	}
	id, ok := name.Text()
	if !ok {
		b.Errorf(name.Span, rules.Body, "write the id of a broker", "broker cannot be computed: data must not choose where messages go")
		return
	}
	k := language.BrokerOf(b.Bundle, id)
	if k == nil {
		var known []string
		for _, k := range language.AllBrokers(b.Bundle) {
			known = append(known, k.ID)
		}
		hint := "declare it below brokers, with its kind and servers"
		if near := diag.Suggest(id, known); near != "" {
			hint = "did you mean " + near + "?"
		}
		b.Errorf(name.Span, rules.Body, hint, "broker %q is not declared", id)
		return
	}
	if k.Kind != "" { // which was reported
		checkTo(b, k)
	}
}

// checkTo reports fields that are for another kind of broker, and what is missing for this one.
func checkTo(b *tree.Body, k *language.Broker) {
	want := map[string]string{"nats": "subject", "kafka": "topic", "rabbitmq": "routing-key"}[k.Kind]
	for _, field := range []string{"subject", "topic", "routing-key", "exchange"} {
		v := b.Field(field)
		text, isLiteral := v.Text()
		switch {
		case field == "exchange" && k.Kind == "rabbitmq":
			if v != nil && !isLiteral {
				b.Errorf(v.Span, rules.Body, "write the name of an exchange, and compute the routing-key",
					"exchange cannot be computed: data must not choose where messages go")
			}
		case field != want && v != nil:
			b.Errorf(v.Span, rules.Body, "write "+want+":", "broker %s is %s, which has no %s", k.ID, k.Kind, field)
		case field == want && (v == nil || isLiteral && text == ""):
			b.Errorf(b.Span, rules.Body, "add "+want+":", "a message for broker %s needs a %s", k.ID, want)
		case field == "subject" && isLiteral:
			if err := broker.CheckSubject(text); err != nil {
				b.Errorf(v.Span, rules.Body, "", "%v", err)
			}
		}
	}
}
