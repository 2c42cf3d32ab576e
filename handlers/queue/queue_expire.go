package queue

import (
	"context"
	_ "embed"
	"time"

	"procaas/engine"
	"procaas/engine/model"
)

//go:embed queue_expire.go
var expireTasksSource string

// ExpireTasks forgets tasks that ended long ago.
//
// In PostgreSQL those that ended well go by the day, all at once. The response has
// forgotten, their number.
//
//	id: expire
//	queue.expire: {ended: 72h, failed: 720h}
type ExpireTasks struct {
	bound

	// Ended is how long tasks are remembered that were completed or cancelled.
	Ended time.Duration `yaml:"ended" default:"72h" min:"1h"`

	// Failed is how long dead letters are kept; 0 keeps them until somebody decides.
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
