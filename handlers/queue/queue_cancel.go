package queue

import (
	"context"
	"errors"

	"procaas/dsl/rules"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/model"
)

// CancelTasks cancels tasks that nobody has taken.
//
// The response has their number as cancelled.
//
//	id: forget
//	queue.cancel: {type: reminders, key: !$ event.payload.user}
type CancelTasks struct {
	bound

	// Type is the type of the tasks.
	Type string `yaml:"type" required:"true"`

	// Key limits it to the tasks of a key.
	Key string `yaml:"key"`

	// Unique limits it to the task with that unique name.
	Unique string `yaml:"unique"`
}

// Handle implements [engine.Handler].
func (h *CancelTasks) Handle(ctx context.Context, _ *engine.Call) (model.Result, error) {
	store, err := h.tasks()
	if err != nil {
		return model.Result{}, model.Permanent(err)
	}
	if h.Key == "" && h.Unique == "" {
		return model.Result{}, model.Permanent(errors.New("want a key or a unique name that is not empty: all tasks of a type are " +
			"cancelled " +
			"by operators only"))
	}
	n, err := store.Queue.CancelTasks(ctx, Filter{Type: h.Type, Key: h.Key, Unique: h.Unique})
	return model.Result{Response: map[string]any{"cancelled": n}}, err
}

// CheckBody checks what the tags of [CancelTasks] cannot express.
func (*CancelTasks) CheckBody(b *tree.Body) {
	if b.Field("key") == nil && b.Field("unique") == nil {
		b.Errorf(b.Span, rules.Body, "add key: or unique:", "queue.cancel does not say which tasks")
	}
}
