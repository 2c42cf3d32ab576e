package engine_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
	"procaas/engine/model"
)

const keyed = `
pipelines:
  - id: work
    stages:
      - {id: a, handlers: [{id: each, for-each: {items: [1, 2]}, step: {value: !$ item}},
          {id: inside, call: {pipeline: sub}}, {id: send, step: {value: 1}}]}
  - {id: sub, inputs: {}, stages: [{id: a, handlers: [{id: one, step: {value: 1}}]}]}
  - {id: undone, stages: [{id: a, handlers: [{id: book, step: {value: 1}, compensate: {step: {value: 2}}},
      {id: deep, call: {pipeline: pay}, compensate: {step: {value: 3}}}]}, {id: b, handlers: [{id: bad, step: {}}]}]}
  - {id: pay, inputs: {}, stages: [{id: a, handlers: [{id: card, step: {value: 1}}]}]}
  - {id: more, stages: [{id: a, handlers: [{id: child, step: {value: 1}}]}]}
`

// After a restore from a backup, events are submitted again that were accepted since. Their
// runs are others, and call with the same keys, those of elements, of calls of pipelines, of emitted
// events and of compensations as well.
func TestKeysAreTheSameAfterARestore(t *testing.T) {
	t.Parallel()
	keys := func(what, id string) []string {
		var out []string
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.on("send", func(context.Context, *engine.Call, any) (model.Result, error) {
				return model.Result{Emit: []model.Event{{Type: "more"}}}, nil
			})
			r.on("bad", func(context.Context, *engine.Call, any) (model.Result, error) {
				return model.Result{}, model.Permanent(errors.New("no"))
			})
			e, _ := r.start(keyed)
			ev := event(what, "k")
			ev.ID = id
			ends := map[string]model.Status{"work": model.Succeeded, "undone": model.Cancelled}
			r.settle(e, r.submit(e, ev), ends[what])
			pass(2 * time.Second) // for the emitted event
			seen := map[string]bool{}
			for _, c := range r.calls.Calls() {
				seen[c.Path+" "+c.IdempotencyKey] = true
			}
			out = slices.Sorted(maps.Keys(seen))
		})
		return out
	}
	for _, what := range []string{"work", "undone"} {
		first, again, other := keys(what, "e1"), keys(what, "e1"), keys(what, "e2")
		if len(first) != 5 || !slices.Equal(first, again) {
			t.Errorf("%s: want 5 calls with the same keys, have %q and %q", what, first, again)
		}
		if slices.ContainsFunc(other, func(k string) bool { return slices.Contains(first, k) }) {
			t.Errorf("%s: want other keys for another event", what)
		}
		if slices.Equal(keys(what, ""), keys(what, "")) {
			t.Errorf("%s: want keys of the run for an event without an id", what)
		}
	}
}
