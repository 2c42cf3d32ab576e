package engine_test

import (
	"context"
	"testing"
	"time"

	"procaas/engine/core"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/store"
)

// fuzzPipeline has something of everything that a checkpoint keeps.
const fuzzPipeline = `
flows:
- id: f
  key: !$ event.payload.id
  shared-state: {kept: 0}
pipelines:
- id: p
  flow: f
  shared-state: {a: 1}
  stages:
  - id: s
    handlers:
    - {id: one, request: {}, result: {a: !$ sources.one.response}, retry: {attempts: 0, on: [any]}}
    - {id: two, critical: false, request: {}, fallback: {result: {kept: 2}}}
  - id: t
    handlers:
    - {id: three, request: {x: !$ sources.one.response, y: !$ shared-state.kept}}
`

func FuzzResume(f *testing.F) {
	plan := plan(f, fuzzPipeline)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	start := core.Start{ID: "r", Flow: "f", Key: "k", Event: model.Event{ID: "e", Type: "p"}}
	run := core.Begin(plan, start)
	live := core.Live{Now: now}
	for range 4 {
		for i, task := range run.Ready(live) {
			o := core.Outcome{Result: model.Result{Response: map[string]any{"n": 1}}}
			if i == 0 {
				o.Err = context.DeadlineExceeded
			}
			f.Add(run.Change().Checkpoint, 0)
			run.Finish(task.Ref(), o, live)
			f.Add(run.Change().Checkpoint, 1)
		}
		live.Now = live.Now.Add(time.Second)
	}
	f.Add([]byte(`{"v":1,"pipeline":"p","stage":0,"ended":"failed","handlers":[{"path":"p/s/one","outcome":"failed"}]}`), 1)
	f.Fuzz(func(t *testing.T, checkpoint []byte, generation int) {
		start := start
		start.Generation = generation
		records.View(store.RunRecord{Status: model.Running, Checkpoint: checkpoint})
		run, err := core.Resume(plan, start, checkpoint)
		if err != nil {
			return
		}
		live := core.Live{Now: now}
		for range 10 {
			for _, task := range run.Ready(live) {
				run.Finish(task.Ref(), core.Outcome{}, live)
			}
			c := run.Change()
			if _, err := core.Resume(plan, start, c.Checkpoint); err != nil {
				t.Fatalf("have %v of the run's own checkpoint %s", err, c.Checkpoint)
			}
			if next := run.Next(); !next.IsZero() {
				live.Now = next
			}
		}
	})
}
