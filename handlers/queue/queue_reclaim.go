package queue

import (
	"context"

	"procaas/engine"
	"procaas/engine/model"
)

// ReclaimTasks takes tasks back from workers that did not report in time.
//
// Every node does this by itself. A task that lost too many workers becomes a dead letter, because
// it may be the cause. The response has their number as reclaimed.
//
//	id: reclaim
//	queue.reclaim: {max-lost: 5}
type ReclaimTasks struct {
	bound

	// Limit is the highest number of tasks to take back.
	Limit int `yaml:"limit" default:"1000" min:"1" max:"10000"`

	// MaxLost is how many workers a task may lose.
	MaxLost int `yaml:"max-lost" default:"5" min:"0" max:"1000"`
}

// Handle implements [engine.Handler].
func (h *ReclaimTasks) Handle(ctx context.Context, _ *engine.Call) (model.Result, error) {
	store, err := h.tasks()
	if err != nil {
		return model.Result{}, model.Permanent(err)
	}
	n, err := store.Maintenance.ReclaimTasks(ctx, h.Limit, h.MaxLost)
	return model.Result{Response: map[string]any{"reclaimed": n}}, err
}
