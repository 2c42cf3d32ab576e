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

const finallyFlow = `
pipelines:
  - id: work
    stages:
      - id: s
        handlers: [{id: a, step: {value: ""}COMPENSATE}]
      - id: t
        handlers: [{id: d, step: {value: ""}}]
      - id: u
        handlers: [{id: never, enabled: !$ "event.payload == 'succeeded'", step: {value: ""}}]
    finally:
      - {id: release, step: {value: !$ run.status}}
      - {id: tell, step: {value: !$ "(run.error?.class ?? 'none') + ' ' + sources.never.outcome"}}
`

// TestFinallyRunsOnceWhateverCrashes ends runs by success, by a failure, by a failure that is undone and by an operator, and
// lets the node die at each checkpoint. The handlers of finally run after everything else, know how the run ends, and keep
// their keys over a crash. The retry of a failed run runs them again, with other keys.
func TestFinallyRunsOnceWhateverCrashes(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, store store.Store) {
		for _, end := range []string{"succeeded", "failed", "undone", "cancelled"} {
			eachCrash(func(c crash) int { return finallyAfter(t, store, end, c) })
		}
	})
}

// endAs lets the step d of a trial end its run: by its error, or by an operator meanwhile, after whom the node may die. Other steps succeed.
func endAs(ctx context.Context, tr *trial, c *engine.Call, end string) error {
	switch {
	case !strings.HasSuffix(c.Path, "/d"), end == "succeeded":
		return nil
	case end == "orphaned":
		_, err := tr.engine.Engine().Abandon(ctx, tr.run, store.Actor{Name: "ann", Reason: "enough"})
		tr.engine.Crash()
		return err
	case end == "cancelled":
		if _, err := tr.engine.Engine().Cancel(ctx, tr.run, store.Actor{Name: "ann", Reason: "enough"}); err != nil && !errors.Is(err, store.ErrUndoing) {
			return err
		}
		return clock.Sleep(ctx, time.Second) // the node hears of it meanwhile
	}
	return model.Permanent(errors.New("broken"))
}

func finallyAfter(t *testing.T, db store.Store, end string, crash crash) int {
	t.Helper()
	what := fmt.Sprintf("%s: %s", end, crash)
	var calls enginetest.Recorder
	var tr trial
	mended := false
	said := map[string]string{} // what a handler of finally was told, by its key
	types := []engine.HandlerType{enginetest.Scripted("step", calls.Record(func(ctx context.Context, c *engine.Call, value any) (model.Result, error) {
		if text, _ := value.(string); text != "" {
			said[c.IdempotencyKey] = text
			return model.Result{}, nil
		}
		if mended {
			return model.Result{}, nil
		}
		return model.Result{}, endAs(ctx, &tr, c, end)
	}))}
	flow := strings.Replace(finallyFlow, "COMPENSATE", map[bool]string{true: ", compensate: {step: {value: \"\"}}"}[end == "undone"], 1)
	tr = startTrial(t, trial{store: db, types: types, flow: flow, what: what, payload: end, crash: crash})
	tr.drain(t)
	status := map[string]model.Status{"undone": model.Cancelled}[end]
	if status == "" {
		status = model.Status(end)
	}
	view, err := tr.engine.Engine().RunByID(t.Context(), tr.run)
	if err != nil || view.Status != status {
		t.Fatalf("%s: want the run %s, have %s %q, %v", what, status, view.Status, view.Reason, err)
	}
	tells := map[string]string{"succeeded": "none succeeded", "failed": "other skipped", "undone": "other skipped", "cancelled": "none skipped"}[end]
	keys := checkFinally(t, what, calls.Calls(), said, string(status), tells)
	if end == "failed" {
		mended = true
		before := len(calls.Calls())
		if _, err := tr.engine.Engine().Retry(t.Context(), tr.run, store.Actor{Name: "ann", Reason: "mended"}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		tr.drain(t)
		again := checkFinally(t, what+", retried", calls.Calls()[before:], said, "succeeded", "none skipped")
		if again[0] == keys[0] || again[1] == keys[1] {
			t.Errorf("%s: the retry made the calls of finally with the keys of the first end", what)
		}
	}
	return tr.engine.Saves()
}

// checkFinally returns the keys of release and of tell.
func checkFinally(t *testing.T, what string, calls []engine.Call, said map[string]string, status, tells string) (keys [2]string) {
	t.Helper()
	var order []string
	for _, c := range calls {
		i := slices.Index([]string{"work/finally/release", "work/finally/tell"}, c.Path)
		if i < 0 {
			if len(order) > 0 {
				t.Errorf("%s: %s was called after finally", what, c.Path)
			}
			continue
		}
		order = append(order, c.Path)
		if keys[i] != "" && keys[i] != c.IdempotencyKey {
			t.Errorf("%s: %s has two keys for one end", what, c.Path)
		}
		keys[i] = c.IdempotencyKey
	}
	if said[keys[0]] != status || said[keys[1]] != tells {
		t.Errorf("%s: want finally told %q and %q, have %q and %q", what, status, tells, said[keys[0]], said[keys[1]])
	}
	return keys
}
