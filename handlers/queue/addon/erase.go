package addon

import (
	"context"
	"slices"

	"procaas/dsl/tree"
	"procaas/engine/model"
	"procaas/engine/store"
)

// erases removes the tasks of a key: those of the pipelines of its flow, and those that these pipelines put for other workers.
func erases(tasks store.TaskEraser, bundle func() *tree.Bundle) store.EraseFunc {
	return func(ctx context.Context, of store.Erasing) (out store.Erased, err error) {
		types := typesOf(bundle(), of.Pipelines)
		var d store.TaskData
		if of.Preview {
			d, err = tasks.KeyTasks(ctx, types, of.Key)
			out.Unfinished = d.Held + d.Waiting
			out.Counts = counts(d.Dead, d.Ended, 0)
			return out, err
		}
		if d, err = tasks.EraseTasks(ctx, types, of.Key, of.Cancel); err != nil {
			return store.Erased{Counts: counts(d.Dead, d.Ended, d.Waiting)}, err
		}
		left, err := tasks.KeyTasks(ctx, types, of.Key)
		return store.Erased{Unfinished: left.Held + left.Waiting, Counts: counts(d.Dead, d.Ended, d.Waiting)}, err
	}
}

func counts(dead, ended, waiting int) map[string]int {
	return map[string]int{"dead_letters": dead, "ended_tasks": ended, "waiting_tasks": waiting}
}

// typesOf returns the types of tasks that belong to some pipelines.
func typesOf(b *tree.Bundle, pipelines []string) []string {
	types := slices.Clone(pipelines)
	for path, h := range b.Index.Handlers {
		if h.Type != "queue.put" && h.Type != "queue.task" || h.Body == nil || !slices.Contains(pipelines, model.PipelineOf(path)) {
			continue
		}
		if name, fixed := h.Body.Get("type").Text(); fixed {
			types = append(types, name)
		}
	}
	slices.Sort(types)
	return slices.Compact(types)
}
