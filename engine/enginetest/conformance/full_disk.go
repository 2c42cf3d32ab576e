package conformance

import (
	"context"
	"sync/atomic"
	"testing"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
)

// full is a pipeline with a result that may be large.
const full = `
pipelines:
  - id: work
    shared-state: {kept: null}
    stages:
      - {id: a, handlers: [{id: make, step: {}, result: {kept: !$ sources.make.response}}]}
      - {id: b, handlers: [{id: after, step: {}}]}
`

// A witness counts the failed commits of a run.
type witness struct {
	store.Ledger
	run    atomic.Pointer[string]
	failed atomic.Int64
}

// Commit implements [store.Ledger].
func (w *witness) Commit(ctx context.Context, node int64, changes []model.Change) ([]error, error) {
	errs, err := w.Ledger.Commit(ctx, node, changes)
	if run := w.run.Load(); err != nil && run != nil {
		for _, c := range changes {
			if c.Run == *run {
				w.failed.Add(1)
			}
		}
	}
	return errs, err
}

// Full checks, on a store of its own, that a run waits for the space that it needs, even if smaller
// writes of others succeed. fill takes the space of changes of a hundred kilobytes, and frees it.
func Full(t *testing.T, store store.Store, fill func(full bool)) {
	p := newProbe(t, store)
	begun, goOn := make(chan struct{}), make(chan struct{})
	step := enginetest.Scripted("step", func(_ context.Context, c *engine.Call, _ any) (model.Result, error) {
		if c.Event.ID != "large" || c.Path != "work/a/make" {
			return model.Result{Response: "small"}, nil
		}
		close(begun)
		<-goOn
		return model.Result{Response: long(200_000)}, nil
	})
	w := &witness{Ledger: store.Ledger}
	store.Ledger = w
	e := enginetest.Start(t, engine.Options{Store: store, Types: []engine.HandlerType{step}, Bundle: enginetest.Load(t, full, step)})
	// An event that shares a transaction with the large change is refused with it. Its sender
	// retries.
	submit := func(id string) (run string) {
		p.eventually("an event is taken in", func() bool {
			out, err := e.Submit(t.Context(), []intake.Submission{{Event: model.Event{ID: id, Source: "s", Type: "work"}}})
			if err != nil {
				return false
			}
			if out[0].Err != nil {
				t.Fatal(out[0].Err)
			}
			run = out[0].Receipt.Run
			return true
		})
		return run
	}
	ends := func(run string) {
		p.eventually("the run ends", func() bool { r, err := store.Runs.Run(t.Context(), run); return err == nil && r.Status.Ended() })
		p.wantStatus(run, model.Succeeded)
	}

	large := submit("large")
	<-begun
	fill(true)
	w.run.Store(&large)
	close(goOn)
	// Often enough for a store that refuses only this change.
	for i := int64(0); w.failed.Load() < 12; i++ {
		if seen := w.failed.Load(); i <= seen {
			ends(submit(""))
			p.eventually("another try", func() bool {
				if r := p.run(large); r.Status.Ended() {
					t.Fatalf("want the run to wait for room, have it %s after %d tries: %s", r.Status, seen, r.Error)
				}
				return w.failed.Load() > seen
			})
		}
	}
	fill(false)
	ends(large)
}
