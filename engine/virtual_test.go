package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/checkpoint"
	"procaas/engine/clock"
	"procaas/engine/core"
	"procaas/engine/enginetest"
	"procaas/engine/guard"
	"procaas/engine/memory"
	"procaas/engine/model"
	"procaas/engine/store"
)

// A virtualRig is a rig in virtual time. It writes down what happens and when.
type virtualRig struct {
	*rig
	v       *engine.Virtual
	clock   *clock.Virtual
	began   time.Time
	history []string
}

func newVirtualRig(t *testing.T, yaml string, change ...func(*engine.VirtualOptions)) *virtualRig {
	t.Helper()
	began := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	r := &virtualRig{rig: newRig(t), clock: clock.NewVirtual(began), began: began}
	r.store = memory.New(r.clock.Now).Ports()
	o := engine.VirtualOptions{
		Clock: r.clock,
		Call: func(ctx context.Context, task *core.Attempt, h engine.Handler, c *engine.Call) (model.Result, error) {
			r.note("%s %d", c.Path, c.Attempt)
			return h.Handle(ctx, c)
		},
		Saved: func(c model.Change) {
			if c.Status.Ended() {
				r.note("%s %s", c.Status, c.Error)
			}
		},
	}
	o.Options = engine.Options{Store: r.store, Types: r.types, Bundle: r.bundle(yaml), Name: "test"}
	for _, f := range change {
		f(&o)
	}
	v, err := engine.NewVirtual(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	r.v = v
	return r
}

func (r *virtualRig) note(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	r.history = append(r.history, fmt.Sprintf("%s %s", r.clock.Now().Sub(r.began), strings.TrimSpace(line)))
}

// send hands an event in and works until nothing is left to do.
func (r *virtualRig) send(ev model.Event) checkpoint.RunView {
	r.t.Helper()
	id := r.submit(r.v.Engine(), ev)
	r.drain()
	return r.view(r.v.Engine(), id)
}

func (r *virtualRig) drain() {
	r.t.Helper()
	if next, err := r.v.Drain(r.t.Context(), r.began.Add(10*365*24*time.Hour)); err != nil || !next.IsZero() {
		r.t.Fatalf("want nothing left to do, have %v at %v", err, next)
	}
}

func (r *virtualRig) wantHistory(want ...string) {
	r.t.Helper()
	if !slices.Equal(r.history, want) {
		r.t.Errorf("want\n%s\nhave\n%s", strings.Join(want, "\n"), strings.Join(r.history, "\n"))
	}
}

func pauses(d time.Duration) enginetest.Do {
	return func(ctx context.Context, _ *engine.Call, value any) (model.Result, error) {
		return model.Result{Response: value}, clock.Sleep(ctx, d)
	}
}

func TestVirtualTimePassesOnlyWhereSomethingWaits(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, three)
	r.on("one", pauses(2*time.Second))
	waits := true
	r.on("two", func(_ context.Context, c *engine.Call, value any) (model.Result, error) {
		if !waits {
			t.Error("want the wait to be over without another call")
		}
		waits = false
		return model.Result{Until: c.Now.Add(30 * 24 * time.Hour)}, nil
	})
	if v := r.send(event("work", "k")); v.Status != model.Succeeded {
		t.Errorf("want success, have %s: %s", v.Status, v.Error)
	}
	r.wantHistory("0s work/a/one 1", "2s work/b/two 1", "720h0m2s work/c/three 1", "720h0m2s succeeded")
}

func TestVirtualTimeoutsAndRetries(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, `
pipelines:
  - id: work
    stages:
      - id: a
        handlers:
          - {id: slow, timeout: 1s, step: {}, retry: {attempts: 3, min-delay: 10s, factor: 2, jitter: 0}}
`)
	r.on("slow", pauses(time.Minute))
	v := r.send(event("work", "k"))
	if want := "work/a/slow: attempt 3: no end within 1s: context deadline exceeded"; v.Error != want {
		t.Errorf("want %q, have %q", want, v.Error)
	}
	r.wantHistory("0s work/a/slow 1", "11s work/a/slow 2", "32s work/a/slow 3", "33s failed "+v.Error)
}

func TestVirtualParallelCallsOverlap(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, parallel(3))
	for i, d := range []time.Duration{3, 1, 2} {
		r.on(fmt.Sprintf("h%d", i), pauses(d*time.Second))
	}
	r.send(event("work", "k"))
	r.wantHistory("0s work/a/h0 1", "0s work/a/h1 1", "0s work/a/h2 1", "3s succeeded")
}

func TestVirtualKeepsTheOrderOfAKey(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, three)
	r.on("one", pauses(time.Second))
	first := r.submit(r.v.Engine(), event("work", "k"))
	second := r.submit(r.v.Engine(), event("work", "k"))
	r.drain()
	for _, id := range []string{first, second} {
		if v := r.view(r.v.Engine(), id); v.Status != model.Succeeded {
			t.Errorf("want success, have %s", v.Status)
		}
	}
	r.wantHistory("0s work/a/one 1", "1s work/b/two 1", "1s work/c/three 1", "1s succeeded",
		"1s work/a/one 1", "2s work/b/two 1", "2s work/c/three 1", "2s succeeded")
}

func TestVirtualHeedsControlsAndCancellations(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, three)
	e := r.v.Engine()
	hold := guard.ControlChange{Mode: guard.ModeHold, Forever: true}
	if _, err := e.SetControl(t.Context(), "work/b", hold, -1, store.Actor{Name: "test"}); err != nil {
		t.Fatal(err)
	}
	id := r.submit(e, event("work", "k"))
	if err := r.v.Until(t.Context(), r.began.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if v := r.view(e, id); v.Status != model.Parked {
		t.Errorf("want the run to be held, have %s", v.Status)
	}
	if _, err := e.RemoveControl(t.Context(), "work/b", -1, store.Actor{Name: "test"}); err != nil {
		t.Fatal(err)
	}
	r.on("two", pauses(time.Hour))
	if err := r.v.Until(t.Context(), r.began.Add(90*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Cancel(t.Context(), id, store.Actor{Name: "ann", Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	r.drain()
	if v := r.view(e, id); v.Status != model.Cancelled || v.Reason != "enough" {
		t.Errorf("want the run cancelled, have %s: %s", v.Status, v.Reason)
	}
	r.wantHistory("0s work/a/one 1", "1h0m0s work/b/two 1", "1h30m0s cancelled")
}

func TestVirtualLimitsCallsByTheClock(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, `
pipelines:
  - id: work
    stages:
      - {id: a, handlers: [{id: one, step: {}, rate-limit: {rate: 1/m, burst: 1}}]}
`)
	for i := range 3 {
		r.submit(r.v.Engine(), event("work", fmt.Sprint(i)))
	}
	r.drain()
	r.wantHistory("0s work/a/one 1", "0s succeeded", "1m0s work/a/one 1", "1m0s succeeded", "2m0s work/a/one 1", "2m0s succeeded")
}

// A crash at any checkpoint changes nothing but that calls are repeated, with the
// same key.
func TestVirtualCrashAtEachCheckpointGivesTheSameEnd(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		for at := 1; ; at++ {
			r := newVirtualRig(t, three, func(o *engine.VirtualOptions) { o.CrashAt, o.CrashAfter = at, after })
			r.on("two", func(_ context.Context, c *engine.Call, value any) (model.Result, error) {
				if c.Attempt == 1 {
					return model.Result{}, context.DeadlineExceeded
				}
				return model.Result{Response: value}, nil
			})
			v := r.send(event("work", "k"))
			if v.Status != model.Succeeded || v.SharedState["seen"] != 1 {
				t.Fatalf("crash at %d: want success and the state of one run, have %s and %v", at, v.Status, v.SharedState)
			}
			for _, path := range []string{"work/a/one", "work/b/two", "work/c/three"} {
				for _, c := range r.calls.Of(path) {
					if first := r.calls.Of(path)[0]; c.IdempotencyKey != first.IdempotencyKey {
						t.Errorf("crash at %d: %s has the keys %s and %s", at, path, first.IdempotencyKey, c.IdempotencyKey)
					}
				}
			}
			if r.v.Saves() < at {
				if at < 4 {
					t.Errorf("want some checkpoints to crash at, have %d", at-1)
				}
				break
			}
		}
	}
}

func TestVirtualCrashInACallLosesItsEnd(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, three)
	crashes := 2
	r.on("two", func(_ context.Context, c *engine.Call, value any) (model.Result, error) {
		if crashes--; crashes >= 0 {
			r.v.Crash()
		}
		return model.Result{Response: value}, nil
	})
	if v := r.send(event("work", "k")); v.Status != model.Succeeded {
		t.Errorf("want success, have %s: %s", v.Status, v.Error)
	}
	if want := []string{"work/a/one", "work/b/two", "work/b/two", "work/b/two", "work/c/three"}; !slices.Equal(r.paths(), want) {
		t.Errorf("want calls of %v, have %v", want, r.paths())
	}
}

func TestVirtualBoundsWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, `
pipelines:
  - id: work
    stages:
      - {id: a, handlers: [{id: one, step: {}, retry: {attempts: 0, min-delay: 1ms, max-delay: 1s, on: any}}]}
`, func(o *engine.VirtualOptions) { o.MaxCalls = 50 })
	r.on("one", func(context.Context, *engine.Call, any) (model.Result, error) {
		return model.Result{}, errors.New("no")
	})
	r.submit(r.v.Engine(), event("work", "k"))
	if _, err := r.v.Drain(t.Context(), r.began.Add(time.Hour)); err == nil || err.Error() != "no end after 50 calls" {
		t.Errorf("want an error about the calls, have %v", err)
	}
}

// What a handler does with the time of its context holds in virtual time too.
func TestSleepAndDeadlines(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, three)
	r.on("one", func(ctx context.Context, _ *engine.Call, _ any) (model.Result, error) {
		outer, cancel := clock.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		inner, cancelInner := clock.WithTimeout(outer, time.Hour)
		defer cancelInner()
		if at, ok := inner.Deadline(); !ok || at.Sub(r.clock.Now()) != 2*time.Second {
			t.Errorf("want the nearer deadline, have %v %v", at, ok)
		}
		if err := clock.Sleep(inner, time.Second); err != nil {
			t.Error(err)
		}
		if err := clock.Sleep(inner, time.Second); !errors.Is(err, context.DeadlineExceeded) || outer.Err() == nil {
			t.Errorf("want the end of the time, have %v and %v", err, outer.Err())
		}
		if err := ctx.Err(); err != nil {
			t.Errorf("want the call itself to go on, have %v", err)
		}
		return model.Result{}, nil
	})
	r.send(event("work", "k"))
	r.wantHistory("0s work/a/one 1", "2s work/b/two 1", "2s work/c/three 1", "2s succeeded")

	ctx, cancel := clock.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := clock.Sleep(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("outside of virtual time: want the deadline, have %v", err)
	}
}

const saga = `
pipelines:
  - id: work
    stages:
      - {id: a, handlers: [{id: one, step: {}, compensate: {step: {},
          retry: {attempts: 5, min-delay: 1m, factor: 1, jitter: 0, on: [any]}}}]}
      - {id: b, handlers: [{id: two, step: {}}]}
      - {id: c, handlers: [{id: three, step: {}}]}
`

func TestACancelledRunThatWaitsUndoes(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"undone", "undone twice", "abandoned", "abandoned while it undoes"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			r := newVirtualRig(t, saga)
			r.on("two", func(_ context.Context, c *engine.Call, _ any) (model.Result, error) {
				return model.Result{Until: c.Now.Add(24 * time.Hour)}, nil
			})
			fails := end != "undone"
			r.on("compensate", func(context.Context, *engine.Call, any) (model.Result, error) {
				if fails {
					return model.Result{}, errors.New("not now")
				}
				return model.Result{}, nil
			})
			id := r.submit(r.v.Engine(), event("work", "k"))
			until := func(d time.Duration) {
				t.Helper()
				if err := r.v.Until(t.Context(), r.began.Add(d)); err != nil {
					t.Fatal(err)
				}
			}
			until(time.Hour)
			ann := store.Actor{Name: "ann", Reason: "enough"}
			if end == "abandoned" {
				if v, err := r.v.Engine().Abandon(t.Context(), id, ann); err != nil || v.Status != model.Cancelled || v.Reason != "enough" {
					t.Fatalf("want it ended at once, have %s %q, %v", v.Status, v.Reason, err)
				}
				return
			}
			if v, err := r.v.Engine().Cancel(t.Context(), id, ann); err != nil || v.Status.Ended() || v.Cancelling != "enough" {
				t.Fatalf("want it being undone, have %s %q, %v", v.Status, v.Cancelling, err)
			}
			if end != "undone" {
				until(time.Hour + 30*time.Second)
				if _, err := r.v.Engine().Cancel(t.Context(), id, ann); !errors.Is(err, store.ErrUndoing) {
					t.Fatalf("want a second cancellation refused, have %v", err)
				}
				if v := r.view(r.v.Engine(), id); v.Status != model.Parked || v.Cancelling != "enough" {
					t.Fatalf("want it wait for the next attempt, have %s %q", v.Status, v.Cancelling)
				}
			}
			if end == "abandoned while it undoes" {
				if v, err := r.v.Engine().Abandon(t.Context(), id, store.Actor{Name: "ann", Reason: "now"}); err != nil ||
					v.Status != model.Cancelled || v.Reason != "now" {
					t.Fatalf("want it ended at once, have %s %q, %v", v.Status, v.Reason, err)
				}
				return
			}
			fails = false
			r.drain()
			v := r.view(r.v.Engine(), id)
			if v.Status != model.Cancelled || v.Reason != "enough" || v.Cancelling != "" {
				t.Fatalf("want it cancelled, have %s %q %q", v.Status, v.Reason, v.Cancelling)
			}
			if n := len(r.calls.Of("work/a/one/compensate")); n != 1 && end == "undone" || len(r.calls.Of("work/c/three")) > 0 {
				t.Errorf("want one compensation and nothing else, have %d", n)
			}
		})
	}
}

func TestARunWithNothingToUndoIsCancelledAtOnce(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, three)
	r.on("two", func(_ context.Context, c *engine.Call, _ any) (model.Result, error) {
		return model.Result{Until: c.Now.Add(24 * time.Hour)}, nil
	})
	id := r.submit(r.v.Engine(), event("work", "k"))
	if err := r.v.Until(t.Context(), r.began.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if v, err := r.v.Engine().Cancel(t.Context(), id, store.Actor{Name: "ann", Reason: "enough"}); err != nil ||
		v.Status != model.Cancelled {
		t.Fatalf("want it ended at once, have %s, %v", v.Status, err)
	}
}
