package api

import (
	"context"
	"errors"
	"slices"

	"procaas/dsl/tree"
	"procaas/engine/store"
	"procaas/handlers/queue"
)

// This file serves runs that wait for tasks with queue.task. The end of a task wakes its run, and the end of a run takes its task from
// the worker. Both are hints: the run looks at its task from time to time, and a result that nobody waits for changes nothing.

// waitedTypes are the types of tasks that runs of a definition wait for.
type waitedTypes struct {
	bundle *tree.Bundle
	all    bool // an expression names a type
	types  map[string]bool
}

// isWaitedFor reports whether runs wait for tasks of a type. Tasks of other types cost nothing more.
func (g *Group) isWaitedFor(taskType string) bool {
	b := g.Engine.Bundle()
	w := g.waited.Load()
	if w == nil || w.bundle != b {
		w = &waitedTypes{bundle: b, types: map[string]bool{}}
		for _, h := range b.Index.Handlers {
			if h.Type != "queue.task" || h.Body == nil {
				continue
			}
			name, fixed := h.Body.Get("type").Text()
			w.types[name], w.all = true, w.all || !fixed
		}
		g.waited.Store(w)
	}
	return w.all || w.types[taskType]
}

// heldTasks reads the tasks of receipts that runs may wait for.
func (g *Group) heldTasks(ctx context.Context, receipts []receipt) ([]store.QueuedTask, error) {
	f := store.TaskFilter{Limit: maxTasks, MaxPayload: 1} // payloads are not needed
	for _, one := range receipts {
		if g.isWaitedFor(one.taskType) {
			f.IDs = append(f.IDs, one.ID)
		}
	}
	if len(f.IDs) == 0 {
		return nil, nil
	}
	return g.Tasks.Admin.PeekTasks(ctx, f)
}

// waiters returns the runs that wait for the tasks of receipts. They must be read before the tasks end. An error costs only time.
func (g *Group) waiters(ctx context.Context, receipts []receipt) (runs []string) {
	tasks, err := g.heldTasks(ctx, receipts)
	if err != nil {
		g.Log.Warn("runs that wait for tasks are not known, and look by themselves", "error", err)
	}
	for i := range tasks {
		if run := queue.RunOf(&tasks[i]); run != "" {
			runs = append(runs, run)
		}
	}
	return runs
}

// wake lets runs look at their tasks.
func (g *Group) wake(ctx context.Context, runs []string) {
	for _, run := range runs {
		if err := g.Engine.WakeRun(ctx, run); err != nil {
			g.Log.Warn("a run that waits for a task is not woken, and looks by itself", "run", run, "error", err)
		}
	}
}

// abandon ends tasks whose runs have ended, and returns them.
func (g *Group) abandon(ctx context.Context, tasks []store.QueuedTask) (gone []int64, err error) {
	for i := range tasks {
		t := &tasks[i]
		run := queue.RunOf(t)
		if run == "" || !g.isWaitedFor(t.Type) {
			continue
		}
		status, err := g.Engine.RunStatus(ctx, run)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return gone, err
		}
		if err == nil && !status.Ended() {
			continue
		}
		if err := queue.Abandon(ctx, g.Tasks, t); err != nil {
			return gone, err
		}
		gone = append(gone, t.ID)
	}
	return gone, nil
}

// needed leaves out claimed tasks whose runs have ended meanwhile.
func (g *Group) needed(ctx context.Context, tasks []store.QueuedTask) []store.QueuedTask {
	gone, err := g.abandon(ctx, tasks)
	if err != nil {
		g.Log.Warn("tasks that no run needs are not found", "error", err) // their workers do them in vain
	}
	return slices.DeleteFunc(tasks, func(t store.QueuedTask) bool { return slices.Contains(gone, t.ID) })
}
