package queue

import (
	"errors"
	"strings"

	"procaas/engine"
	"procaas/engine/store"
)

// Types lists the handler types of this package. [Bind] gives them a store.
func Types() []engine.HandlerType {
	return []engine.HandlerType{
		engine.Type[PutTask]("queue.put", putTaskSource),
		engine.Type[TakeTasks]("queue.take", takeTasksSource),
		engine.Type[CancelTasks]("queue.cancel", cancelTasksSource),
		engine.Type[PromoteTasks]("queue.promote", promoteTasksSource),
		engine.Type[ReclaimTasks]("queue.reclaim", reclaimTasksSource),
		engine.Type[ExpireTasks]("queue.expire", expireTasksSource),
		engine.Type[VacuumTasks]("queue.vacuum", vacuumTasksSource),
		engine.Type[StatsOfTasks]("queue.stats", statsOfTasksSource),
	}
}

// A bound handler uses a store of tasks.
type bound struct{ store *store.TaskStore }

func (b *bound) bind(store *store.TaskStore) { b.store = store }

var errUnbound = errors.New("this node keeps no tasks: its store has no tables for them")

// tasks returns the store.
func (b *bound) tasks() (*store.TaskStore, error) {
	if b.store == nil {
		return nil, errUnbound
	}
	return b.store, nil
}

// Bind makes handlers of the types queue.… use a store.
func Bind(types []engine.HandlerType, db *store.TaskStore) []engine.HandlerType {
	out := make([]engine.HandlerType, len(types))
	for i, t := range types {
		out[i] = t
		if !strings.HasPrefix(t.Name, "queue.") {
			continue
		}
		out[i].New = func() engine.Handler {
			h := t.New()
			if b, ok := h.(interface{ bind(*store.TaskStore) }); ok {
				b.bind(db)
			}
			return h
		}
	}
	return out
}
