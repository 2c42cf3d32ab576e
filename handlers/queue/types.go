package queue

import (
	"embed"
	"errors"
	"strings"

	"procaas/dsl/spec"
	"procaas/engine"
	"procaas/engine/store"
)

//go:embed queue_*.go
var typeFiles embed.FS

// Types lists the handler types of this package. [Bind] sets their store.
func Types() []engine.HandlerType {
	own := spec.Read(typeFiles)
	return []engine.HandlerType{
		engine.Type[PutTask]("queue.put", own),
		engine.Type[DoTask]("queue.task", own),
		engine.Type[TakeTasks]("queue.take", own),
		engine.Type[CancelTasks]("queue.cancel", own),
		engine.Type[PromoteTasks]("queue.promote", own),
		engine.Type[ReclaimTasks]("queue.reclaim", own),
		engine.Type[ExpireTasks]("queue.expire", own),
		engine.Type[VacuumTasks]("queue.vacuum", own),
		engine.Type[StatsOfTasks]("queue.stats", own),
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

// Bind makes the handler types queue.… use a store.
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
