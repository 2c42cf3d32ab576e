package engine_test

import (
	"strings"
	"testing"
	"time"

	"procaas/engine/checkpoint"
	"procaas/engine/core"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/store"
)

// A run among the elements of a repeated stage continues by the definition that the stage
// began with; before and behind it, the run may move to one that changes the stage.
func TestRunsMoveBeforeAndBehindARepeatedStage(t *testing.T) {
	t.Parallel()
	const whole = `
pipelines:
  - id: p
    shared-state: {all: null}
    stages:
      - id: before
        handlers: [{id: a, request: {}}]
      - id: lines
        for-each: {items: [1, 2]}
        shared-state: {one: null}
        handlers: [{id: b, request: {n: !$ item}, result: {one: !$ sources.b.response}}]
        result: {all: !$ sources.lines.response}
      - id: behind
        handlers: [{id: c, request: {all: !$ shared-state.all}}]
`
	more := strings.Replace(whole, "handlers: [{id: b,", "handlers: [{id: more, request: {n: !$ index}}, {id: b,", 1)
	plain := strings.NewReplacer("        for-each: {items: [1, 2]}\n        shared-state: {one: null}\n", "", "n: !$ item}, result: "+
		"{one: !$ sources.b.response}", "n: 1}, result: {all: !$ sources.b.response}",
		"        result: {all: !$ sources.lines.response}\n", "").Replace(whole)
	before := plan(t, whole)
	live := core.Live{Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	run := core.Begin(before, core.Start{ID: "r1", Flow: "p", Event: model.Event{ID: "e1", Type: "p"}})
	step := func() checkpoint.RunView {
		tasks := run.Ready(live)
		change := run.Change()
		for _, task := range tasks {
			run.Finish(task.Ref(), core.Outcome{Result: model.Result{Response: 1}}, live)
		}
		return records.View(store.RunRecord{Flow: "p", Pipeline: "p", Status: change.Status, Checkpoint: change.Checkpoint})
	}
	for _, c := range []struct{ where, more, plain string }{
		{where: "before"},
		{where: "lines", more: "it is among the elements of stage p/lines", plain: "it is among the elements of stage p/lines"},
		{where: "behind", plain: "names the handler p/lines, which the pipeline does not have"},
	} {
		v := step()
		for name, want := range map[string]string{more: c.more, plain: c.plain} {
			err := core.Fits(before, plan(t, name), v)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("in stage %s: want %q, have %v, going on by\n%s", c.where, want, err, name)
			}
		}
	}
}
