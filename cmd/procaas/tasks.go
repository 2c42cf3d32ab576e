package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"procaas/engine/store"
	"procaas/handlers/queue"
)

// A taskStore is the queue of tasks of a node.
type taskStore struct {
	store.TaskStore
	close func() error
}

// openTasks opens the queue of tasks in the same place as the runs.
func openTasks(ctx context.Context, dsn string, db store.Store, log *slog.Logger) (*taskStore, error) {
	if !isPostgres(dsn) {
		tasks, ok := db.(store.TaskStore)
		if !ok {
			return nil, fmt.Errorf("the store %T keeps no tasks", db)
		}
		return &taskStore{tasks, func() error { return nil }}, nil
	}
	tasks, err := queue.Open(ctx, dsn, queue.Options{Log: log})
	if err != nil {
		return nil, err
	}
	return &taskStore{tasks, tasks.Close}, nil
}

// closeStores closes what openStore and openTasks have opened.
func (n *node) closeStores() error {
	return errors.Join(n.tasks.close(), n.store.Close())
}
