package enginetest_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"procaas/dsl"
	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/memory"
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

// TestACancelledRunUndoesOnceWhateverCrashes cancels a run from within one of its calls,
// and lets the node die at each of its checkpoints. What the run has done is undone, each
// once and the last first, by calls with the same key, and the run is cancelled.
func TestACancelledRunUndoesOnceWhateverCrashes(t *testing.T) {
	t.Parallel()
	stores := map[string]func(t *testing.T) engine.Store{
		"memory":   func(*testing.T) engine.Store { return memory.New(time.Now) },
		"sqlite":   func(t *testing.T) engine.Store { return openStore(t, filepath.Join(t.TempDir(), "undo.db")) },
		"postgres": func(t *testing.T) engine.Store { return openStore(t, enginetest.Postgres(t)) },
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := open(t)
			whole := cancelWithin(t, store, 0, false)
			for at := 1; at <= whole; at++ {
				cancelWithin(t, store, at, false)
				cancelWithin(t, store, at, true)
			}
		})
	}
}

func openStore(t *testing.T, dsn string) engine.Store {
	t.Helper()
	s, err := openSweepStore(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// cancelWithin runs one event to its end, with a crash at a checkpoint, and gives the
// number of checkpoints.
func cancelWithin(t *testing.T, store engine.Store, crashAt int, after bool) int {
	t.Helper()
	what := fmt.Sprintf("crash at checkpoint %d, after it: %t", crashAt, after)
	var calls enginetest.Recorder
	var v *engine.Virtual
	run := ""
	types := []engine.HandlerType{enginetest.Scripted("step", calls.Record(func(ctx context.Context, c *engine.Call, _ any) (engine.Result, error) {
		if strings.HasSuffix(c.Path, "/d") {
			_, err := v.Engine().Cancel(ctx, run, engine.Actor{Name: "ann", Reason: "enough"})
			if err != nil && !errors.Is(err, engine.ErrUndoing) {
				return engine.Result{}, err
			}
			return engine.Result{}, engine.Sleep(ctx, time.Second) // the node hears of it meanwhile
		}
		return engine.Result{}, nil
	}))}
	bundle, found := dsl.Load([]dsl.File{{Name: "undo.yaml", Data: []byte(undoFlow)}}, dsl.Options{Types: []dsl.Type{types[0].Type}})
	if bundle == nil {
		t.Fatal(found)
	}
	clock := engine.NewVirtualClock(time.Now())
	v, err := engine.NewVirtual(t.Context(), engine.VirtualOptions{
		Options: engine.Options{Store: store, Types: types, Bundle: bundle, Name: "test"},
		Clock:   clock, CrashAt: crashAt, CrashAfter: after,
	})
	if err != nil {
		t.Fatal(err)
	}
	submitted, err := v.Engine().Submit(t.Context(), []engine.Submission{{Event: engine.Event{
		Type: "work", ID: what, Source: t.Name(), Payload: map[string]any{}, Time: clock.Now(),
	}}})
	if err != nil || submitted[0].Err != nil {
		t.Fatal(err, submitted[0].Err)
	}
	run = submitted[0].Receipt.Run
	if _, err := v.Drain(t.Context(), clock.Now().Add(time.Hour)); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	checkUndone(t, what, v, run, calls.Calls())
	return v.Saves()
}

func checkUndone(t *testing.T, what string, v *engine.Virtual, run string, calls []engine.Call) {
	t.Helper()
	view, err := v.Engine().RunByID(t.Context(), run)
	if err != nil || view.Status != engine.Stopped || view.Reason != "enough" || view.Cancelling != "" {
		t.Fatalf("%s: want the run cancelled because of enough, have %s %q %q, %v", what, view.Status, view.Reason, view.Cancelling, err)
	}
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
