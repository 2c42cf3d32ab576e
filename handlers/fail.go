package handlers

import (
	"context"
	"errors"

	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/model"
)

// Fail ends the handler with an error.
//
// With enabled it checks a condition: a critical handler fails the run, which then waits for an operator.
//
//	id: refuse-unknown-tariff
//	enabled: !$ shared-state.order.tariff not in configs.TARIFFS
//	fail:
//	  message: !$ shared-state.order.tariff + " is no tariff"
type Fail struct {
	// Message says what is wrong. Operators see it.
	Message string `yaml:"message" required:"true"`

	// Permanent fails the handler at once. With false the node first retries it, as its retry says.
	Permanent bool `yaml:"permanent" default:"true"`
}

// Handle implements [engine.Handler].
func (f *Fail) Handle(context.Context, *engine.Call) (model.Result, error) {
	err := errors.New(f.Message)
	if f.Permanent {
		err = model.Permanent(err)
	}
	return model.Result{}, err
}

// Takes reports that a call takes no time.
func (*Fail) Takes(*tree.Body) tree.Longest { return tree.Longest{} }

// CheckBody checks what the tags of [Fail] cannot express.
func (*Fail) CheckBody(b *tree.Body) { checkNoSecrets(b) }
