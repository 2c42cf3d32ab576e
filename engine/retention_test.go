package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/store"
)

// Audit records go when they are old, one by one with the time that passes; the
// last one stays.
func TestAuditIsKeptAsLongAsOneIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, stop := r.start(three, func(o *engine.Options) { o.AuditRetention = 10 * time.Minute })
		change := guard.ControlChange{Mode: guard.ModeHold, Forever: true}
		for range 3 {
			if _, err := e.SetControl(context.Background(), "work", change, -1, store.Actor{Name: "ann"}); err != nil {
				t.Fatal(err)
			}
			pass(4 * time.Minute)
		}
		kept := func() (n int) {
			list, err := e.Audit(context.Background(), store.AuditFilter{Kind: store.AuditControl, Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			return len(list)
		}
		if n := kept(); n != 2 {
			t.Errorf("after 12 minutes: want what is younger than 10, have %d", n)
		}
		pass(time.Hour)
		if n := kept(); n != 1 {
			t.Errorf("want the last record kept, have %d", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Failed runs wait for people, the last ones alone where the pipeline says so; the runs
// of other pipelines are none of its business.
func TestAllButTheLastFailedRunsAreGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.do["one"] = func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{}, model.Permanent(errors.New("broken"))
		}
		bundle := `
flows:
  - {id: tick, key: !$ event.payload.id, on-failure: skip}
pipelines:
  - {id: tick, flow: tick, keep-failed: 2, stages: [{id: a, handlers: [{id: one, step: {}}]}]}
  - {id: other, flow: tick, stages: [{id: a, handlers: [{id: one, step: {}}]}]}
`
		e, stop := r.start(bundle)
		var ticks []string
		for i := range 5 {
			ticks = append(ticks, r.submit(e, event("tick", fmt.Sprint("k", i))))
			r.submit(e, event("other", fmt.Sprint("k", i)))
			synctest.Wait()
		}
		status := func(s model.Status, pipeline string) (ids []string) {
			records, _, err := r.store.Runs.List(context.Background(), store.RunFilter{Pipeline: pipeline, Status: s, Limit: 10, Oldest: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range records {
				ids = append(ids, r.ID)
			}
			return ids
		}
		if have := status(model.Failed, "tick"); len(have) != 5 {
			t.Fatalf("want 5 failed runs to begin with, have %v", have)
		}
		pass(3 * time.Minute)
		if have := status(model.Failed, "tick"); !slices.Equal(have, ticks[3:]) {
			t.Errorf("want the last two of %v to wait, have %v", ticks, have)
		}
		if have := status(model.Cancelled, "tick"); !slices.Equal(have, ticks[:3]) {
			t.Errorf("want the others to be cancelled, have %v", have)
		}
		if have := status(model.Failed, "other"); len(have) != 5 {
			t.Errorf("want all of another pipeline to wait, have %v", have)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// The retention of a pipeline is that of the current definition, also for runs that have ended before it. A node that cannot run the
// current one does not know it.
func TestRunsAreKeptAsLongAsTheirPipelineSays(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		pipelines := `
pipelines:
  - {id: brief, retention: %s, stages: [{id: a, handlers: [{id: one, step: {}}]}]}
  - {id: other, stages: [{id: a, handlers: [{id: one, step: {}}]}]}
`
		e, stop := r.start(fmt.Sprintf(pipelines, "1h"))
		brief, other := r.submit(e, event("brief", "k")), r.submit(e, event("other", "k"))
		left := func() (ids []string) {
			for _, id := range []string{brief, other} {
				if _, err := r.store.Runs.Run(context.Background(), id); err == nil {
					ids = append(ids, id)
				}
			}
			return ids
		}
		if _, err := r.store.Bundles.Activate(context.Background(), "newer", []byte("what only a newer program reads"), false, store.Actor{}); err != nil {
			t.Fatal(err)
		}
		pass(62 * time.Minute)
		if have := left(); len(have) != 2 {
			t.Errorf("want both runs left while the node cannot run the current definition, have %v", have)
		}
		r.activate(e, fmt.Sprintf(pipelines, "64m"))
		pass(time.Minute)
		if have := left(); len(have) != 2 {
			t.Errorf("want both runs left by the new retention, have %v", have)
		}
		pass(3 * time.Minute)
		if have := left(); !slices.Equal(have, []string{other}) {
			t.Errorf("want only run %s of the other pipeline left, have %v", other, have)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
