package queue

import (
	"context"

	"procaas/engine"
	"procaas/engine/model"
)

// PromoteTasks makes tasks ready that are due.
//
// Every node does this by itself. Use it for a store whose tasks no node serves. The response has
// their number as promoted.
//
//	id: promote
//	queue.promote: {}
type PromoteTasks struct {
	bound

	// Limit is the highest number of tasks per transaction.
	Limit int `yaml:"limit" default:"1000" min:"1" max:"10000"`

	// Rounds is the highest number of transactions.
	Rounds int `yaml:"rounds" default:"10" min:"1" max:"1000"`
}

// Handle implements [engine.Handler].
func (h *PromoteTasks) Handle(ctx context.Context, _ *engine.Call) (model.Result, error) {
	store, err := h.tasks()
	if err != nil {
		return model.Result{}, model.Permanent(err)
	}
	all := 0
	for range h.Rounds {
		n, _, err := store.Maintenance.PromoteTasks(ctx, h.Limit)
		all += n
		if err != nil {
			return model.Result{}, err
		}
		if n < h.Limit {
			break
		}
	}
	return model.Result{Response: map[string]any{"promoted": all}}, nil
}
