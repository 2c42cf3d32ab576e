package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/store"
)

// steeredRuns counts the changes of operators, and does something before each of them.
type steeredRuns struct {
	store.Runs

	changes int
	before  func(ctx context.Context, n int) error
}

func (s *steeredRuns) change(ctx context.Context) error {
	s.changes++
	if s.before == nil {
		return nil
	}
	return s.before(ctx, s.changes)
}

func (s *steeredRuns) Retry(ctx context.Context, id string, by store.Actor) error {
	if err := s.change(ctx); err != nil {
		return err
	}
	return s.Runs.Retry(ctx, id, by)
}

func (s *steeredRuns) Cancel(ctx context.Context, id string, by store.Actor, tell store.Tell) error {
	if err := s.change(ctx); err != nil {
		return err
	}
	return s.Runs.Cancel(ctx, id, by, tell)
}

// A call that changes many runs returns what it has done before its time is over, or before the store fails. Its cursor leads to the
// rest, so that a walk changes each run once, even one that fails again.
func TestChangesOfManyRunsTellHowFarTheyCame(t *testing.T) {
	t.Parallel()
	const runs, third = 130, 73
	type call = func(*engine.Engine, context.Context, store.RunFilter) (records.RunsDone, error)
	by := store.Actor{Name: "ann"}
	calls := map[string]call{
		"retry": func(e *engine.Engine, ctx context.Context, f store.RunFilter) (records.RunsDone, error) {
			return e.RetryAll(ctx, f, by)
		},
		"cancel": func(e *engine.Engine, ctx context.Context, f store.RunFilter) (records.RunsDone, error) {
			return e.CancelAll(ctx, f, by)
		},
		"abandon": func(e *engine.Engine, ctx context.Context, f store.RunFilter) (records.RunsDone, error) {
			return e.AbandonAll(ctx, f, by)
		},
	}
	for name, do := range calls {
		walk := func(t *testing.T, prepare func(*steeredRuns, context.CancelFunc), first func(records.RunsDone, time.Duration)) {
			bubble(t, func(t *testing.T, r *rig) {
				r.on("one", func(context.Context, *engine.Call, any) (model.Result, error) {
					return model.Result{}, model.Permanent(errors.New("no"))
				})
				steered := &steeredRuns{Runs: r.store.Runs}
				r.store.Runs = steered
				e, _ := r.start(three)
				for i := range runs {
					r.settle(e, r.submit(e, event("work", fmt.Sprint(i))), model.Failed)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				prepare(steered, cancel)
				began, times := time.Now(), map[string]int{}
				for f := (store.RunFilter{Pipeline: "work", Limit: 1000}); ; {
					done, err := do(e, ctx, f)
					if err != nil {
						t.Fatalf("after %d runs: %v", len(times), err)
					}
					if len(times) == 0 {
						first(done, time.Since(began))
					}
					for _, id := range done.Runs {
						times[id]++
					}
					if done.Next == nil {
						break
					}
					f.Cursor = *done.Next
					steered.before, ctx = nil, t.Context()
					pass(time.Second) // until the retried ones have failed again
				}
				for id, n := range times {
					if n != 1 {
						t.Errorf("run %s was changed %d times", id, n)
					}
				}
				if len(times) != runs {
					t.Errorf("want %d runs changed, have %d", runs, len(times))
				}
			})
		}
		partly := func(t *testing.T) func(records.RunsDone, time.Duration) {
			return func(d records.RunsDone, _ time.Duration) {
				if d.Done != third-1 || d.Next == nil {
					t.Errorf("want %d runs and a cursor, have %+v", third-1, d)
				}
			}
		}
		t.Run(name+" with a slow store", func(t *testing.T) {
			walk(t, func(s *steeredRuns, _ context.CancelFunc) {
				s.before = func(context.Context, int) error { time.Sleep(99 * time.Millisecond); return nil }
			}, func(d records.RunsDone, took time.Duration) {
				if d.Done != 21 || d.Next == nil || took > 3*time.Second {
					t.Errorf("want the runs of two seconds, have %+v after %s", d, took)
				}
			})
		})
		t.Run(name+" with a store that fails", func(t *testing.T) {
			walk(t, func(s *steeredRuns, _ context.CancelFunc) {
				s.before = func(_ context.Context, n int) error {
					if n == third {
						return enginetest.ErrInjected
					}
					return nil
				}
			}, partly(t))
		})
		t.Run(name+" for a caller who goes", func(t *testing.T) {
			walk(t, func(s *steeredRuns, cancel context.CancelFunc) {
				s.before = func(ctx context.Context, n int) error {
					if n == third {
						cancel()
					}
					return ctx.Err()
				}
			}, partly(t))
		})
	}
}

// An error is not hidden by a cursor: a call that has changed nothing returns it.
func TestChangesOfManyRunsReturnAnErrorThatComesFirst(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("one", func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{}, model.Permanent(errors.New("no"))
		})
		steered := &steeredRuns{Runs: r.store.Runs}
		steered.before = func(context.Context, int) error { return enginetest.ErrInjected }
		r.store.Runs = steered
		e, _ := r.start(three)
		r.settle(e, r.submit(e, event("work", "1")), model.Failed)
		done, err := e.RetryAll(t.Context(), store.RunFilter{Pipeline: "work", Limit: 1000}, store.Actor{Name: "ann"})
		if !errors.Is(err, enginetest.ErrInjected) || done.Done != 0 {
			t.Errorf("want the error of the store, have %+v and %v", done, err)
		}
	})
}
