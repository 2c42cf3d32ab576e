package handlers

import (
	"context"

	"procaas/engine"
	"procaas/engine/model"
)

// Set computes values of the shared state.
//
// Its keys are names of the shared state, and its values are their new values. All of its expressions see the old
// values, even if a line above sets the same name.
//
//	id: price
//	set:
//	  price: !$ shared-state.distance * 12 + 99
//	  currency: RUB
type Set struct {
	// Values are the new values, by the names of the shared state.
	Values map[string]any `yaml:",inline"`
}

// SetsState makes the keys of the body names of the shared state.
func (*Set) SetsState() {}

// Handle implements [engine.Handler]. Nothing calls it, because the engine itself computes the
// values and sets the shared state.
func (s *Set) Handle(context.Context, *engine.Call) (model.Result, error) {
	return model.Result{Response: s.Values}, nil
}
