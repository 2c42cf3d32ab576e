package queue

import (
	"context"
	"fmt"
	"time"

	"procaas/dsl/datum"
	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers/queue/taskrun"
)

// TakeTasks takes tasks of a type, and completes earlier ones.
//
// The tasks belong to the run until the lease ends. After that, other workers can take those that are not done. The
// response has tasks: a list with id, type, key, payload, attempt and receipt of each. Another queue.take with done
// completes them.
//
//	id: take
//	queue.take: {type: letters, limit: 50, lease: 5m}
type TakeTasks struct {
	bound

	// Type is the type of the tasks.
	Type string `yaml:"type" required:"true"`

	// Limit is the highest number of tasks to take. 0 takes none, and only completes those in done.
	Limit int `yaml:"limit" default:"1" min:"0" max:"1000"`

	// Lease is how long the tasks belong to the run.
	Lease time.Duration `yaml:"lease" default:"1m" min:"1s" max:"24h"`

	// Done lists tasks to complete: the tasks of an earlier response.
	Done any `yaml:"done"`
}

// Handle implements [engine.Handler].
func (h *TakeTasks) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	store, err := h.tasks()
	if err != nil {
		return model.Result{}, model.Permanent(err)
	}
	done, err := refsOf(h.Done)
	if err != nil {
		return model.Result{}, model.Permanent(err)
	}
	claim := Claim{
		Worker: "run " + c.Run, Lease: h.Lease,
		Types: []Want{taskrun.TaskWantOf(pipelineOf(c, h.Type), Want{Type: h.Type, Limit: h.Limit})},
	}
	tasks, lost, err := store.Work.ExchangeTasks(ctx, Report{Completed: done}, claim)
	if err != nil {
		return model.Result{}, err
	}
	list := []any{}
	for _, t := range tasks {
		payload, err := datum.ParseJSON(t.Payload)
		if err != nil {
			return model.Result{}, err
		}
		list = append(list, map[string]any{
			"id": fmt.Sprint(t.ID), "type": t.Type, "key": t.Key, "payload": payload, "attempt": t.Attempt(),
			"receipt": fmt.Sprintf("%d.%d", t.ID, t.Epoch),
		})
	}
	return model.Result{Response: map[string]any{"tasks": list, "done": len(done) - len(lost), "lost": len(lost)}}, nil
}

// refsOf converts a list of tasks from a response.
func refsOf(v any) ([]Ref, error) {
	if v == nil {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("done: want a list of tasks, have %T", v)
	}
	var refs []Ref
	for i, item := range list {
		var r Ref
		task, _ := item.(map[string]any)
		receipt, _ := task["receipt"].(string)
		if n, err := fmt.Sscanf(receipt, "%d.%d", &r.ID, &r.Epoch); n != 2 || err != nil {
			return nil, fmt.Errorf("done: want tasks with the receipt that queue.take gave, have %v at %d", item, i)
		}
		refs = append(refs, r)
	}
	return refs, nil
}
