package sealed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"procaas/engine/store"
)

// payloadAt is the place of the payload of a task. Tasks with one unique key share it, because their payloads are merged.
func payloadAt(key, unique string) string {
	if unique != "" {
		return place("unique", unique)
	}
	return place("task", key)
}

func failureAt(task int64) string { return place("failure", strconv.FormatInt(task, 10)) }

func resultAt(task int64) string { return place("result", strconv.FormatInt(task, 10)) }

// taskQueue seals the payloads of tasks.
type taskQueue struct {
	store.TaskQueue
	v *Vault
}

// PutTasks implements [store.TaskQueue].
func (q taskQueue) PutTasks(ctx context.Context, tasks []store.TaskSpec) ([]store.TaskPut, error) {
	k, err := q.v.now(ctx)
	if err != nil {
		return nil, err
	}
	sealed := slices.Clone(tasks)
	for i := range sealed {
		s := &sealed[i]
		at := payloadAt(s.Key, s.Unique)
		if s.Merge != nil {
			s.Merge = q.v.merge(ctx, k, at, s.Merge)
		}
		if s.Check() != nil {
			continue // the store refuses it
		}
		if s.Payload, err = k.json(s.Payload, at); err != nil {
			return nil, err
		}
	}
	out, err := q.TaskQueue.PutTasks(ctx, sealed)
	for i := range out {
		if out[i].Err != nil && len(sealed[i].Payload) > store.MaxTaskPayload && len(tasks[i].Payload) <= store.MaxTaskPayload {
			out[i].Err = fmt.Errorf("%w: want a payload of at most %d bytes in an encrypted store, have %d: keep large data elsewhere and put "+
				"its address here", store.ErrTask, store.MaxTaskPayload*3/4-100, len(tasks[i].Payload))
		}
	}
	return out, err
}

// taskEnqueued seals the payloads of tasks that programs have enqueued.
type taskEnqueued struct {
	store.TaskEnqueued
	v *Vault
}

// TakeEnqueued implements [store.TaskEnqueued]. Why a task is refused may have data of it, and is not kept.
func (e taskEnqueued) TakeEnqueued(ctx context.Context, limit int, ready store.ReadyTask) (int, error) {
	k, err := e.v.now(ctx)
	if err != nil {
		return 0, err
	}
	return e.TaskEnqueued.TakeEnqueued(ctx, limit, func(t *store.TaskSpec) (refused string, err error) {
		if refused, err = ready(t); err != nil {
			return "", err
		}
		if refused != "" {
			t.Unique, t.Merge = "", nil // a dead letter has no name
			if k.active != nil {
				refused = "the queue section of its pipeline refuses it; an encrypted store does not keep why"
			}
		}
		at := payloadAt(t.Key, t.Unique)
		if t.Merge != nil {
			t.Merge = e.v.merge(ctx, k, at, t.Merge)
		}
		t.Payload, err = k.json(t.Payload, at)
		return refused, err
	})
}

// merge merges payloads that the store has sealed.
func (v *Vault) merge(ctx context.Context, k *keys, at string, merge func(first, second json.RawMessage) (json.RawMessage, error),
) func(first, second json.RawMessage) (json.RawMessage, error) {
	return func(first, second json.RawMessage) (json.RawMessage, error) {
		first, err := v.openJSON(ctx, first, at)
		if err != nil {
			return nil, err
		}
		if second, err = v.openJSON(ctx, second, at); err != nil {
			return nil, err
		}
		merged, err := merge(first, second)
		if err == nil && json.Valid(merged) { // the store refuses others
			merged, err = k.json(merged, at)
		}
		return merged, err
	}
}

// CancelTasks implements [store.TaskQueue].
func (q taskQueue) CancelTasks(ctx context.Context, f store.TaskFilter) (int, error) {
	if err := searches(f.Error); err != nil {
		return 0, err
	}
	return q.TaskQueue.CancelTasks(ctx, f)
}

// openTask opens a task. The error is about its payload.
func (v *Vault) openTask(ctx context.Context, t *store.QueuedTask) (err error) {
	v.openError(ctx, &t.Error, failureAt(t.ID))
	if t.Payload, err = v.openJSON(ctx, t.Payload, payloadAt(t.Key, t.Unique)); err != nil {
		return fmt.Errorf("%w: the payload of task %d: %w", store.ErrDamaged, t.ID, err)
	}
	if t.Result, err = v.openJSON(ctx, t.Result, resultAt(t.ID)); err != nil {
		return fmt.Errorf("%w: the result of task %d: %w", store.ErrDamaged, t.ID, err)
	}
	return nil
}

// taskWork opens the tasks that workers get, and seals the errors that they report.
type taskWork struct {
	store.TaskWork
	v *Vault
}

// ClaimTasks implements [store.TaskWork].
func (w taskWork) ClaimTasks(ctx context.Context, c store.TaskClaim) ([]store.QueuedTask, error) {
	all, err := w.TaskWork.ClaimTasks(ctx, c)
	if err != nil {
		return nil, err
	}
	return w.open(ctx, all)
}

// open opens claimed tasks. A damaged one becomes a dead letter that says so, since no worker can do it.
func (w taskWork) open(ctx context.Context, all []store.QueuedTask) ([]store.QueuedTask, error) {
	sound := all[:0]
	var dead store.TaskReport
	for _, t := range all {
		err := w.v.openTask(ctx, &t)
		if errors.Is(err, errNoKey) {
			return nil, err
		}
		if err != nil {
			dead.Failed = append(dead.Failed, store.TaskFailure{TaskRef: t.Ref(), Error: err.Error()})
			continue
		}
		sound = append(sound, t)
	}
	if dead.Len() > 0 {
		if _, err := w.TaskWork.ReportTasks(ctx, dead); err != nil {
			return nil, err
		}
	}
	return sound, nil
}

// longestError is how much of an error fits when it is sealed, in bytes. See [store.CutTaskText].
const longestError = 1400

// report seals the errors and results of a report.
func (w taskWork) report(ctx context.Context, r store.TaskReport) (store.TaskReport, error) {
	k, err := w.v.now(ctx)
	if err != nil || k.active == nil {
		return r, err
	}
	r.Failed = slices.Clone(r.Failed)
	for i := range r.Failed {
		f := &r.Failed[i]
		text := store.CutTaskText(f.Error[:min(len(f.Error), longestError)])
		if f.Error, err = k.text(text, failureAt(f.ID)); err != nil {
			return r, err
		}
	}
	r.Results = maps.Clone(r.Results)
	for ref, result := range r.Results {
		if r.Results[ref], err = k.json(result, resultAt(ref.ID)); err != nil {
			return r, err
		}
	}
	return r, nil
}

// ReportTasks implements [store.TaskWork].
func (w taskWork) ReportTasks(ctx context.Context, r store.TaskReport) ([]store.TaskRef, error) {
	r, err := w.report(ctx, r)
	if err != nil {
		return nil, err
	}
	return w.TaskWork.ReportTasks(ctx, r)
}

// ExchangeTasks implements [store.TaskWork].
func (w taskWork) ExchangeTasks(ctx context.Context, r store.TaskReport, c store.TaskClaim) ([]store.QueuedTask, []store.TaskRef, error) {
	r, err := w.report(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	all, lost, err := w.TaskWork.ExchangeTasks(ctx, r, c)
	if err == nil {
		all, err = w.open(ctx, all)
	}
	return all, lost, err
}

// taskAdmin shows tasks to operators.
type taskAdmin struct {
	store.TaskAdmin
	v *Vault
}

// PeekTasks implements [store.TaskAdmin].
func (a taskAdmin) PeekTasks(ctx context.Context, f store.TaskFilter) ([]store.QueuedTask, error) {
	if err := searches(f.Error); err != nil {
		return nil, err
	}
	plain := f
	if f.MaxPayload > 0 {
		f.MaxPayload = encoding.EncodedLen(f.MaxPayload) + 100 // what sealing adds
	}
	all, err := a.TaskAdmin.PeekTasks(ctx, f)
	for i := range all {
		if err := a.v.openTask(ctx, &all[i]); errors.Is(err, errNoKey) {
			return nil, err
		} else if err != nil {
			all[i].Error = err.Error()
		}
		plain.Trim(&all[i])
	}
	return all, err
}

// RetryTasks implements [store.TaskAdmin].
func (a taskAdmin) RetryTasks(ctx context.Context, f store.TaskFilter) ([]store.TaskRetry, error) {
	if err := searches(f.Error); err != nil {
		return nil, err
	}
	return a.TaskAdmin.RetryTasks(ctx, f)
}

// MoveTasks implements [store.TaskAdmin].
func (a taskAdmin) MoveTasks(ctx context.Context, f store.TaskFilter, to string) (int, error) {
	if err := searches(f.Error); err != nil {
		return 0, err
	}
	return a.TaskAdmin.MoveTasks(ctx, f, to)
}
