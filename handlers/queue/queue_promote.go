package queue

import (
	"context"
	_ "embed"

	"procaas/engine"
	"procaas/engine/model"
)

//go:embed queue_promote.go
var promoteTasksSource string

// PromoteTasks makes tasks ready whose time has come.
//
// Every node does so by itself; this is for a store that no node serves tasks of. The
// response has promoted, their number.
//
//	id: promote
//	queue.promote: {}
type PromoteTasks struct {
	bound

	// Limit is how many are made ready in one transaction.
	Limit int `yaml:"limit" default:"1000" min:"1" max:"10000"`

	// Rounds is how many transactions there are at most.
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
		if all += n; err != nil {
			return model.Result{}, err
		}
		if n < h.Limit {
			break
		}
	}
	return model.Result{Response: map[string]any{"promoted": all}}, nil
}
