package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/model"
	"procaas/engine/store"
)

const retried = `
pipelines:
  - id: work
    stages:
      - id: a
        handlers:
          - id: one
            step: {}
            timeout: 2s
            retry: {attempts: 4, min-delay: MIN, max-delay: 10m, factor: 2, jitter: 0, on: [any]}
`

func TestFailedAttemptsAreRepeated(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{100 * time.Millisecond, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.on("one", func(_ context.Context, c *engine.Call, _ any) (model.Result, error) {
				if c.Attempt < 3 {
					return model.Result{}, errors.New("not yet")
				}
				return model.Result{}, nil
			})
			e, _ := r.start(strings.ReplaceAll(retried, "MIN", delay.String()))
			began := time.Now()
			run := r.submit(e, event("work", ""))
			synctest.Wait()
			if v := r.view(e, run); delay > time.Second && (v.Status != model.Parked || v.Due == nil) {
				t.Errorf("want a long delay to park the run, have %s", v.Status)
			}
			pass(3*delay - time.Second)
			r.settle(e, run, model.Succeeded)
			if took := time.Since(began); took < 3*delay || took > 3*delay+time.Second {
				t.Errorf("want delays of %s and %s, it took %s", delay, 2*delay, took)
			}
			calls := r.calls.Calls()
			if len(calls) != 3 || calls[0].IdempotencyKey != calls[2].IdempotencyKey {
				t.Errorf("want 3 calls with one key, have %+v", calls)
			}
		})
	}
}

func TestTimeoutEndsAnAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		never := make(gate)
		r.on("one", never.do)
		e, _ := r.start(strings.ReplaceAll(retried, "MIN", "100ms"))
		run := r.submit(e, event("work", ""))
		pass(9 * time.Second)
		v := r.settle(e, run, model.Failed)
		if len(r.calls.Calls()) != 4 || !strings.Contains(v.Error, "no end within 2s") || v.FailedPath != "work/a/one" {
			t.Errorf("want 4 attempts of 2s, have %d and %q at %s", len(r.calls.Calls()), v.Error, v.FailedPath)
		}
	})
}

func TestPanicFailsTheHandlerForGood(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("one", func(context.Context, *engine.Call, any) (model.Result, error) { panic("oops") })
		e, _ := r.start(strings.ReplaceAll(retried, "MIN", "100ms"))
		v := r.settle(e, r.submit(e, event("work", "")), model.Failed)
		if !strings.Contains(v.Error, "oops") || len(r.calls.Calls()) != 1 {
			t.Errorf("want one call and its panic told, have %d and %q", len(r.calls.Calls()), v.Error)
		}
		if log := r.log.String(); !strings.Contains(log, "work_test.go") || !strings.Contains(log, "path=work/a/one") {
			t.Errorf("want the stack and the path in the log, have %s", log)
		}
	})
}

func TestWaitParksTheRunAndDoesNotCallAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("one", func(_ context.Context, c *engine.Call, _ any) (model.Result, error) {
			return model.Result{Until: c.Now.Add(time.Hour)}, nil
		})
		first, stop := r.start(three)
		began := time.Now()
		run := r.submit(first, event("work", "k"))
		v := r.settle(first, run, model.Parked)
		if v.Due == nil || v.Due.Sub(began) < time.Hour {
			t.Errorf("want the run due in an hour, have %v", v.Due)
		}
		stop()
		second, _ := r.start(three)
		pass(time.Hour - time.Second)
		r.want("work/a/one")
		r.settle(second, run, model.Succeeded)
		r.want("work/a/one", "work/b/two", "work/c/three")
		if took := time.Since(began); took > time.Hour+time.Second {
			t.Errorf("want the run to go on within a second, it took %s", took)
		}
	})
}

func TestCancelRunningRunBreaksOffItsCallsFirst(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var active atomic.Int32
		r.on("one", func(ctx context.Context, c *engine.Call, _ any) (model.Result, error) {
			if c.Event.ID == "second" && active.Load() != 0 {
				t.Error("the next event of the key starts while a call of the cancelled run goes on")
			}
			if c.Event.ID == "first" {
				active.Add(1)
				<-ctx.Done()
				time.Sleep(time.Second)
				active.Add(-1)
			}
			return model.Result{}, ctx.Err()
		})
		e, _ := r.start(three)
		ev := event("work", "k")
		ev.ID = "first"
		first := r.submit(e, ev)
		ev.ID = "second"
		second := r.submit(e, ev)
		synctest.Wait()
		if _, err := e.Cancel(context.Background(), first, store.Actor{Name: "ann", Reason: "not wanted"}); err != nil {
			t.Fatal(err)
		}
		if v := r.settle(e, first, model.Cancelled); v.Reason != "not wanted" {
			t.Errorf("want the operator's reason, have %q", v.Reason)
		}
		r.settle(e, second, model.Succeeded)
	})
}

func TestCancelByAnotherNodeIsHeardWithinASecond(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		never := make(gate)
		r.on("one", never.do)
		e, _ := r.start(three)
		run := r.submit(e, event("work", "k"))
		synctest.Wait()
		if err := r.store.Runs.Cancel(context.Background(), run, store.Actor{Name: "ann", Reason: "elsewhere"}, store.Tell{}); err != nil {
			t.Fatal(err)
		}
		pass(1100 * time.Millisecond)
		if v := r.settle(e, run, model.Cancelled); v.Reason != "elsewhere" {
			t.Errorf("want the operator's reason, have %q", v.Reason)
		}
	})
}

func TestCancelParkedRun(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("one", func(_ context.Context, c *engine.Call, _ any) (model.Result, error) {
			return model.Result{Until: c.Now.Add(time.Hour)}, nil
		})
		e, _ := r.start(three)
		run := r.submit(e, event("work", "k"))
		r.settle(e, run, model.Parked)
		if v, err := e.Cancel(context.Background(), run, store.Actor{Name: "ann", Reason: "late"}); err != nil || v.Status != model.Cancelled {
			t.Errorf("want the run cancelled at once, have %s and %v", v.Status, err)
		}
		if _, err := e.Cancel(context.Background(), run, store.Actor{Name: "ann", Reason: "again"}); !errors.Is(err, store.ErrConflict) {
			t.Errorf("want ErrConflict for a run that has ended, have %v", err)
		}
	})
}

func TestFailedRunBlocksItsKeyUntilItIsRetried(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var broken atomic.Bool
		broken.Store(true)
		r.on("two", func(context.Context, *engine.Call, any) (model.Result, error) {
			if broken.Load() {
				return model.Result{}, model.Permanent(errors.New("broken"))
			}
			return model.Result{}, nil
		})
		e, _ := r.start(three)
		first := r.submit(e, event("work", "k"))
		r.settle(e, first, model.Failed)
		second := r.submit(e, event("work", "k"))
		pass(time.Minute)
		if v := r.view(e, second); v.Status != model.Waiting || !v.Blocked {
			t.Errorf("want the second event blocked, have %s, blocked %v", v.Status, v.Blocked)
		}
		if v, err := e.Entity(context.Background(), "order", "k"); err != nil || v.BlockedBy != first {
			t.Errorf("want the key blocked by %s, have %+v and %v", first, v, err)
		}
		broken.Store(false)
		if _, err := e.Retry(context.Background(), first, store.Actor{Name: "ann"}); err != nil {
			t.Fatal(err)
		}
		r.settle(e, first, model.Succeeded)
		r.settle(e, second, model.Succeeded)
		if n := len(r.calls.Of("work/a/one")); n != 2 {
			t.Errorf("want what was done before the failure not repeated, have %d calls", n)
		}
	})
}

// Cancelling all events of a key must begin none of them: the end of the first one would let the next one in.
func TestCancellingAKeyBeginsNoneOfItsRuns(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("one", func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{}, model.Permanent(errors.New("no such order"))
		})
		e, _ := r.start(three)
		runs := []string{r.submit(e, event("work", "k"))}
		r.settle(e, runs[0], model.Failed)
		runs = append(runs, r.submit(e, event("work", "k")), r.submit(e, event("work", "k")))
		have, err := e.CancelAll(context.Background(), store.RunFilter{Key: "k", Limit: 10}, store.Actor{Name: "ann"})
		slices.Reverse(runs)
		if err != nil || !slices.Equal(have.Runs, runs) {
			t.Fatalf("want the last accepted cancelled first, %v, have %v and %v", runs, have.Runs, err)
		}
		synctest.Wait()
		for _, run := range runs {
			r.settle(e, run, model.Cancelled)
		}
		if n := len(r.calls.Of("work/a/one")); n != 1 {
			t.Errorf("want no call of the runs that waited, have %d calls", n)
		}
	})
}

func TestRateLimitPacesCalls(t *testing.T) {
	t.Parallel()
	for rate, want := range map[string]time.Duration{"10/s": 100 * time.Millisecond, "12/m": 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			var at []time.Time
			r.on("one", func(context.Context, *engine.Call, any) (model.Result, error) {
				at = append(at, time.Now())
				return model.Result{}, nil
			})
			e, _ := r.start(`
pipelines:
  - id: work
    stages: [{id: a, handlers: [{id: one, step: {}, rate-limit: {rate: ` + rate + `, burst: 1}}]}]
`)
			var runs []string
			for range 20 {
				runs = append(runs, r.submit(e, event("work", "")))
			}
			pass(20 * want)
			for _, run := range runs {
				r.settle(e, run, model.Succeeded)
			}
			for i := 1; i < len(at); i++ {
				if gap := at[i].Sub(at[i-1]); gap < want*9/10 {
					t.Errorf("want calls at least %s apart, have %s", want, gap)
				}
			}
			if took := at[len(at)-1].Sub(at[0]); took > 21*want {
				t.Errorf("want the limit used, 20 calls took %s", took)
			}
		})
	}
}

func TestEmittedEventIsAcceptedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("one", func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{Emit: []model.Event{{Type: "later", Payload: map[string]any{"n": 1}}}}, nil
		})
		lost := atomic.Bool{}
		store := &enginetest.Faulty{Store: r.store, After: func(op string) error {
			if op == "commit" && lost.CompareAndSwap(false, true) {
				return enginetest.ErrInjected
			}
			return nil
		}}
		e, _ := r.startOn(store.Ports(), `
pipelines:
  - id: work
    stages: [{id: a, handlers: [{id: one, step: {}}]}]
  - id: later
    stages: [{id: a, handlers: [{id: two, step: {}}]}]
`)
		r.settle(e, r.submit(e, event("work", "")), model.Succeeded)
		pass(time.Second)
		r.want("work/a/one", "later/a/two")
	})
}

func TestEmitOfUnknownTypeFailsTheHandler(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("one", func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{Emit: []model.Event{{Type: "wrok"}}}, nil
		})
		e, _ := r.start(strings.ReplaceAll(retried, "MIN", "100ms"))
		v := r.settle(e, r.submit(e, event("work", "")), model.Failed)
		if !strings.Contains(v.Error, "wrok") || !strings.Contains(v.Error, "did you mean work?") || len(r.calls.Calls()) != 1 {
			t.Errorf("want one call and an error that suggests work, have %d and %q", len(r.calls.Calls()), v.Error)
		}
	})
}

func TestHandlersShowTheLastMinute(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var n atomic.Int32
		r.on("one", func(context.Context, *engine.Call, any) (model.Result, error) {
			time.Sleep(100 * time.Millisecond)
			if n.Add(1)%4 == 0 {
				return model.Result{}, model.Permanent(errors.New("every fourth"))
			}
			return model.Result{}, nil
		})
		e, _ := r.start(parallel(0) + "          - {id: one, step: {}, critical: false, owner: me}\n")
		for range 8 {
			r.settle(e, r.submit(e, event("work", "")), model.Succeeded)
		}
		h := e.Handlers()[0]
		if h.Calls != 8 || *h.SuccessRatio != 0.75 || h.LastError != "every fourth" || h.Owner != "me" {
			t.Errorf("want 8 calls, three of four good, have %+v", h)
		}
		if *h.LatencyP50 < 80 || *h.LatencyP50 > 125 {
			t.Errorf("want a latency of about 100 ms, have %g", *h.LatencyP50)
		}
		pass(70 * time.Second)
		if h := e.Handlers()[0]; h.Calls != 0 || h.SuccessRatio != nil {
			t.Errorf("want nothing after a minute, have %+v", h)
		}
	})
}
