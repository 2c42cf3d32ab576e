package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
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

// Calls for items are under way side by side up to the bound; some wait for their next
// attempt with the run parked.
func TestItemsAreWorkedOnInParallel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
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
		time.Sleep(4 * time.Second)
		if v := r.view(e, run); len(v.Handlers) != 1 || v.Handlers[0].Items == nil || v.Handlers[0].Items.Succeeded == 0 ||
			v.Handlers[0].Outcome != model.OutcomeRunning {
			t.Errorf("want a handler that is running, and some items done, have %+v", v.Handlers)
		}
		time.Sleep(5 * time.Minute)
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

// A node that dies repeats the calls in flight, and no other one.
func TestItemsThatAreDoneAreNotRepeatedByAnotherNode(t *testing.T) {
	t.Parallel()
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
			return model.Result{Response: value}, nil
		})
		yaml := strings.ReplaceAll(eachOf, "ITEMS", "9")
		e, stop := r.start(yaml)
		run := r.submit(e, event("work", ""))
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Logf("the node stops: %v", err)
		}
		second.Store(true)
		e, _ = r.start(yaml)
		r.settle(e, run, model.Succeeded)
		calls := map[string]int{}
		for _, c := range r.calls.Calls() {
			calls[c.IdempotencyKey]++
		}
		var times []int
		for _, n := range calls {
			times = append(times, n)
		}
		slices.Sort(times)
		if fmt.Sprint(times) != "[1 1 1 1 1 1 1 1 2]" {
			t.Errorf("want one call of each item but two of the one that hung, have %v", times)
		}
	})
}
