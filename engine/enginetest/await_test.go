package enginetest_test

import (
	"context"
	"testing"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
)

const awaitFlow = `
flows:
  - {id: order, key: !$ event.payload.id}
pipelines:
  - id: work
    flow: order
    shared-state: {by: null}
    stages:
      - id: s
        handlers: [{id: ask, step: {}}]
      - id: t
        handlers: [{id: sure, call: {pipeline: sure, with: {sum: 7}}, result: {by: !$ sources.sure.response.by}}]
      - id: u
        handlers: [{id: tell, step: {value: !$ shared-state.by}}]
  - id: sure
    inputs: {sum: {type: integer}}
    outputs: {by: !$ sources.approval.response.payload.by}
    stages:
      - id: v
        handlers: [{id: look, step: {}}]
      - id: w
        handlers: [{id: approval, await: {event: approved, where: !$ awaited.payload.sum == inputs.sum, timeout: 24h}}]
      - id: x
        handlers: [{id: note, step: {}}]
`

// TestAwaitInsideACallTakesOneEventWhateverCrashes lets the node die at each checkpoint of
// a run that waits inside of a call, for an event that comes before that. Whenever it
// dies, the run takes the event that fits, once, and the other keeps its place.
func TestAwaitInsideACallTakesOneEventWhateverCrashes(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, store store.Store) {
		eachCrash(func(c crash) int { return awaitWithin(t, store, c) })
	})
}

// awaitWithin runs one event to its end, and returns the number of checkpoints.
func awaitWithin(t *testing.T, store store.Store, crash crash) int {
	t.Helper()
	what := crash.String()
	var calls enginetest.Recorder
	var tr trial
	runs := map[int]string{} // of the events, by sum
	types := []engine.HandlerType{enginetest.Scripted("step",
		calls.Record(func(ctx context.Context, c *engine.Call, value any) (model.Result, error) {
			if c.Path == "sure/v/look" {
				var events []intake.Submission
				for sum, by := range map[int]string{5: "user-1", 7: "user-2"} {
					payload := map[string]any{"id": what, "sum": sum, "by": by}
					events = append(events, intake.Submission{Event: model.Event{
						Type: "approved", ID: what + by, Source: t.Name(), Payload: payload,
						Time: c.Event.Time,
					}})
				}
				done, err := tr.engine.Engine().Submit(ctx, events)
				if err != nil {
					return model.Result{}, err
				}
				for i, d := range done {
					if d.Err != nil {
						return model.Result{}, d.Err
					}
					runs[events[i].Event.Payload.(map[string]any)["sum"].(int)] = d.Receipt.Run
				}
			}
			return model.Result{Response: value}, nil
		}))}
	tr = startTrial(t, trial{
		store: store, types: types, flow: awaitFlow, what: what, payload: map[string]any{"id": what}, crash: crash,
	})
	tr.drain(t)
	for run, want := range map[string]model.Status{tr.run: model.Succeeded, runs[7]: model.Succeeded, runs[5]: model.Ignored} {
		if v, err := tr.engine.Engine().RunByID(t.Context(), run); err != nil || v.Status != want {
			t.Fatalf("%s: want %s %s, have %s %q %q, %v", what, run, want, v.Status, v.Error, v.Reason, err)
		}
	}
	told := false
	for _, c := range calls.Calls() {
		told = told || c.Path == "work/u/tell"
	}
	if v, err := tr.engine.Engine().RunByID(t.Context(), tr.run); err != nil || v.SharedState["by"] != "user-2" || !told {
		t.Errorf("%s: want it told by user-2, have %v, %v", what, v.SharedState, err)
	}
	return tr.engine.Saves()
}
