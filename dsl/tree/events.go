package tree

import (
	"procaas/dsl/contracts"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
)

// An EventType says what events of one type carry.
type EventType struct {
	Span diag.Span `yaml:"-"`

	places

	// Type is the type of the events.
	Type string `yaml:"type" required:"true"`

	// Payload is the schema of their payload. An event that does not fit it is
	// refused when it comes, and one that a handler emits fails the handler.
	Payload *expr.Value `yaml:"payload" kind:"schema" expr:"no"`

	// Owner says who sends such events.
	Owner string `yaml:"owner"`

	PayloadContract *contracts.Contract `yaml:"-"` // of Payload; nil for anything
}

// Contract is what the payload must be; nil for anything.
func (e *EventType) Contract() *contracts.Contract {
	if e == nil {
		return nil
	}
	return e.PayloadContract
}
