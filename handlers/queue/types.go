package queue

import (
	"errors"
	"strings"

	"procaas/engine"
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
type bound struct{ store engine.TaskStore }

func (b *bound) bind(store engine.TaskStore) { b.store = store }

var errUnbound = errors.New("this node keeps no tasks: its store has no tables for them")

// tasks gives the store.
func (b *bound) tasks() (engine.TaskStore, error) {
	if b.store == nil {
		return nil, errUnbound
	}
	return b.store, nil
}

// Bind makes handlers of the types queue.… use a store.
func Bind(types []engine.HandlerType, store engine.TaskStore) []engine.HandlerType {
	out := make([]engine.HandlerType, len(types))
	for i, t := range types {
		out[i] = t
		if !strings.HasPrefix(t.Name, "queue.") {
			continue
		}
		out[i].New = func() engine.Handler {
			h := t.New()
			if b, ok := h.(interface{ bind(engine.TaskStore) }); ok {
				b.bind(store)
			}
			return h
		}
	}
	return out
}
