package queue

import (
	"context"

	"procaas/engine"
	"procaas/engine/model"
)

// VacuumTasks cleans up after deleted tasks, and creates the table partitions of the next days.
//
// PostgreSQL also cleans up by itself, but a busy queue needs it every few minutes.
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
