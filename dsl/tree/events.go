package tree

import (
	"procaas/dsl/contracts"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
)

// An EventType declares what events of one type contain.
type EventType struct {
	Span diag.Span `yaml:"-"`

	places

	// Type is the type of the events.
	Type string `yaml:"type" required:"true"`

	// Payload is the schema of their payload. The server refuses an event that does not fit. A handler that emits such an event fails.
	Payload *expr.Value `yaml:"payload" kind:"schema" expr:"no"`

	// Owner is the team that sends such events.
	Owner string `yaml:"owner"`

	PayloadContract *contracts.Contract `yaml:"-"` // of Payload; nil for anything
}

// Contract returns the contract of the payload, or nil if it may be anything.
func (e *EventType) Contract() *contracts.Contract {
	if e == nil {
		return nil
	}
	return e.PayloadContract
}
