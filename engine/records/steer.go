package records

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"procaas/engine/checkpoint"
	"procaas/engine/core"
	"procaas/engine/definitions"
	"procaas/engine/model"
	"procaas/engine/store"
)

// This file has operators' changes of one or many runs.

// Retry continues a run that has failed or waits for an operator, from the handler that caused it. The error is a [*TaskRunError] if
// the run has failed as an attempt of a task.
func (o *Runs) Retry(ctx context.Context, id string, by store.Actor) (checkpoint.RunView, error) {
	r, err := o.Store.Runs.Run(ctx, id)
	if err == nil {
		err = retryable(&r)
	}
	if err != nil {
		return checkpoint.RunView{}, fmt.Errorf("retry run %s: %w", id, err)
	}
	return o.RetryAttempt(ctx, id, by)
}

// A TaskRunError reports a failed run that only its task may retry. Otherwise the work would be done twice: by the run, and by the
// task, which counts as failed.
type TaskRunError struct {
	Pipeline string
	Task     int64
}

// Error implements error.
func (e *TaskRunError) Error() string {
	return fmt.Sprintf("the run is an attempt of task %d of %s, so retry the task: procaas queue retry %[2]s --id %[1]d", e.Task, e.Pipeline)
}

// retryable returns a [*TaskRunError] for a failed run of a task.
func retryable(r *store.RunRecord) error {
	if pipeline, task, ok := r.Event.Task(); ok && r.Status == model.Failed {
		return &TaskRunError{Pipeline: pipeline, Task: task}
	}
	return nil
}

// WakeRun lets a parked run look at what it waits for.
func (o *Runs) WakeRun(ctx context.Context, id string) error { return o.Store.Runs.WakeRun(ctx, id) }

// supersededAtOnce is how many runs Supersede ends at once.
const supersededAtOnce = 16

// Supersede ends the failed runs of tasks whose work other tasks do again. They keep what they have done.
func (o *Runs) Supersede(ctx context.Context, pipeline string, retried []store.TaskRetry, by store.Actor) error {
	var all errgroup.Group
	all.SetLimit(supersededAtOnce)
	for _, r := range retried {
		all.Go(func() error {
			by := store.Actor{Name: by.Name, Reason: model.SupersededBy(r.As, by.Reason)}
			for n := 1; ; n++ {
				id, err := o.Store.Inbox.EventRun(ctx, model.TaskSource(pipeline), model.TaskEventID(r.Task, n))
				if err != nil || id == "" {
					return err
				}
				status, err := o.RunStatus(ctx, id)
				if err == nil && status == model.Failed {
					err = o.abandon(ctx, id, by)
				}
				if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrConflict) {
					return fmt.Errorf("run %s: %w", id, err)
				}
			}
		})
	}
	err := all.Wait()
	o.Node.Nudge() // the next events of their keys may be ready now
	return err
}

// RetryAttempt is Retry for the queue, which makes the next attempt of a task.
func (o *Runs) RetryAttempt(ctx context.Context, id string, by store.Actor) (checkpoint.RunView, error) {
	if err := o.Store.Runs.Retry(ctx, id, by); err != nil {
		return checkpoint.RunView{}, fmt.Errorf("retry run %s: %w", id, err)
	}
	o.Node.Nudge()
	return o.RunByID(ctx, id)
}

// Cancel ends a run. If its pipeline has compensations or finally, the run waits for its calls in flight,
// undoes what it has done in reverse order, and then ends. The error is [store.ErrUndoing] if it is
// doing so already. Other runs end at once, or after their calls in flight were interrupted.
func (o *Runs) Cancel(ctx context.Context, id string, by store.Actor) (checkpoint.RunView, error) {
	return o.cancelled(ctx, id, o.cancel(ctx, id, by))
}

// CancelRun is Cancel without reading the run.
func (o *Runs) CancelRun(ctx context.Context, id string, by store.Actor) error {
	if err := o.cancel(ctx, id, by); err != nil {
		return fmt.Errorf("cancel run %s: %w", id, err)
	}
	o.Node.Nudge() // the next event of the key may be ready now
	return nil
}

// Abandon ends a run as it is. It undoes nothing, and stops a compensation.
func (o *Runs) Abandon(ctx context.Context, id string, by store.Actor) (checkpoint.RunView, error) {
	return o.cancelled(ctx, id, o.abandon(ctx, id, by))
}

func (o *Runs) cancelled(ctx context.Context, id string, err error) (checkpoint.RunView, error) {
	if err != nil {
		return checkpoint.RunView{}, fmt.Errorf("cancel run %s: %w", id, err)
	}
	o.Node.Nudge() // the next event of the key may be ready now
	return o.RunByID(ctx, id)
}

func (o *Runs) abandon(ctx context.Context, id string, by store.Actor) error {
	err := o.end(ctx, id, by, o.Store.Runs.Cancel)
	if err == nil {
		o.Node.Cancel(id)
	}
	return err
}

func (o *Runs) cancel(ctx context.Context, id string, by store.Actor) error {
	r, err := o.Store.Runs.Run(ctx, id)
	if err != nil {
		return err
	}
	if r.Bundle == "" || r.Status.Ended() {
		return o.abandon(ctx, id, by)
	}
	if View(r).Cancelling != "" {
		return store.ErrUndoing
	}
	def, err := o.Library.Get(ctx, r.Bundle)
	if err != nil && !errors.Is(err, definitions.ErrUnusable) {
		return err
	}
	if err != nil || def.ByID[r.Pipeline] == nil || !def.ByID[r.Pipeline].EndsOrderly() {
		return o.abandon(ctx, id, by) // there is nothing to undo, or it is impossible
	}
	err = o.end(ctx, id, by, o.Store.Runs.Undo)
	if err == nil {
		o.Node.Move(id, model.UndoOrder(by.Reason))
	}
	return err
}

// A RunsDone is the result of changing a page of runs.
type RunsDone struct {
	Preview bool     `json:"preview"` // false
	Done    int      `json:"done" doc:"The number of runs that were changed."`
	Runs    []string `json:"runs"` // their ids
	MovedOn int      `json:"moved_on" doc:"The number of runs that could not be changed, for example because they changed meanwhile."`
	OfTasks int      `json:"of_tasks" doc:"The number of failed runs that are attempts of tasks. Only the queue retries these."`
	Next    *string  `json:"next" doc:"The cursor of the rest; null at the end."`
}

// RetryAll retries a page of the runs that a filter chooses, oldest first. By default these are the
// failed ones. Paging by cursor reaches each run once, even one that fails again. It may start
// over: a run that continues already is left alone.
func (o *Runs) RetryAll(ctx context.Context, f store.RunFilter, by store.Actor) (RunsDone, error) {
	f.Status, f.Oldest = cmp.Or(f.Status, model.Failed), true
	return o.each(ctx, f, func(ctx context.Context, r *store.RunRecord) error {
		if err := retryable(r); err != nil {
			return err
		}
		return o.Store.Runs.Retry(ctx, r.ID, by)
	})
}

// CancelAll cancels the runs of a page, newest first, because the end of a run lets the next one of
// its key begin.
func (o *Runs) CancelAll(ctx context.Context, f store.RunFilter, by store.Actor) (RunsDone, error) {
	f.Live, f.Oldest = true, false
	return o.each(ctx, f, func(ctx context.Context, r *store.RunRecord) error { return o.cancel(ctx, r.ID, by) })
}

// AbandonAll ends the runs of a page as they are, in the order of CancelAll. See [Runs.Abandon].
func (o *Runs) AbandonAll(ctx context.Context, f store.RunFilter, by store.Actor) (RunsDone, error) {
	f.Live, f.Oldest = true, false
	return o.each(ctx, f, func(ctx context.Context, r *store.RunRecord) error { return o.abandon(ctx, r.ID, by) })
}

// An OffError refuses to make up for a handler that is still off, because the runs would leave it
// out again.
type OffError struct {
	Path   string
	Reason string // for people
}

// Error implements error.
func (e *OffError) Error() string {
	return fmt.Sprintf("%s is still left out (%s), so the runs would leave it out again; nothing was changed. "+
		"Bring it back first with procaas switch on", e.Path, e.Reason)
}

// MakeUpAll lets the runs of a page make up for a handler that they left out, oldest first, with
// the key of the missing call. The filter names the handler. The error is an [*OffError] if the
// handler is still off.
func (o *Runs) MakeUpAll(ctx context.Context, f store.RunFilter, by store.Actor) (RunsDone, error) {
	path := f.LeftOut
	if reason, off := o.IsOff(path); off {
		return RunsDone{}, &OffError{Path: path, Reason: reason}
	}
	f.Oldest = true
	return o.each(ctx, f, func(ctx context.Context, r *store.RunRecord) error { return o.makeUp(ctx, r.ID, path, by) })
}

// makeUp lets a run make up for a handler.
func (o *Runs) makeUp(ctx context.Context, id, path string, by store.Actor) error {
	r, err := o.Store.Runs.Run(ctx, id)
	if err != nil {
		return err
	}
	if r.Status != model.Succeeded {
		return store.ErrConflict
	}
	def, err := o.Library.Get(ctx, r.Bundle)
	if errors.Is(err, definitions.ErrUnusable) || err == nil && def.ByID[r.Pipeline] == nil {
		return store.ErrConflict
	}
	if err != nil {
		return err
	}
	checkpoint, err := core.MakeUp(def.ByID[r.Pipeline], r.Checkpoint, r.Generation, path)
	switch {
	case errors.Is(err, core.ErrNotLeftOut):
		return fmt.Errorf("%w: %w", err, store.ErrConflict)
	case err != nil:
		return err
	}
	return o.Store.Runs.MakeUp(ctx, store.MakeUp{
		Run: id, Path: path, Version: r.Version, Checkpoint: checkpoint,
		Priority: r.Event.Priority,
	},
		by)
}

// each calls do for the runs of a page, and counts what came of it. A page may end early, as [Runs.walk] says.
func (o *Runs) each(ctx context.Context, f store.RunFilter, do func(context.Context, *store.RunRecord) error) (RunsDone, error) {
	out := RunsDone{Runs: []string{}}
	next, err := o.walk(ctx, f, func(r *store.RunRecord) error {
		err := do(ctx, r)
		_, ofTask := errors.AsType[*TaskRunError](err)
		switch {
		case err == nil:
			out.Done, out.Runs = out.Done+1, append(out.Runs, r.ID)
		case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrUndoing),
			errors.Is(err, core.ErrNoMakeUp):
			out.MovedOn++
		case ofTask:
			out.OfTasks++
		default:
			return err
		}
		return nil
	})
	out.Next = next
	o.Node.Nudge()
	return out, err
}

const (
	walkStep = 50              // runs that a walk reads at once
	walkTime = 2 * time.Second // after it, a walk begins with no further run; far below the time of a request
)

// walk calls do for the runs that a filter chooses, up to its limit. It stops early after walkTime, or at an error. It returns the
// cursor of the rest, nil at the end. It returns an error only if it comes before the first run is done. Otherwise the caller learns
// what was done, and the next call from the cursor meets the error, if it lasts.
func (o *Runs) walk(ctx context.Context, f store.RunFilter, do func(*store.RunRecord) error) (next *string, err error) {
	began, done := time.Now(), 0
	for left := max(f.Limit, 1); ; {
		f.Limit = min(left, walkStep)
		found, after, err := o.list(ctx, f)
		for i := 0; err == nil && i < len(found); i++ {
			if done > 0 && time.Since(began) >= walkTime {
				return &f.Cursor, nil
			}
			if err = ctx.Err(); err == nil {
				err = do(&found[i])
			}
			if err != nil {
				err = fmt.Errorf("run %s: %w", found[i].ID, err)
				break
			}
			done, f.Cursor = done+1, found[i].Place
		}
		switch {
		case err != nil && done == 0:
			return nil, err
		case err != nil:
			return &f.Cursor, nil
		case after == "":
			return nil, nil
		}
		f.Cursor, left = after, left-len(found)
		if left <= 0 || time.Since(began) >= walkTime {
			return &after, nil
		}
	}
}
