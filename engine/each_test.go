package engine_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/model"
)

const eachOf = `
pipelines:
  - id: work
    shared-state: {got: null}
    stages:
      - id: a
        handlers:
          - id: one
            for-each: {items: !$ "1..ITEMS", max-parallel: 20}
            step: {value: !$ item}
            retry: {attempts: 3, min-delay: 5m, on: [any]}
            result: {got: !$ sources.one.response}
`

// Calls for items run side by side up to the bound; some wait for their next
// attempt with the run parked.
func TestItemsAreWorkedOnInParallel(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var underway, most atomic.Int32
		r.on("one", func(_ context.Context, c *engine.Call, value any) (model.Result, error) {
			most.Store(max(most.Load(), underway.Add(1)))
			defer underway.Add(-1)
			time.Sleep(time.Second)
			if value.(int)%10 == 3 && c.Attempt == 1 {
				return model.Result{}, errors.New("not yet")
			}
			return model.Result{Response: value.(int) * 2}, nil
		})
		e, _ := r.start(strings.ReplaceAll(eachOf, "ITEMS", "100"))
		run := r.submit(e, event("work", ""))
		pass(4 * time.Second)
		if v := r.view(e, run); len(v.Handlers) != 1 || v.Handlers[0].Items == nil || v.Handlers[0].Items.Succeeded == 0 ||
			v.Handlers[0].Outcome != model.OutcomeRunning {
			t.Errorf("want a handler that is running, and some items done, have %+v", v.Handlers)
		}
		pass(5 * time.Minute)
		r.settle(e, run, model.Succeeded)
		if most.Load() != 20 {
			t.Errorf("want 20 calls at once, have %d", most.Load())
		}
		v := r.view(e, run)
		got, _ := v.SharedState["got"].([]any)
		for i := range 100 {
			if len(got) != 100 || got[i] != 2*(i+1) {
				t.Fatalf("want each response in its place, have %v", got)
			}
		}
		if items := v.Handlers[0].Items; items.Total != 100 || items.Succeeded != 100 || v.Handlers[0].Attempts != 110 {
			t.Errorf("have %+v after %d attempts", items, v.Handlers[0].Attempts)
		}
		keys := map[string]int{}
		for _, c := range r.calls.Calls() {
			keys[c.IdempotencyKey]++
		}
		if len(keys) != 100 {
			t.Errorf("want a key for each item, have %d", len(keys))
		}
	})
}

// A node that goes repeats the calls in flight, and no other one.
func TestItemsThatAreDoneAreNotRepeatedByAnotherNode(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 16 << 10} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			hang := make(chan struct{})
			var second atomic.Bool
			r.on("one", func(ctx context.Context, _ *engine.Call, value any) (model.Result, error) {
				if value == 5 && !second.Load() {
					select {
					case <-hang:
					case <-ctx.Done():
					}
					return model.Result{}, ctx.Err()
				}
				return model.Result{Response: strings.Repeat("x", size)}, nil
			})
			yaml := strings.ReplaceAll(eachOf, "ITEMS", "9")
			e, stop := r.start(yaml)
			run := r.submit(e, event("work", ""))
			pass(time.Minute)
			if v := r.view(e, run); v.Handlers[0].Items.Succeeded != 8 {
				t.Errorf("want 8 items saved as done, have %+v", v.Handlers[0].Items)
			}
			if err := stop(); err != nil {
				t.Logf("the node stops: %v", err)
			}
			second.Store(true)
			e, _ = r.start(yaml)
			r.settle(e, run, model.Succeeded)
			if times := r.callsOfKeys(); fmt.Sprint(times) != "[1 1 1 1 1 1 1 1 2]" {
				t.Errorf("want one call of each item but two of the one that hung, have %v", times)
			}
		})
	}
}

// callsOfKeys returns how often the calls with each key were made, fewest first.
func (r *rig) callsOfKeys() []int {
	calls := map[string]int{}
	for _, c := range r.calls.Calls() {
		calls[c.IdempotencyKey]++
	}
	return slices.Sorted(maps.Values(calls))
}

func TestDrainSavesTheLastItemsOfALargeCheckpoint(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("one", func(_ context.Context, _ *engine.Call, value any) (model.Result, error) {
			time.Sleep(time.Second + time.Duration(value.(int))*time.Millisecond)
			return model.Result{Response: strings.Repeat("x", 4<<10)}, nil
		})
		yaml := strings.ReplaceAll(eachOf, "ITEMS", "40")
		e, stop := r.start(yaml)
		run := r.submit(e, event("work", ""))
		pass(time.Second / 2)
		if err := stop(); err != nil {
			t.Error(err)
		}
		e, _ = r.start(yaml)
		r.settle(e, run, model.Succeeded)
		if times := r.callsOfKeys(); len(times) != 40 || times[39] != 1 {
			t.Errorf("want one call of each of 40 items, have %v", times)
		}
	})
}

// Each checkpoint has the outcomes of all items. So a checkpoint for each item would write some 200 MB here.
func TestManyItemsWriteFewCheckpoints(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]enginetest.Do{
		"done": func(ctx context.Context, _ *engine.Call, _ any) (model.Result, error) {
			return model.Result{Response: strings.Repeat("x", 60)}, clock.Sleep(ctx, 10*time.Millisecond)
		},
		"failed": func(ctx context.Context, _ *engine.Call, _ any) (model.Result, error) {
			return model.Result{}, cmp.Or(clock.Sleep(ctx, 10*time.Millisecond), model.Permanent(errors.New("no")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			written := 0
			yaml := strings.Replace(strings.ReplaceAll(eachOf, "ITEMS", "2000"), "max-parallel: 20",
				"max-parallel: 20, max-items: 2000, on-failure: collect", 1)
			r := newVirtualRig(t, yaml, func(o *engine.VirtualOptions) {
				o.Saved = func(c model.Change) { written += len(c.Checkpoint) }
			})
			r.on("one", do)
			if v := r.send(event("work", "")); v.Status != model.Succeeded {
				t.Fatalf("want success, have %s: %s", v.Status, v.Error)
			}
			if most := 12 << 20; written > most {
				t.Errorf("want at most %d bytes of checkpoints, have %d", most, written)
			}
		})
	}
}
