package enginetest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/model"
	"procaas/engine/store"
)

const undoFlow = `
pipelines:
  - id: work
    stages:
      - id: s
        handlers:
          - {id: a, step: {}, compensate: {step: {}}}
          - {id: b, step: {}, compensate: {step: {}}}
      - id: t
        handlers: [{id: inner, call: {pipeline: part}}]
      - id: u
        handlers: [{id: e, step: {}}]
  - id: part
    inputs: {}
    stages:
      - id: v
        handlers: [{id: c, step: {}, compensate: {step: {}}}]
      - id: w
        handlers: [{id: d, step: {}}]
      - id: x
        handlers: [{id: f, step: {}}]
`

// Elements of a repeated stage are undone inside of the calls that they are in, when the
// run is cancelled: elements run together, but each undoes its own the last first, and all
// of them before what the run did earlier.
const undoEachFlow = `
pipelines:
  - id: work
    stages:
      - id: s
        handlers: [{id: a, step: {}, compensate: {step: {}}}]
      - id: t
        for-each: {items: [one, two, three, four], max-parallel: 3}
        shared-state: {}
        handlers:
          - {id: inner, call: {pipeline: part}}
          - {id: e, step: {value: !$ sources.inner.response}}
  - id: part
    inputs: {}
    stages:
      - id: v
        handlers: [{id: b, step: {}, compensate: {step: {}}}]
      - id: w
        handlers: [{id: c, step: {}, compensate: {step: {}}}]
      - id: x
        handlers: [{id: d, step: {}}]
      - id: y
        handlers: [{id: f, step: {}}]
`

// TestACancelledRunUndoesOnceWhateverCrashes cancels a run from within one of its calls,
// and lets the node die at each of its checkpoints. What the run has done is undone, each
// once and the last first, by calls with the same key, and the run is cancelled.
func TestACancelledRunUndoesOnceWhateverCrashes(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, store store.Store) {
		for _, flow := range []cancelled{{"plain", undoFlow, checkUndone}, {"each", undoEachFlow, checkElementsUndone}} {
			eachCrash(func(c crash) int { return cancelWithin(t, store, flow, c) })
		}
	})
}

// A cancelled flow is cancelled within its handler d.
type cancelled struct {
	name, flow string
	check      func(t *testing.T, what string, calls []engine.Call)
}

// cancelWithin runs one event to its end, and returns the number of checkpoints.
func cancelWithin(t *testing.T, db store.Store, flow cancelled, crash crash) int {
	t.Helper()
	what := fmt.Sprintf("%s: %s", flow.name, crash)
	var calls enginetest.Recorder
	var tr trial
	types := []engine.HandlerType{enginetest.Scripted("step",
		calls.Record(func(ctx context.Context, c *engine.Call, _ any) (model.Result, error) {
			if strings.HasSuffix(c.Path, "/d") {
				_, err := tr.engine.Engine().Cancel(ctx, tr.run, store.Actor{Name: "ann", Reason: "enough"})
				if err != nil && !errors.Is(err, store.ErrUndoing) {
					return model.Result{}, err
				}
				return model.Result{}, clock.Sleep(ctx, time.Second) // the node hears of it meanwhile
			}
			return model.Result{}, nil
		}))}
	tr = startTrial(t, trial{
		store: db, types: types, flow: flow.flow, what: what, payload: map[string]any{}, crash: crash,
	})
	tr.drain(t)
	view, err := tr.engine.Engine().RunByID(t.Context(), tr.run)
	if err != nil || view.Status != model.Cancelled || view.Reason != "enough" || view.Cancelling != "" {
		t.Fatalf("%s: want the run cancelled because of enough, have %s %q %q, %v", what, view.Status, view.Reason, view.Cancelling, err)
	}
	flow.check(t, what, calls.Calls())
	return tr.engine.Saves()
}

func checkUndone(t *testing.T, what string, calls []engine.Call) {
	t.Helper()
	var undone []string
	keys := map[string]string{}
	for _, c := range calls {
		if key, again := keys[c.Path]; again && key != c.IdempotencyKey {
			t.Errorf("%s: %s was called with two keys", what, c.Path)
		}
		keys[c.Path] = c.IdempotencyKey
		if path, ok := strings.CutSuffix(c.Path, "/compensate"); ok && !slices.Contains(undone, path) {
			undone = append(undone, path)
		}
	}
	// What was begun at once may have ended in any order.
	if len(undone) != 3 || undone[0] != "part/v/c" {
		t.Errorf("%s: want the last one undone first, and all three, have %v", what, undone)
	}
	if keys["work/u/e"] != "" || keys["part/x/f"] != "" {
		t.Errorf("%s: a handler was called after the cancellation", what)
	}
}

// checkElementsUndone holds the services to account: what elements have done is undone
// once each, with one key for one effect, the steps of an element the last first, the last
// element first, and all of them before what the run did earlier.
func checkElementsUndone(t *testing.T, what string, calls []engine.Call) {
	t.Helper()
	keys := map[string][]string{} // by path, in the order of their first calls
	var undone []string
	for _, c := range calls {
		if slices.Contains(keys[c.Path], c.IdempotencyKey) {
			continue
		}
		keys[c.Path] = append(keys[c.Path], c.IdempotencyKey)
		if path, ok := strings.CutSuffix(c.Path, "/compensate"); ok {
			undone = append(undone, path)
		}
	}
	began, reserved := len(keys["part/v/b"]), len(keys["part/w/c"])
	if began != 3 || reserved == 0 || reserved > began {
		t.Errorf("%s: want three elements begun, and the first at its second step, have %d and %d", what, began, reserved)
	}
	var want []string
	for i := began; i > 0; i-- {
		if i <= reserved {
			want = append(want, "part/w/c")
		}
		want = append(want, "part/v/b")
	}
	if want = append(want, "work/s/a"); !slices.Equal(undone, want) {
		t.Errorf("%s: want undone %v, have %v", what, want, undone)
	}
	if len(keys["part/y/f"]) > 0 || len(keys["work/t/e"]) > 0 {
		t.Errorf("%s: a handler was called after the cancellation", what)
	}
}
