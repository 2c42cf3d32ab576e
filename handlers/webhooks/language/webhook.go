package language

import (
	"embed"
	"reflect"
	"sync"
	"time"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// A Webhook is an address for a provider that sends HTTP requests with a signature instead of a token: POST
// /v1/webhooks/ID. A request with a valid signature becomes an event. Expressions may read body, which is the decoded
// body, and headers, whose names are in lower case.
type Webhook struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// ID names the webhook, and ends its address.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Scheme says how the provider signs. standard is that of Standard Webhooks. hmac is any other, which signature describes.
	Scheme string `yaml:"scheme" required:"true" enum:"github,stripe,slack,standard,hmac"`

	// Secrets are the names of secrets, as in !secret. A signature by any of them is valid, so that a new secret works
	// before the provider stops to use the old one.
	Secrets []string `yaml:"secrets" required:"true"`

	// Signature describes the signatures of the scheme hmac.
	Signature *Signature `yaml:"signature"`

	// Tolerance is how far the time of a signature may be from that of the node. It has no effect if nothing that is
	// signed has a time.
	Tolerance time.Duration `yaml:"tolerance" default:"5m" min:"1s" max:"24h"`

	// When says which requests become events. Others are acknowledged and forgotten.
	When *expr.Value `yaml:"when" kind:"bool"`

	// EventID names the delivery, so that a repeated one is a duplicate. Without it, it is the delivery's id of the
	// provider. The scheme hmac has none.
	EventID *expr.Value `yaml:"event-id" kind:"string"`

	// Type is the type of the event. A request whose type no pipeline serves is acknowledged and forgotten.
	Type *expr.Value `yaml:"type" required:"true" kind:"string"`

	// Key is the key of the event. Without it the flow of the pipeline reads it from the payload.
	Key *expr.Value `yaml:"key" kind:"string"`

	// Payload is the payload of the event. Without it, it is the decoded body.
	Payload *expr.Value `yaml:"payload"`

	// Owner is the team that looks after the webhook.
	Owner string `yaml:"owner"`
}

// A Signature describes how a provider signs with HMAC and a secret that both sides know.
type Signature struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// Header has the signature, or several with commas or spaces between them.
	Header string `yaml:"header" required:"true"`

	// Prefix stands before each signature.
	Prefix string `yaml:"prefix"`

	// Encoding of the signature.
	Encoding string `yaml:"encoding" enum:"hex,base64" default:"hex"`

	// Hash is the hash function of the HMAC.
	Hash string `yaml:"hash" enum:"sha256,sha512,sha1" default:"sha256"`

	// Timestamp is a header with the time of the signature in Unix seconds. Without it, nobody notices an old request.
	Timestamp string `yaml:"timestamp"`

	// Signed is what is signed: text with {body}, the bytes of the body, and {timestamp}, that header.
	Signed string `yaml:"signed" default:"{body}"`
}

// A section is the section of files.
type section struct {
	// Webhooks are addresses for providers that sign their requests.
	Webhooks []*Webhook `yaml:"webhooks"`
}

//go:embed rules.yaml
var rulesFile embed.FS

func readRules() []rules.Rule { return rules.Read(rulesFile, "rules.yaml") }

//go:embed webhook.go
var source embed.FS

// sectionSpec describes the section.
var sectionSpec = sync.OnceValue(func() *spec.Spec { return spec.OfFile(reflect.TypeFor[section](), spec.Read(source)) })

// All lists the webhooks of a bundle.
func All(b *tree.Bundle) []*Webhook { return tree.In[*Webhook](b, sectionName) }

// Of returns a webhook of a bundle by its id, or nil.
func Of(b *tree.Bundle, id string) *Webhook {
	for _, w := range All(b) {
		if w.ID == id {
			return w
		}
	}
	return nil
}

const sectionName = "webhooks"
