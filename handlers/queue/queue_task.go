package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// DoTask puts a task into a queue, and waits until a worker has done it. So code in any language is a step of a run.
//
// The response is the result that the worker has completed the task with. Describe it in response-schema. The queue retries the task by
// the policy of its type. If the task fails for good, so does the handler, with the error of the worker and the class task. If no result
// arrives within the time of within, the class is timeout, and a worker that has the task learns with its next heartbeat that it has lost
// it. So does the worker when somebody cancels the run. While the run waits, it needs only its row in the store.
//
// The type must not be that of a pipeline with stages, since its runs return no results. Call such a pipeline instead.
//
//	id: score
//	queue.task: {type: scores, payload: {customer: !$ event.payload.customer}, within: 10m}
//	response-schema: {type: object, required: [score], properties: {score: {type: number}}}
type DoTask struct {
	bound

	// Type is the type of the task, which workers take.
	Type string `yaml:"type" required:"true"`

	// Payload is the content of the task.
	Payload any `yaml:"payload"`

	// Key is the entity that the task is about.
	Key string `yaml:"key"`

	// Priority orders tasks before their time does. Higher priorities go first.
	Priority int `yaml:"priority" min:"-1000000" max:"1000000"`

	// Timeout is the longest time of one attempt of a worker.
	Timeout time.Duration `yaml:"timeout" min:"0s" max:"576h"`

	// Within is how long to wait for the result, with all attempts of workers.
	Within time.Duration `yaml:"within" default:"24h" min:"1s" max:"8760h"`
}

// ClassTask is the class of the error of a task that has failed for good.
const ClassTask = "task"

// These bound the time between two looks at a task whose end wakes nobody. It grows with the age of the task.
const (
	lookLeast = 500 * time.Millisecond
	lookMost  = time.Hour
)

// Handle implements [engine.Handler]. The first call puts the task. Later ones look whether it has ended.
func (h *DoTask) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	db, err := h.tasks()
	if err != nil {
		return model.Result{}, model.Permanent(err)
	}
	var w waited
	if c.Again == "" {
		w.put = c.Now
		if w.id, err = h.put(ctx, c, db); err != nil {
			return model.Result{}, err
		}
		return w.again(c.Now, h.Within), nil
	}
	if w, err = parseWaited(c.Again); err != nil {
		return model.Result{}, model.Permanent(err)
	}
	t, err := findTask(ctx, db, h.Type, w.id)
	switch {
	case err != nil:
		return model.Result{}, err
	case t == nil:
		return model.Result{}, failedTask("task %d of the type %s is gone: the store no longer keeps its result", w.id, h.Type)
	case t.State == store.TaskCompleted:
		return resultOf(t)
	case t.State == store.TaskFailed:
		return model.Result{}, failedTask("task %d of the type %s failed: %s", t.ID, t.Type, t.Error)
	case t.State == store.TaskCancelled:
		return model.Result{}, failedTask("task %d of the type %s was cancelled", t.ID, t.Type)
	case c.Now.Before(w.put.Add(h.Within)):
		return w.again(c.Now, h.Within), nil
	}
	if err := Abandon(ctx, db, t); err != nil {
		return model.Result{}, err
	}
	return model.Result{}, model.Permanent(model.WithClass("timeout", fmt.Errorf("no result of task %d of the type %s within %v", t.ID, t.Type, h.Within)))
}

// put puts the task, and returns its id. A call that repeats after a crash finds it by its name, unless it has ended meanwhile: then a
// second task is put, and only its result counts.
func (h *DoTask) put(ctx context.Context, c *engine.Call, db *store.TaskStore) (int64, error) {
	payload, err := datum.FormatKinds(h.Payload)
	if err != nil {
		return 0, model.Permanent(err)
	}
	spec := Spec{
		Type: h.Type, Payload: payload, Key: h.Key, Priority: h.Priority, Timeout: h.Timeout,
		Unique: uniqueOfRun + c.Run + " " + c.IdempotencyKey, OnDuplicate: store.DuplicateKeep,
	}
	if p := pipelineOf(c, h.Type); p != nil {
		if len(p.Stages) > 0 {
			return 0, model.Permanent(fmt.Errorf("tasks of the type %s are done by the pipeline, which returns no result; call it instead", h.Type))
		}
		if err := taskrun.FillTask(p, &spec); err != nil {
			return 0, model.Permanent(err)
		}
	}
	out, err := db.Queue.PutTasks(ctx, []Spec{spec})
	if err == nil {
		err = out[0].Err
	}
	if errors.Is(err, store.ErrTask) {
		err = model.Permanent(err)
	}
	if err != nil {
		return 0, err
	}
	return out[0].ID, nil
}

func failedTask(format string, args ...any) error {
	return model.Permanent(model.WithClass(ClassTask, fmt.Errorf(format, args...)))
}

// resultOf returns the result of a completed task. Without one it is null.
func resultOf(t *Task) (model.Result, error) {
	if len(t.Result) == 0 {
		return model.Result{}, nil
	}
	v, err := datum.ParseJSON(t.Result)
	if err != nil {
		return model.Result{}, failedTask("the result of task %d of the type %s: %w", t.ID, t.Type, err)
	}
	return model.Result{Response: v}, nil
}

// A waited is what a run keeps of the task that it waits for.
type waited struct {
	id  int64
	put time.Time
}

func parseWaited(text string) (w waited, err error) {
	var ms int64
	if _, err = fmt.Sscanf(text, "%d %d", &w.id, &ms); err != nil {
		return w, fmt.Errorf("the run waits for %q, which is no task: %w", text, err)
	}
	w.put = time.UnixMilli(ms)
	return w, nil
}

// again asks for a call when the task has ended, and a look before that, at most when it is twice as old.
func (w waited) again(now time.Time, within time.Duration) model.Result {
	look := now.Add(min(max(now.Sub(w.put), lookLeast), lookMost))
	if end := w.put.Add(within); look.After(end) {
		look = end
	}
	return model.Result{Until: look, Again: fmt.Sprintf("%d %d", w.id, w.put.UnixMilli())}
}

// findTask finds a task in any state, or returns nil.
func findTask(ctx context.Context, db *store.TaskStore, taskType string, id int64) (*Task, error) {
	for _, state := range []store.TaskState{"", store.TaskCompleted, store.TaskFailed, store.TaskCancelled, ""} {
		// Unfinished ones are looked for once more, because a task may have moved there meanwhile.
		found, err := db.Admin.PeekTasks(ctx, Filter{Type: taskType, IDs: []int64{id}, State: state, Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			return &found[0], nil
		}
	}
	return nil, nil
}

// uniqueOfRun begins the unique keys of tasks that runs wait for. The id of the run follows.
const uniqueOfRun = "run "

// RunOf returns the run that waits for a task, or nothing.
func RunOf(t *Task) string {
	rest, ok := strings.CutPrefix(t.Unique, uniqueOfRun)
	run, _, named := strings.Cut(rest, " ")
	if !ok || !named {
		return ""
	}
	return run
}

// abandonPause keeps other workers from a task between the moment when its worker loses it and its end.
const abandonPause = time.Minute

// Abandon ends a task that nobody waits for. A worker that has it learns with its next heartbeat that it has lost it.
func Abandon(ctx context.Context, db *store.TaskStore, t *Task) error {
	if !t.Until.IsZero() {
		back := Report{Snoozed: []Snooze{{TaskRef: t.Ref(), Delay: abandonPause}}}
		if lost, err := db.Work.ReportTasks(ctx, back); err != nil || len(lost) > 0 {
			return err // it has ended, or another worker has it and loses it with a heartbeat
		}
	}
	_, err := db.Queue.CancelTasks(ctx, Filter{Type: t.Type, IDs: []int64{t.ID}})
	return err
}

// Emission returns the task that a body puts.
func (*DoTask) Emission(body *expr.Value) tree.Emission {
	return tree.Emission{Type: body.Get("type"), Payload: body.Get("payload"), Task: true, Named: true}
}

// Takes returns how long a run waits, if that is literal.
func (*DoTask) Takes(b *tree.Body) tree.Longest {
	if b.Field("within") == nil {
		return tree.Longest{Time: 24 * time.Hour}
	}
	d, ok := b.Duration("within")
	return tree.Longest{Time: d, Endless: !ok}
}

// Waits says that within counts all attempts of workers.
func (*DoTask) Waits() {}

// CheckBody reports a type whose tasks a pipeline does.
func (*DoTask) CheckBody(b *tree.Body) {
	f := b.Field("type")
	if f == nil {
		return
	}
	name, fixed := f.Text()
	if p := b.Bundle.Pipeline(name); fixed && p != nil && len(p.Stages) > 0 {
		b.Errorf(f.Span, rules.Body, "call "+name, "tasks of the type %s are done by a pipeline, which returns no result", name)
	}
}
