// Package console has the pages of the queue: what waits, and the tasks of each type.
package console

import (
	"context"
	_ "embed" // the templates
	"net/http"
	"slices"

	"procaas/engine/api/ui"
	"procaas/engine/credentials"
	"procaas/engine/store"
)

// Tasks is what the pages need of the queue.
type Tasks interface {
	TaskStats(ctx context.Context) ([]store.TaskTypeStats, error)
	TaskTables(ctx context.Context) ([]store.TaskTable, error)
	PeekTasks(ctx context.Context, f store.TaskFilter) ([]store.QueuedTask, error)
}

//go:embed types.html
var typesText string

//go:embed type.html
var typeText string

// Pages returns the pages. Tasks are nil on a node that keeps none.
func Pages(tasks Tasks) []ui.Page {
	p := pages{tasks}
	return []ui.Page{
		{Pattern: "queue/", In: "queue", Template: typesText, Data: p.types},
		{Pattern: "queue/{type...}", Template: typeText, Data: p.taskType},
	}
}

type pages struct{ tasks Tasks }

type typesData struct {
	Types  []store.TaskTypeStats
	Tables []store.TaskTable
	Tasks  bool // there is a queue
}

// types counts the tasks of each type.
func (p pages) types(r *http.Request, caller credentials.Grant) (title string, data any, err error) {
	d := typesData{Tasks: p.tasks != nil}
	if p.tasks == nil {
		return "", d, nil
	}
	if d.Types, err = p.readable(r.Context(), caller); err != nil {
		return "", nil, err
	}
	d.Tables, err = p.tasks.TaskTables(r.Context())
	return "", d, err
}

// readable counts the tasks of the types that a caller may read.
func (p pages) readable(ctx context.Context, caller credentials.Grant) ([]store.TaskTypeStats, error) {
	all, err := p.tasks.TaskStats(ctx)
	return slices.DeleteFunc(slices.Clone(all), func(s store.TaskTypeStats) bool { return !caller.Reads(s.Type) }), err
}

type typeData struct {
	Stats store.TaskTypeStats
	Next  []store.QueuedTask // in the order in which they would be taken
	Taken []store.QueuedTask
	Dead  []store.QueuedTask
}

// taskType shows the tasks of a type: who is next, who has them, and the dead letters.
func (p pages) taskType(r *http.Request, caller credentials.Grant) (name string, data any, err error) {
	name = r.PathValue("type")
	if p.tasks == nil {
		return "", nil, ui.NotFound("This node has no task queue.")
	}
	all, err := p.readable(r.Context(), caller)
	if err != nil {
		return "", nil, err
	}
	i := slices.IndexFunc(all, func(s store.TaskTypeStats) bool { return s.Type == name })
	if i < 0 {
		var known []string
		for _, s := range all {
			known = append(known, s.Type)
		}
		return "", nil, ui.Unknown("type of tasks", name, known)
	}
	d := typeData{Stats: all[i]}
	for _, part := range []struct {
		state store.TaskState
		into  *[]store.QueuedTask
	}{{store.TaskReady, &d.Next}, {store.TaskRunning, &d.Taken}, {store.TaskFailed, &d.Dead}} {
		if *part.into, err = p.tasks.PeekTasks(r.Context(), store.TaskFilter{
			Type: name, State: part.state, Limit: 20,
			MaxPayload: 64 << 10,
		}); err != nil {
			return "", nil, err
		}
	}
	return name, d, nil
}
