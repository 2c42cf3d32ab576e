package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/core"
	"procaas/engine/explain"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/store"
)

const explainedInside = `
pipelines:
  - id: work
    stages:
      - id: a
        handlers: [{id: ask, critical: false, call: {pipeline: part, with: {n: 7}}}]
      - id: b
        for-each: {items: [x, y, z], max-parallel: 1}
        shared-state: {}
        handlers:
          - {id: tell, critical: false, enabled: !$ index > 5, step: {}}
          - {id: deep, call: {pipeline: part, with: {n: !$ index}}}
      - id: c
        handlers: [{id: many, for-each: {items: [1, 2], max-parallel: 1}, step: {value: !$ item}}]
      - id: d
        handlers: [{id: last, step: {}}]
  - id: part
    inputs: {n: {type: integer}}
    stages:
      - id: p
        handlers: [{id: one, step: {}, compensate: {step: {}}}]
      - id: q
        handlers: [{id: two, critical: false, enabled: !$ inputs.n > 100, step: {}}]
      - id: r
        handlers: [{id: three, step: {value: !$ inputs.n}}]
      - id: s
        handlers: [{id: four, step: {}}]
`

// What runs inside of calls, elements and items is explained as far as it is kept, at each
// place or at the one that is asked for, and is a part of the story.
func TestExplainLooksInsideOfCallsAndElements(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, explainedInside)
	e := r.v.Engine()
	bad := "1"
	r.on("three", func(_ context.Context, _ *engine.Call, value any) (model.Result, error) {
		if n := fmt.Sprint(value); n == "7" || n == bad {
			return model.Result{}, model.Permanent(errors.New("no"))
		}
		return model.Result{}, nil
	})
	r.on("many", func(_ context.Context, _ *engine.Call, value any) (model.Result, error) {
		if fmt.Sprint(value) == "2" {
			return model.Result{}, model.Permanent(errors.New("not two"))
		}
		return model.Result{}, nil
	})
	run := r.submit(e, model.Event{Type: "work", Payload: map[string]any{}})
	r.drain()
	if v := r.view(e, run); v.Status != model.Failed {
		t.Fatalf("want the run failed, have %+v", v)
	}
	r.wantExplained(run, "work/a/ask>part/r/three", "error", "in the call by work/a/ask: it ran, and gave up after its first attempt: no")
	r.wantExplained(run, "ask>part/p/one/compensate", "ran", "in the call by work/a/ask: it ran, and its first attempt succeeded")
	r.wantExplained(run, "ask>two", "enabled", "in the call by work/a/ask: it was left out: enabled is false: inputs.n > 100")
	r.wantExplained(run, "ask>four", "not_reached", "the call by work/a/ask, which is failed, has not got to it")
	r.wantExplained(run, "work/b[1]>work/b/deep>part/r/three", "error", "item 1, in the call by work/b/deep: it ran, and gave up after "+
		"its first attempt: no")
	x := r.wantExplained(run, "part/r/three", "error", "item 1, in the call by work/b/deep: it ran")
	if !strings.Contains(x.Summary, "in the call by work/a/ask: it is failed: no") ||
		!strings.Contains(x.Summary, "in the items that are done, in the call by work/b/deep: it is succeeded") {
		t.Errorf("want all places, have %s", x.Summary)
	}
	r.wantExplained(run, "tell", "enabled", "it was left out: enabled is false: index > 5")
	r.wantExplained(run, "many[0]", "not_reached", "nothing is known of item 0")
	r.wantExplained(run, "last", "not_reached", "the run failed in ")
	for _, c := range []struct{ path, want string }{
		{"ask>thre", "has no handler ask>thre; did you mean three?"},
		{"last[0]", "has no handler last[0]"},
		{"last>part/r/three", "has no handler last>part/r/three"},
	} {
		if _, err := e.Explain(t.Context(), run, c.path); !errors.Is(err, explain.ErrNoHandler) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want %q, have %v", c.path, c.want, err)
		}
	}
	story, err := e.Story(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	var told strings.Builder
	for _, s := range append(story.Stages[0].Steps, story.Stages[1].Steps...) {
		told.WriteString(s.Path + " " + s.Outcome + ": " + s.Summary + "\n")
	}
	for _, want := range []string{
		"part/p/one/compensate succeeded: in the call by work/a/ask: it ran",
		"part/s/four absent: the call by work/a/ask, which is failed, has not got to it",
		"part/r/three failed: item 1, in the call by work/b/deep: it ran, and gave up",
		"work/b/tell skipped: in the items that are done: it was left out",
	} {
		if !strings.Contains(told.String(), want) {
			t.Errorf("want %q told, have\n%s", want, told.String())
		}
	}
	bad = "none"
	if _, err := e.Retry(t.Context(), run, store.Actor{Name: "test"}); err != nil {
		t.Fatal(err)
	}
	r.drain()
	r.wantExplained(run, "many[0]", "ran", "item 0: it ran")
	r.wantExplained(run, "work/c/many[1]", "error", "item 1: it ran, and gave up after its first attempt: not two")
	r.wantExplained(run, "many[7]", "not_reached", "nothing is known of item 7")
}

// A call that failed, was not critical, and has undone its own keeps no run from moving.
func TestRunMovesOnAfterACallThatUndidItself(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, explainedInside)
	e := r.v.Engine()
	r.on("three", func(_ context.Context, _ *engine.Call, value any) (model.Result, error) {
		if fmt.Sprint(value) == "7" {
			return model.Result{}, model.Permanent(errors.New("no"))
		}
		return model.Result{}, nil
	})
	hold := guard.ControlChange{Mode: guard.ModeHold, Forever: true}
	if _, err := e.SetControl(t.Context(), "work/d/last", hold, -1, store.Actor{Name: "Ann", Reason: "later"}); err != nil {
		t.Fatal(err)
	}
	run := r.submit(e, model.Event{Type: "work", Payload: map[string]any{}})
	if err := r.v.Until(t.Context(), r.began.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	r.wantExplained(run, "ask>one/compensate", "ran", "its first attempt succeeded")
	r.wantExplained(run, "last", "switch", "it waits: held at")
	if err := core.Fits(nil, e.Plans()[0], r.view(e, run)); err != nil {
		t.Errorf("want the run free to move, have %v", err)
	}
}
