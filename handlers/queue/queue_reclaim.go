package queue

import (
	"context"
	_ "embed"

	"procaas/engine"
	"procaas/engine/model"
)

//go:embed queue_reclaim.go
var reclaimTasksSource string

// ReclaimTasks takes tasks back from workers that were not heard of in time.
//
// Every node does so by itself, too. A task whose workers were lost too often becomes a
// dead letter: it may be what kills them. The response has reclaimed, their number.
//
//	id: reclaim
//	queue.reclaim: {max-lost: 5}
type ReclaimTasks struct {
	bound

	// Limit is how many are taken back at once.
	Limit int `yaml:"limit" default:"1000" min:"1" max:"10000"`

	// MaxLost is how often the worker of a task may be lost.
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
