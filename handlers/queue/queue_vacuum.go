package queue

import (
	"context"
	_ "embed"

	"procaas/engine"
	"procaas/engine/model"
)

//go:embed queue_vacuum.go
var vacuumTasksSource string

// VacuumTasks cleans up after tasks that are gone, and makes the partitions of the next
// days.
//
// PostgreSQL does the first by itself too, when it finds time; a busy queue wants it
// every few minutes.
//
//	id: vacuum
//	queue.vacuum: {}
//	timeout: 5m
type VacuumTasks struct{ bound }

// Handle implements [engine.Handler].
func (h *VacuumTasks) Handle(ctx context.Context, _ *engine.Call) (model.Result, error) {
	store, err := h.tasks()
	if err != nil {
		return model.Result{}, model.Permanent(err)
	}
	return model.Result{}, store.Maintenance.VacuumTasks(ctx)
}
