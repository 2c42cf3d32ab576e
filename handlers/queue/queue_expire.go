package queue

import (
	"context"
	"time"

	"procaas/engine"
	"procaas/engine/model"
)

// ExpireTasks deletes tasks that ended long ago.
//
// In PostgreSQL it deletes completed tasks by whole days. The response has their number as forgotten.
//
//	id: expire
//	queue.expire: {ended: 72h, failed: 720h}
type ExpireTasks struct {
	bound

	// Ended is how long to keep completed and cancelled tasks.
	Ended time.Duration `yaml:"ended" default:"72h" min:"1h"`

	// Failed is how long to keep dead letters. 0 keeps them until somebody retries them.
	Failed time.Duration `yaml:"failed" default:"0s" min:"0s"`
}

// Handle implements [engine.Handler].
func (h *ExpireTasks) Handle(ctx context.Context, _ *engine.Call) (model.Result, error) {
	store, err := h.tasks()
	if err != nil {
		return model.Result{}, model.Permanent(err)
	}
	n, err := store.Maintenance.ExpireTasks(ctx, h.Ended, h.Failed)
	return model.Result{Response: map[string]any{"forgotten": n}}, err
}
