package engine_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
	"procaas/engine/core"
	"procaas/engine/model"
)

const awaiting = `
flows:
  - {id: order}
pipelines:
  - id: place
    flow: order
    shared-state: {by: null}
    stages:
      - id: ask
        handlers: [{id: ask, step: {}}]
      - id: wait
        handlers:
          - id: approval
            await: {event: approved, where: !$ awaited.payload.sum == 7, timeout: 90m}
            result: {by: !$ sources.approval.response.payload.by}
            on-error: [{on: timeout, then: continue, result: {by: nobody}}]
      - id: tell
        handlers: [{id: tell, step: {value: !$ shared-state.by}}]
  - id: note
    flow: order
    stages: [{id: a, handlers: [{id: note, step: {}}]}]
`

// asking is awaiting with the handler inside of a pipeline that it calls.
var asking = strings.Replace(awaiting, `
          - id: approval
            await: {event: approved, where: !$ awaited.payload.sum == 7, timeout: 90m}
            result: {by: !$ sources.approval.response.payload.by}
            on-error: [{on: timeout, then: continue, result: {by: nobody}}]`, `
          - {id: inside, call: {pipeline: asked, with: {sum: 7}}, result: {by: !$ sources.inside.response.by}}`, 1) + `
  - id: asked
    inputs: {sum: {type: integer}}
    outputs: {by: !$ shared-state.by}
    shared-state: {by: null}
    stages:
      - id: wait
        handlers:
          - id: approval
            await: {event: approved, where: !$ awaited.payload.sum == inputs.sum, timeout: 90m}
            result: {by: !$ sources.approval.response.payload.by}
            on-error: [{on: timeout, then: continue, result: {by: nobody}}]
`

func approved(sum int, by string) model.Event {
	e := event("approved", "o1")
	e.Payload = map[string]any{"sum": sum, "by": by}
	return e
}

// Events that come before the handler waits, and while it does, are found; those that
// are not taken keep their order behind the run, and start no pipeline.
func TestAwaitedEventIsTakenByTheRun(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, yaml, at string
		early          bool
	}{
		{"before it waits", awaiting, "place/wait/approval", true},
		{"while it is parked", awaiting, "place/wait/approval", false},
		{"before a call waits", asking, "asked/wait/approval", true},
		{"while a call is parked", asking, "asked/wait/approval", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				asked := make(chan struct{})
				r.on("ask", func(context.Context, *engine.Call, any) (model.Result, error) {
					<-asked
					return model.Result{}, nil
				})
				e, _ := r.start(tc.yaml)
				run := r.submit(e, event("place", "o1"))
				if !tc.early {
					close(asked)
					pass(10 * time.Minute)
				}
				wrong := r.submit(e, approved(5, "ann"))
				note := r.submit(e, event("note", "o1"))
				right := r.submit(e, approved(7, "bob"))
				if tc.early {
					close(asked)
				}
				pass(10 * time.Second)
				r.settle(e, run, model.Succeeded)
				if v := r.view(e, run); v.SharedState["by"] != "bob" {
					t.Errorf("have %v", v.SharedState)
				}
				r.settle(e, right, model.Succeeded)
				if v := r.view(e, right); v.Reason != "taken by run "+run+" at "+tc.at || len(v.Handlers) > 0 {
					t.Errorf("the event that was taken: %+v", v)
				}
				r.settle(e, note, model.Succeeded)
				r.settle(e, wrong, model.Ignored)
			})
		})
	}
}

// A node that stops while the run waits leaves it to the next one, and so does the time.
func TestAwaitOutlivesItsNode(t *testing.T) {
	t.Parallel()
	for _, yaml := range []string{awaiting, asking} {
		synctest.Test(t, func(t *testing.T) { awaitBeyondANode(t, yaml) })
	}
}

func awaitBeyondANode(t *testing.T, yaml string) {
	r := newRig(t)
	e, stop := r.start(yaml)
	run := r.submit(e, event("place", "o1"))
	pass(10 * time.Minute)
	if v := r.view(e, run); v.Status != model.Parked || v.Due == nil {
		t.Fatalf("want it parked until its timeout, have %s", v.Status)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	e, _ = r.start(yaml)
	r.submit(e, approved(5, "ann"))
	pass(70 * time.Minute)
	if v := r.view(e, run); v.Status != model.Parked {
		t.Fatalf("want it parked still, have %s", v.Status)
	}
	pass(10*time.Minute + time.Second)
	r.settle(e, run, model.Succeeded)
	if v := r.view(e, run); v.SharedState["by"] != "nobody" {
		t.Errorf("have %v", v.SharedState)
	}
}

// However many events are pending that one handler has passed over, the run gets to the one
// behind them that another handler waits for.
func TestEventsOfOneHandlerHideNoneOfAnother(t *testing.T) {
	t.Parallel()
	live := core.Live{Now: noon}
	run := core.Begin(plan(t, `
flows:
  - {id: order}
pipelines:
- id: p
  flow: order
  stages:
  - id: s
    handlers:
    - {id: a, await: {event: paid, timeout: 1h}}
    - {id: b, await: {event: noted, where: !$ awaited.payload == 1, timeout: 1h}}
`), core.Start{ID: "r1", Event: model.Event{Type: "p"}})
	run.Ready(live)
	for position := range int64(100) {
		run.Offer([]model.Pending{{Run: "n", Position: position + 1, Event: model.Event{Type: "noted", Payload: 0}}}, live)
	}
	if a, ok := run.Awaits(); !ok || a.Heard != 100 {
		t.Errorf("want it to go on behind position 100, have %d", a.Heard)
	}
}
