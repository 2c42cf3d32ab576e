package taskrun

import (
	"context"
	"log/slog"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/clock"
	"procaas/engine/store"
)

// These bound how often a node looks for tasks that programs have enqueued, and how many it takes at once.
const (
	enqueuedLeast  = 10 * time.Millisecond
	enqueuedMost   = time.Second
	enqueuedAtOnce = 500
)

// TakeEnqueued puts the tasks into the queue that programs enqueue in their own transactions, until ctx ends. Nodes may do so at once.
// It looks when it hears of some, and from time to time.
func TakeEnqueued(ctx context.Context, tasks *store.TaskStore, bundle func() *tree.Bundle, log *slog.Logger) {
	woken, stop := tasks.Work.WatchTasks([]string{store.EnqueuedHint})
	defer stop()
	ready := func(t *store.TaskSpec) (string, error) {
		p := bundle().Pipeline(t.Type)
		if p == nil {
			return "", nil
		}
		if err := FillTask(p, t); err != nil {
			return err.Error(), nil
		}
		return "", nil
	}
	failing, hinted := false, true
	for !hinted || clock.Pause(ctx, enqueuedLeast) {
		n, err := tasks.Enqueued.TakeEnqueued(ctx, enqueuedAtOnce, ready)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			log.Warn("tasks of procaas_enqueue wait, trying again", "error", err)
		}
		failing = err != nil
		hinted = true
		if n > 0 {
			continue
		}
		wait := time.NewTimer(enqueuedMost)
		select {
		case <-ctx.Done():
		case <-woken:
		case <-wait.C:
			hinted = false
		}
		wait.Stop()
	}
}
