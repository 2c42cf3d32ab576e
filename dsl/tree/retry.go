package tree

import (
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
)

// A Retry is the policy for failed attempts. The delay before the first retry is min-delay, and each further delay is
// factor times as long, up to max-delay. Jitter spreads the retries of many callers over time.
//
// If a service asks for a longer delay with Retry-After, the node waits at least that long. Jitter is added to it. The
// header never shortens a delay, and the classes in on decide whether there is a retry.
type Retry struct {
	Span diag.Span `yaml:"-"`

	places

	// Attempts is the highest number of attempts, including the first. 0 is no limit. While a declared service is down,
	// one call at a time tries whether it is back. For critical handlers these calls do not count as attempts, unless
	// attempts is 1.
	Attempts int `yaml:"attempts" default:"3" min:"0" max:"1000000"`

	// MinDelay is the delay before the first retry.
	MinDelay time.Duration `yaml:"min-delay" default:"100ms" min:"1ms"`

	// MaxDelay is the longest delay. Jitter by a share may exceed it.
	MaxDelay time.Duration `yaml:"max-delay" default:"15m" min:"1ms"`

	// Factor multiplies the delay with each retry.
	Factor float64 `yaml:"factor" default:"2" min:"1" max:"100"`

	// Jitter varies the delay at random. A share from 0 to 1, such as 0.1, adds a normally distributed deviation of
	// this share of the delay, from the second retry on. full chooses a delay between 0 and the computed one.
	// decorrelated chooses between min-delay and three times the delay before, and ignores factor.
	Jitter datum.Jitter `yaml:"jitter" default:"0.1"`

	// On lists the classes of errors to retry: timeout, connection, 5xx, 4xx, a single status such as 429, schema for a
	// response that does not fit its schema, other, or any. The class credentials is for calls that have none for their service, or whose service refuses them.
	// certificate is for services whose certificate the node does not trust.
	On spec.Names `yaml:"on" default:"timeout,connection,credentials,certificate,5xx,408,425,429" pattern:"class"`
}

// An OnUnknown says how to find out whether a call took effect.
type OnUnknown struct {
	Span diag.Span `yaml:"-"`

	places

	// Word is retry or park; empty when there is a mapping.
	Word string `yaml:"-"`

	// Verify is a call that asks whether the other one took effect.
	Verify *Verify `yaml:"verify" required:"true"`
}

// Parks reports whether a call with an unknown outcome waits for an operator.
func (h *Handler) Parks() bool { return h.OnUnknown != nil && h.OnUnknown.Word == "park" }

// Verification returns the call that verifies the handler's own call, or nil.
func (h *Handler) Verification() *Verify {
	if h.OnUnknown == nil {
		return nil
	}
	return h.OnUnknown.Verify
}

// A Verify is a call that asks whether another one took effect. In addition to done it has one handler type, such as
// request, with its fields. It uses the retry and the timeout of the handler.
type Verify struct {
	Span diag.Span `yaml:"-"`

	places

	// Type is the name of the handler type; empty when there is none.
	Type string `yaml:"-"`

	// Body holds the fields of the type, checked against its Spec.
	Body *expr.Value `yaml:"-"`

	// Done reports whether the call took effect. Here sources.HANDLER.response and sources.HANDLER.status are those of
	// the verification. If it is true, the handler has succeeded with that response. If it is false, the node repeats
	// the call with the same Idempotency-Key.
	Done *expr.Value `yaml:"done" kind:"bool" required:"true"`
}
