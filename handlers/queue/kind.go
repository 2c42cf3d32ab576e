package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/queue/taskrun"
)

// A Kind is a type of tasks whose payloads have a Go type. It describes all of its tasks, for
// programs that put them and for workers.
type Kind[T any] struct {
	// Name is the type of the tasks.
	Name string

	// Priority, Tolerance and Timeout are those of its tasks; see [Spec]. A Timeout of 0 means a
	// minute.
	Priority  int
	Tolerance time.Duration
	Timeout   time.Duration

	// Retry is the retry policy for failed tasks. Nil means [taskrun.DefaultTaskPolicy].
	Retry *taskrun.TaskPolicy

	// Running bounds how many tasks a worker runs at once. 0 means 16.
	Running int

	// MaxWait is how long a ready task may wait beyond its Tolerance. After that it gets the
	// priority of the first task in the queue, and goes before all tasks that are less late. 0
	// means no bound: tasks of low priority may wait forever. The worker checks this every eighth
	// of MaxWait, between a second and a minute.
	MaxWait time.Duration

	// MaxTaken bounds how many tasks are taken in the whole cluster, and MaxPerKey how many of one
	// key. 0 means no bound.
	MaxTaken, MaxPerKey int
}

// Task makes a task that can be put. The error says why the payload cannot be encoded as JSON.
func (k *Kind[T]) Task(payload T) (Spec, error) {
	data, err := json.Marshal(payload)
	if err != nil {
		return Spec{}, fmt.Errorf("%w: payload of %s: %w", store.ErrTask, k.Name, err)
	}
	return Spec{
		Type: k.Name, Payload: data, Priority: k.Priority, Tolerance: k.Tolerance, Timeout: k.Timeout,
	}, nil
}

// Enqueue stores tasks in a transaction of the caller: they exist when it commits. With a nil tx,
// they are stored at once. The error joins the errors of single tasks. After an error the caller
// should roll its transaction back, so that none is stored.
func (s *Store) Enqueue(ctx context.Context, tx pgx.Tx, tasks ...Spec) ([]Put, error) {
	var (
		out []Put
		err error
	)
	if tx == nil {
		out, err = s.PutTasks(ctx, tasks)
	} else {
		out, err = s.PutTx(ctx, tx, tasks)
	}
	for i := range out {
		if out[i].Err != nil {
			err = errors.Join(err, fmt.Errorf("task %d, %s: %w", i, tasks[i].Type, out[i].Err))
		}
	}
	return out, err
}

// A Job is one attempt of a task.
type Job[T any] struct {
	Task
	Payload T
}

// Register says how a worker does tasks of a kind. Call it before [Worker.Run]. It panics if the
// worker has the kind already.
//
// A nil error completes the task. [model.Permanent] fails it for good. [model.After] says when to
// retry. [PutOff] returns it as if nobody had tried. Any other error is retried as Retry says. A
// panic is an error. The context ends if the attempt times out, if another worker may have taken
// the task, or if a worker that stops has waited long enough.
func Register[T any](w *Worker, k Kind[T], do func(context.Context, Job[T]) error) {
	policy := taskrun.DefaultTaskPolicy()
	if k.Retry != nil {
		policy = *k.Retry
	}
	w.register(&line{
		want:    Want{Type: k.Name, MaxTaken: k.MaxTaken, MaxPerKey: k.MaxPerKey},
		running: max(k.Running, 0), timeout: k.Timeout, policy: policy, maxWait: k.MaxWait,
		do: func(ctx context.Context, t *Task) error {
			job := Job[T]{Task: *t}
			if err := json.Unmarshal(t.Payload, &job.Payload); err != nil {
				return model.Permanent(fmt.Errorf("payload is no %T: %w", job.Payload, err))
			}
			return do(ctx, job)
		},
	})
}

// PutOff is the error of an attempt that should be made later, and does not count.
func PutOff(d time.Duration) error { return &putOff{d} }

type putOff struct{ delay time.Duration }

func (s *putOff) Error() string { return "task is put off for " + s.delay.String() }

// ErrLost is the context's cause if another worker may have taken the task, because this one did
// not report in time.
var ErrLost = errors.New("the task is lost: its worker was not heard of in time")

// errStops is the context's cause if the worker stops and has waited long enough.
var errStops = errors.New("the worker stops")
