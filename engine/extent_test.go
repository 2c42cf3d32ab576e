package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"procaas/engine/core"
	"procaas/engine/model"
)

// nested is a pipeline whose lists multiply, though none is long.
func nested(levels, elements int) string {
	var b strings.Builder
	b.WriteString("pipelines:\n")
	for i := range levels {
		id, call := fmt.Sprintf("p%d", i), fmt.Sprintf("call: {pipeline: p%d, with: {n: %d, text: !$ 'TEXT'}}", i+1, elements)
		inputs, n, text := "inputs: {n: {type: integer}, text: {}}", "inputs.n", "inputs.text"
		if i == 0 {
			inputs, n, text = "when: true", fmt.Sprintf("(event.payload?.n ?? %d)", elements), "event.payload?.text"
		}
		if i == levels-1 {
			call = "request: {n: !$ item}"
		}
		fmt.Fprintf(&b, "  - id: %s\n    %s\n    stages: [{id: s, handlers: [{id: go, for-each: {items: !$ '1..%s'}, %s}]}]\n", id, inputs, n,
			strings.Replace(call, "TEXT", text, 1))
	}
	return b.String()
}

// settleRun goes through a run with calls that succeed at once, and tells the most of them
// that were in flight at once.
func settleRun(t *testing.T, run *core.Run, live core.Live) (most int) {
	t.Helper()
	var underway []core.Attempt
	for range 2_000_000 {
		underway = run.Ready(live)
		most = max(most, len(underway))
		if run.Status().Ended() {
			return most
		}
		if len(underway) == 0 {
			t.Fatalf("the run waits for nothing, and is %s", run.Status())
		}
		for _, task := range underway {
			run.Finish(task.Ref(), core.Outcome{Result: model.Result{Response: 1}}, live)
		}
	}
	t.Fatal("the run does not end")
	return 0
}

// Lists inside of lists multiply: a run of 1000 × 1000 × 1000 elements fails when it gets to
// the bound, and says where, how many they are, and what to do.
func TestListsInsideOfListsAreBoundedAsAProduct(t *testing.T) {
	t.Parallel()
	p := plan(t, nested(4, 1000))
	live := core.Live{Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	run := core.Begin(p, core.Start{ID: "r1", Flow: "p0", Event: model.Event{ID: "e1", Type: "p0"}})
	if most := settleRun(t, run, live); most > 1000 {
		t.Errorf("want at most 1000 calls of a run at once, have %d", most)
	}
	c := run.Change()
	if c.Status != model.Failed || c.FailedPath != "p0/s/go" {
		t.Fatalf("want the run failed at p0/s/go, have %s at %q", c.Status, c.FailedPath)
	}
	for _, want := range []string{
		"p1/s/go: item", "p3/s/go: the run has had", "1000 elements more", "want at most 100000 in one run",
		"queue.put",
	} {
		if !strings.Contains(c.Error, want) {
			t.Errorf("want %q in the error, have\n%s", want, c.Error)
		}
	}
	if len(c.Checkpoint) > 8<<20 {
		t.Errorf("its checkpoint is %d bytes", len(c.Checkpoint))
	}
}

// What has been counted is not forgotten when a node dies, or a run would go on forever
// that brings its node down.
func TestWhatARunHasSpreadIsKept(t *testing.T) {
	t.Parallel()
	p := plan(t, nested(3, 100))
	live := core.Live{Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	start := core.Start{ID: "r1", Flow: "p0", Event: model.Event{ID: "e1", Type: "p0"}}
	run := core.Begin(p, start)
	for range 3000 {
		for _, task := range run.Ready(live) {
			run.Finish(task.Ref(), core.Outcome{Result: model.Result{Response: 1}}, live)
		}
		if run.Status().Ended() {
			break
		}
		change := run.Change()
		resumed, err := core.Resume(p, start, change.Checkpoint)
		if err != nil {
			t.Fatal(err)
		}
		run = resumed
	}
	if c := run.Change(); c.Status != model.Failed || !strings.Contains(c.Error, "want at most 100000 in one run") {
		t.Errorf("want a run of 100 × 100 × 100 elements failed, though its node dies again and again, have %s: %.300s", c.Status, c.Error)
	}
}

// What is kept multiplies as well: many inputs that are each within max-state are too much
// together.
func TestWhatARunKeepsIsBoundedAsAWhole(t *testing.T) {
	t.Parallel()
	p := plan(t, nested(4, 10))
	live := core.Live{Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	run := core.Begin(p, core.Start{ID: "r1", Flow: "p0", Event: model.Event{
		ID: "e1", Type: "p0", Payload: map[string]any{"text": strings.Repeat("x", 200_000)},
	}})
	settleRun(t, run, live)
	c := run.Change()
	if c.Status != model.Failed || !strings.Contains(c.Error, "and may keep 135266304; keep less") {
		t.Errorf("want a run failed that would keep 10 × 10 × 10 × 200 kB, have %s: %.300s", c.Status, c.Error)
	}
}
