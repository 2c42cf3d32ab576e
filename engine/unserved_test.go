package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/definitions"
	"procaas/engine/model"
	"procaas/engine/store"
)

const (
	both = `
flows: [{id: f}]
pipelines:
  - {id: a, flow: f, stages: [{id: s, handlers: [{id: h, step: {value: 1}}]}]}
  - {id: b, flow: f, stages: [{id: s, handlers: [{id: h, step: {value: 1}}]}]}
`
	onlyA = `
flows: [{id: f}]
pipelines:
  - {id: a, flow: f, stages: [{id: s, handlers: [{id: h, step: {value: 1}}]}]}
`
)

// A reload that takes a pipeline away for which accepted events wait is refused, with their
// number, unless the operator gives them up.
func TestAReloadThatWouldDropEventsIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(both)
		var later []string
		for _, key := range []string{"k1", "k2"} {
			ev := event("b", key)
			ev.At = time.Now().Add(time.Hour)
			later = append(later, r.submit(e, ev))
		}
		done := r.submit(e, event("b", "k3"))
		r.settle(e, done, model.Succeeded)
		by := store.Actor{Name: "ann", Reason: "no b"}
		before := e.Bundle().Hash

		var waits *definitions.DropError
		if _, err := e.Load(context.Background(), r.bundle(onlyA), by); !errors.As(err, &waits) || len(waits.Waits) != 1 ||
			waits.Waits[0] != (definitions.Waits{Pipeline: "b", Events: 2}) {
			t.Fatalf("want a refusal that counts 2 events of b, have %v", err)
		}
		if !strings.Contains(waits.Error(), "2 in all (b: 2)") || !strings.Contains(waits.Error(), "--drop") {
			t.Errorf("want a message with the number and the remedy, have %s", waits)
		}
		if e.Bundle().Hash != before {
			t.Error("want the definition before to stay")
		}
		if _, err := e.LoadAndDrop(context.Background(), r.bundle(onlyA), by); err != nil {
			t.Fatal(err)
		}
		for _, run := range later {
			if v := r.settle(e, run, model.Cancelled); !strings.Contains(v.Reason,
				"dropped by a reload, since no pipeline serves its event: no b") {
				t.Errorf("want the reason, have %q", v.Reason)
			}
		}
	})
}

// Files may lose a pipeline while no node runs. The events that wait for it stay where they
// are, and run when a definition serves them again.
func TestEventsWaitUntilAPipelineServesThem(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, stop := r.start(both)
		ev := event("b", "k")
		ev.At = time.Now().Add(time.Minute)
		run := r.submit(e, ev)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		e = r.engine(r.store, onlyA, func(o *engine.Options) { o.Overrule = true })
		r.run(e)
		pass(2 * time.Minute)
		v := r.view(e, run)
		if v.Status != model.Parked || v.Bundle != "" || !strings.Contains(v.Reason, "no pipeline of flow f serves b; it waits until a "+
			"definition does") {
			t.Fatalf("want the event to wait, and to say why, have %+v", v)
		}
		behind := r.submit(e, event("a", "k"))
		pass(10 * time.Second)
		if v := r.view(e, behind); v.Status != model.Waiting {
			t.Errorf("want the events of the key in order, have the second one %s", v.Status)
		}
		if _, err := e.Load(context.Background(), r.bundle(both), store.Actor{Name: "ann"}); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		r.settle(e, run, model.Succeeded)
		r.settle(e, behind, model.Succeeded)
	})
}

// What was ignored may be retried, such as an event that no when was for.
func TestIgnoredRunsCanBeRetried(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(strings.Replace(onlyA, "{id: a, flow: f,", "{id: a, flow: f, when: !$ \"event.key == 'other'\",", 1))
		run := r.submit(e, event("a", "k"))
		r.settle(e, run, model.Ignored)
		if _, err := e.Load(context.Background(), r.bundle(onlyA), store.Actor{Name: "ann"}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Retry(context.Background(), run, store.Actor{Name: "ann"}); err != nil {
			t.Fatal(err)
		}
		r.settle(e, run, model.Succeeded)
	})
}

const (
	twoMoves = `
flows:
  - id: f
    states: {initial: new, final: [over], otherwise: reject, transitions: [{from: new, on: [a], to: open}, {from: [new, open], on: [b], to: over}]}
pipelines:
  - {id: a, flow: f, stages: [{id: s, handlers: [{id: h, step: {value: 1}}]}]}
  - {id: b, flow: f, stages: [{id: s, handlers: [{id: h, step: {value: 1}}]}]}
`
	moved   = "from: [new, open], on: [b]"
	oneMove = "from: [open], on: [b]"
)

// fewerMoves is twoMoves without the transition of b from the state new.
func fewerMoves() string { return strings.Replace(twoMoves, moved, oneMove, 1) }

// An accepted event waits in a state that it leaves by a transition. A reload that takes only the
// transition away is refused, and a start with such files uses the current definition.
func TestTransitionsThatAcceptedEventsNeedStay(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, stop := r.start(twoMoves)
		submit := func(kind, key string) string {
			ev := event(kind, key)
			ev.At = time.Now().Add(time.Hour)
			return r.submit(e, ev)
		}
		needs := submit("b", "k1")
		r.settle(e, r.submit(e, event("a", "k2")), model.Succeeded)
		fits := submit("b", "k2") // its key is open, where both definitions accept it
		by := store.Actor{Name: "ann", Reason: "less"}
		before := e.Bundle().Hash

		var waits *definitions.DropError
		if _, err := e.Load(context.Background(), r.bundle(fewerMoves()), by); !errors.As(err, &waits) || len(waits.Waits) != 1 ||
			waits.Waits[0] != (definitions.Waits{Pipeline: "b", Events: 1}) {
			t.Fatalf("want a refusal that counts one event of b, have %v", err)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		e = r.engine(r.store, fewerMoves())
		r.run(e)
		pass(time.Minute)
		if have := e.Bundle().Hash; have != before || e.Healthy(context.Background()) != nil {
			t.Fatalf("want the start with the definition %s that events wait for, have %s", before, have)
		}
		if !strings.Contains(r.log.String(), "a reload would refuse them") {
			t.Error("want the log to say that the files are not used")
		}
		pass(2 * time.Hour)
		r.settle(e, needs, model.Succeeded)
		r.settle(e, fits, model.Succeeded)
		if _, err := e.Load(context.Background(), r.bundle(fewerMoves()), by); err != nil {
			t.Errorf("want the reload when nothing waits, have %v", err)
		}
	})
}

// A start with files from which a pipeline is gone uses the current definition, too.
func TestAStartThatWouldDropEventsUsesTheCurrentDefinition(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, stop := r.start(both)
		ev := event("b", "k")
		ev.At = time.Now().Add(time.Minute)
		run := r.submit(e, ev)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		e = r.engine(r.store, onlyA)
		r.run(e)
		pass(2 * time.Minute)
		r.settle(e, run, model.Succeeded)
	})
}
