package enginetest_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/store"
)

const loopFlow = `
pipelines:
  - id: work
    shared-state: {factor: 10, all: []}
    stages:
      - id: lines
        for-each: {items: !$ event.payload, max-parallel: 2, on-failure: collect}
        shared-state: {a: 0, b: 0, c: none}
        handlers:
          - {id: a, step: {value: !$ item}, retry: {attempts: 2, min-delay: 1s, on: [any]},
             result: {a: !$ sources.a.response * shared-state.factor}}
          - {id: b, step: {value: !$ item + index}, result: {b: !$ sources.b.response}}
          - {id: c, critical: false, step: {value: !$ shared-state.a + shared-state.b}, retry: {attempts: 1},
             result: {c: !$ sources.c.response}, fallback: {result: {c: out}}}
        result: {all: !$ "map(sources.lines.response, .error?.class ?? [.response?.a, .response?.b, .response?.c])"}
      - id: behind
        handlers: [{id: d, step: {value: !$ shared-state.all}}]
`

// TestARepeatedStageGoesOnWhereItWas takes one event through a stage that is repeated for
// each element of a list, and lets the node die at each of its checkpoints, before and
// after it. Whatever the moment, the state is that of a run without a crash, no call has
// two keys, no two calls have one, and only what was in flight is called again.
func TestARepeatedStageGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, store store.Store) {
		eachCrash(func(c crash) int { return throughLoop(t, store, c) })
	})
}

// throughLoop runs one event to its end, and returns the number of checkpoints.
func throughLoop(t *testing.T, store store.Store, crash crash) int {
	t.Helper()
	what := crash.String()
	var calls enginetest.Recorder
	types := []engine.HandlerType{enginetest.Scripted("step",
		calls.Record(func(_ context.Context, c *engine.Call, body any) (model.Result, error) {
			n, _ := body.(int)
			switch {
			case strings.HasSuffix(c.Path, "/b") && n == 5:
				return model.Result{}, model.Permanent(errors.New("there is no five"))
			case strings.HasSuffix(c.Path, "/c") && n > 20:
				return model.Result{}, errors.New("too much")
			}
			return model.Result{Response: n}, nil
		}))}
	tr := startTrial(t, trial{
		store: store, types: types, flow: loopFlow, what: what, payload: []any{1, 2, 3}, crash: crash,
	})
	tr.drain(t)
	record, err := store.Runs.Run(t.Context(), tr.run)
	if err != nil {
		t.Fatal(err)
	}
	view := records.View(record)
	want := []any{[]any{10, 1, 11}, []any{20, 3, "out"}, "other"}
	if view.Status != model.Succeeded || !cmp.Equal(view.SharedState["all"], want) {
		t.Errorf("%s: want %v, have the run %s with %v: %s", what, want, view.Status, view.SharedState["all"], view.Error)
	}
	keys := map[string]int{}
	for _, c := range calls.Calls() {
		keys[c.IdempotencyKey]++
		if keys[c.IdempotencyKey] > 2 || keys[c.IdempotencyKey] > 1 && crash.at == 0 {
			t.Errorf("%s: %s is called %d times with one key", what, c.Path, keys[c.IdempotencyKey])
		}
	}
	if len(keys) != 9 { // in the element that fails, c is not reached
		t.Errorf("%s: want a key for each call in each element, have %d", what, len(keys))
	}
	if crash.at == 0 && tr.engine.Saves() < 5 {
		t.Errorf("want some checkpoints to die at, have %d", tr.engine.Saves())
	}
	return tr.engine.Saves()
}
