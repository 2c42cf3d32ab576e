package tree

import (
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
)

// A Notification tells a service how a run has ended: a CloudEvent, signed as Standard Webhooks are. Each one is sent by
// a run of its own, whose pipeline is named after the pipeline or flow and the notification, such as order-created.desk.
// Its only handler, order-created.desk/notify/send, has a switch, a limit and metrics like any other.
type Notification struct {
	Span diag.Span `yaml:"-"`

	places

	// ID names the notification. It is unique in its pipeline or flow.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// On lists the ends that the service hears of. blocked is a run that stops later events of its key until somebody
	// retries or cancels it.
	On spec.Names `yaml:"on" required:"true" enum:"succeeded,failed,cancelled,blocked"`

	// Service is the id of a declared service.
	Service string `yaml:"service" required:"true"`

	// Path is the path below the URL of the service.
	Path string `yaml:"path" required:"true"`

	// Secret signs the request: !secret NAME. Its value is base64 behind whsec_. With a list, each secret makes a
	// signature, so that the receiver can change its secret.
	Secret *expr.Value `yaml:"secret" required:"true"`

	// MaxAge is how long the node tries. Then the delivery has failed, and runs retry sends it again.
	MaxAge time.Duration `yaml:"max-age" default:"24h" min:"1m" max:"168h"`

	sender *Pipeline
}

// Sender returns the pipeline that sends the notification, whose id is also the type of its events.
func (n *Notification) Sender() *Pipeline { return n.sender }

// These bound what is left of deliveries. The oldest go first.
const (
	keepSent   = 1000
	keepUnsent = 1000
)

// AddSender makes the pipeline that sends the notification of a pipeline or flow.
func (n *Notification) AddSender(of, owner string) {
	critical := true
	payload := "event.payload"
	at := make([]diag.Pos, len(payload)+1)
	for i := range at {
		at[i] = n.Span.Start
	}
	body := &expr.Value{Span: n.Span, Kind: expr.ValueMap}
	add := func(name string, v expr.Value) {
		v.Span = n.PlaceOf(name, n.Span)
		body = body.With(expr.Key{Name: name, Span: v.Span}, &v)
	}
	text := func(name, value string) { add(name, expr.Value{Kind: expr.ValueLiteral, Scalar: value}) }
	text("service", n.Service)
	text("path", n.Path)
	text("method", "POST")
	add("body", expr.Value{Kind: expr.ValueExpr, Computed: &expr.Expr{Source: payload, Span: n.Span, At: expr.Places(at)}})
	text("content-type", "application/cloudevents+json")
	text("response", "none")
	if n.Secret != nil {
		body = body.With(expr.Key{Name: "sign", Span: n.Secret.Span}, n.Secret)
	}
	h := &Handler{
		Span: n.Span, places: n.places, ID: "send", Owner: owner, Critical: &critical, Type: RequestType, Body: body, Deadline: n.MaxAge,
		Retry: &Retry{
			Span: n.Span, MinDelay: time.Second, MaxDelay: 10 * time.Minute, Factor: 2, Jitter: datum.Jitter{Share: 0.1}, On: spec.Names{"any"},
		},
	}
	n.sender = &Pipeline{
		Span: n.Span, places: n.places, ID: of + "." + n.ID, Owner: owner, Weight: 1, MaxState: 256 << 10, Keep: keepSent, KeepFailed: keepUnsent,
		Stages: []*Stage{{Span: n.Span, places: n.places, ID: "notify", Handlers: []*Handler{h}}},
		Sends:  n,
	}
}
