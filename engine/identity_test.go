package engine_test

import (
	"context"
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
      - {id: a, handlers: [{id: each, for-each: {items: [1, 2]}, step: {value: !$ item}}, {id: inside, call: {pipeline: sub}}, {id: send, step: {value: 1}}]}
  - {id: sub, inputs: {}, stages: [{id: a, handlers: [{id: one, step: {value: 1}}]}]}
  - {id: more, stages: [{id: a, handlers: [{id: child, step: {value: 1}}]}]}
`

// After a restore from a backup, events are submitted again that were accepted since. Their
// runs are others, and call with the same keys, those of elements, of calls of pipelines and of emitted events as well.
func TestKeysAreTheSameAfterARestore(t *testing.T) {
	t.Parallel()
	keys := func(id string) []string {
		var out []string
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.on("send", func(context.Context, *engine.Call, any) (model.Result, error) {
				return model.Result{Emit: []model.Event{{Type: "more"}}}, nil
			})
			e, _ := r.start(keyed)
			ev := event("work", "k")
			ev.ID = id
			r.settle(e, r.submit(e, ev), model.Succeeded)
			time.Sleep(2 * time.Second) // for the emitted event
			seen := map[string]bool{}
			for _, c := range r.calls.Calls() {
				seen[c.Path+" "+c.IdempotencyKey] = true
			}
			out = slices.Sorted(maps.Keys(seen))
		})
		return out
	}
	first, again, other := keys("e1"), keys("e1"), keys("e2")
	if len(first) != 5 || !slices.Equal(first, again) {
		t.Errorf("want 5 calls with the same keys, have %q and %q", first, again)
	}
	if slices.ContainsFunc(other, func(k string) bool { return slices.Contains(first, k) }) {
		t.Error("want other keys for another event")
	}
	if slices.Equal(keys(""), keys("")) {
		t.Error("want keys of the run for an event without an id")
	}
}
