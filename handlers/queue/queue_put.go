package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/queue/taskrun"
)

// PutTask puts a task into a queue, for the pipeline of that name or for workers of another
// program.
//
// The queue section of a pipeline also applies to these tasks. A call that repeats after a crash
// finds its task by the unique name. The response has the id of the task and the outcome: added,
// kept, merged, replaced or follows.
//
//	id: thumbnails
//	queue.put:
//	  type: thumbnails
//	  payload: {file: !$ event.payload.file}
//	  delay: 10s
//	  delay-tolerance: 5m
type PutTask struct {
	bound

	// Type is the type of the task: a pipeline, or any other name that workers take.
	Type string `yaml:"type" required:"true"`

	// Payload is the content of the task.
	Payload any `yaml:"payload"`

	// Key is the entity that the task is about.
	Key string `yaml:"key"`

	// Priority orders tasks before their time does. Higher priorities go first.
	Priority int `yaml:"priority" min:"-1000000" max:"1000000"`

	// Delay is how long after this handler the task is due.
	Delay time.Duration `yaml:"delay" min:"0s" max:"87600h"`

	// At is when the task is due, in RFC 3339. Its default is now.
	At time.Time `yaml:"at"`

	// DelayTolerance is how long the task may wait beyond its time without harm.
	DelayTolerance time.Duration `yaml:"delay-tolerance" min:"0s" max:"87600h"`

	// Timeout is the longest time of one attempt.
	Timeout time.Duration `yaml:"timeout" min:"0s" max:"576h"`

	// Unique names the task among the unfinished tasks of its type. Without it, and without one in
	// the pipeline, each call adds a task.
	Unique string `yaml:"unique"`

	// OnDuplicate decides about the task if another one has the same name. Its default is that of the pipeline, or keep.
	OnDuplicate string `yaml:"on-duplicate" enum:"keep,merge,replace,rerun"`
}

// Handle implements [engine.Handler].
func (h *PutTask) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	db, err := h.tasks()
	if err != nil {
		return model.Result{}, model.Permanent(err)
	}
	payload, err := datum.FormatKinds(h.Payload)
	if err != nil {
		return model.Result{}, model.Permanent(err)
	}
	spec := Spec{
		Type: h.Type, Payload: payload, Key: h.Key, Priority: h.Priority, Delay: h.Delay, At: h.At, Tolerance: h.DelayTolerance,
		Timeout: h.Timeout, Unique: h.Unique, OnDuplicate: store.Duplicate(h.OnDuplicate),
	}
	if p := pipelineOf(c, h.Type); p != nil {
		if err := taskrun.FillTask(p, &spec); err != nil {
			return model.Result{}, model.Permanent(err)
		}
	}
	if spec.Unique == "" {
		spec.Unique = "call " + c.IdempotencyKey
	}
	out, err := db.Queue.PutTasks(ctx, []Spec{spec})
	if err == nil {
		err = out[0].Err
	}
	if errors.Is(err, store.ErrTask) {
		err = model.Permanent(err)
	}
	if err != nil {
		return model.Result{}, err
	}
	return model.Result{Response: map[string]any{"id": fmt.Sprint(out[0].ID), "outcome": string(out[0].Outcome)}}, nil
}

func pipelineOf(c *engine.Call, id string) *tree.Pipeline {
	if c.Bundle == nil {
		return nil
	}
	return c.Bundle.Pipeline(id)
}

// Emission returns the task that a body puts.
func (*PutTask) Emission(body *expr.Value) tree.Emission {
	return tree.Emission{Type: body.Get("type"), Payload: body.Get("payload"), Task: true, Named: body.Get("unique") != nil}
}

// Takes reports that a call takes no time.
func (*PutTask) Takes(*tree.Body) tree.Longest { return tree.Longest{} }

// CheckBody checks what the tags of [PutTask] cannot express.
func (*PutTask) CheckBody(b *tree.Body) {
	if b.Field("at") != nil && b.Field("delay") != nil {
		b.Errorf(b.Field("delay").Span, rules.Body, "keep one of them", "at and delay exclude each other")
	}
}
