package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"procaas/engine"
	"procaas/engine/checkpoint"
	"procaas/engine/guard"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers"
)

// computing has pipelines that only compute, and some that almost do.
const computing = `
pipelines:
  - id: sums
    outputs: {sum: !$ shared-state.sum}
    shared-state: {sum: 0, twice: 0}
    stages:
      - {id: add, handlers: [{id: sum, set: {sum: !$ event.payload.a + event.payload.b}}]}
      - {id: double, handlers: [{id: twice, set: {twice: !$ shared-state.sum * 2}}]}
  - id: picks
    when: !$ event.payload.a > 1
    shared-state: {sum: 0}
    stages: [{id: add, handlers: [{id: sum, set: {sum: 1}}]}]
  - id: calls
    stages: [{id: one, handlers: [{id: step, step: {}}]}]
  - id: tells
    shared-state: {sum: 0}
    notify: [{id: hub, on: [succeeded], service: hub, path: /ended, secret: !secret HUB}]
    stages: [{id: add, handlers: [{id: sum, set: {sum: 1}}]}]
services: [{id: hub, url: "http://127.0.0.1:9"}]
`

// A watchedInbox keeps the results of the store.
type watchedInbox struct {
	store.Inbox
	fail func() error // after the events were stored

	mu    sync.Mutex // guards ended
	ended map[string]bool
}

// Accept implements [store.Inbox].
func (w *watchedInbox) Accept(ctx context.Context, node int64, runs []model.Intake) ([]store.Accepted, error) {
	out, err := w.Inbox.Accept(ctx, node, runs)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range out {
		w.ended[a.Run] = a.Ended
	}
	if failed := w.fail(); failed != nil {
		return nil, failed
	}
	return out, err
}

// endedAtOnce reports whether the store got a run with its end.
func (w *watchedInbox) endedAtOnce(run string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended[run]
}

// watchInbox lets a test see what the rig's store is given. The rig has the handler types of the product.
func (r *rig) watchInbox() *watchedInbox {
	w := &watchedInbox{Inbox: r.store.Inbox, fail: func() error { return nil }, ended: map[string]bool{}}
	r.store.Inbox = w
	r.types = append(r.types, handlers.All()...)
	return w
}

func sums(a, b int) model.Event {
	return model.Event{Type: "sums", Payload: map[string]any{"a": a, "b": b}}
}

// A run that only computes is stored with its end, and looks like one that was worked on.
func TestRunsThatOnlyComputeAreAcceptedWithTheirEnd(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		inbox := r.watchInbox()
		e, _ := r.start(computing)
		alone, keyed := r.submit(e, sums(2, 3)), sums(2, 3)
		keyed.Key = "k"
		worked := r.submit(e, keyed)
		if !inbox.endedAtOnce(alone) || inbox.endedAtOnce(worked) {
			t.Error("want the run without a key stored with its end, and that with a key not")
		}
		ids := map[string]bool{}
		have, want := r.view(e, alone), r.settle(e, worked, model.Succeeded)
		for _, v := range []*checkpoint.RunView{&have, &want} {
			ids[v.ID] = true
			v.ID, v.Key, v.Event = "", "", checkpoint.EventView{}
		}
		if d := cmp.Diff(want, have); d != "" {
			t.Errorf("-want as of a run that was worked on +have\n%s", d)
		}
		if have.SharedState["twice"] != 10 || len(ids) != 2 {
			t.Errorf("want 10 in the shared state, have %v", have.SharedState)
		}
	})
}

// What decides that a run is worked on as usual.
func TestRunsAreNotForeseenUnlessTheyOnlyCompute(t *testing.T) {
	for name, c := range map[string]struct {
		event  model.Event
		change func(*engine.Options)
		before func(*rig, *engine.Engine)
		ends   model.Status
	}{
		"it makes a call":            {event: model.Event{Type: "calls"}, ends: model.Succeeded},
		"somebody hears of its end":  {event: model.Event{Type: "tells"}, ends: model.Succeeded},
		"it fails":                   {event: model.Event{Type: "sums", Payload: map[string]any{"a": "x", "b": 1}}, ends: model.Failed},
		"no pipeline serves it":      {event: model.Event{Type: "picks", Payload: map[string]any{"a": 1}}, ends: model.Ignored},
		"its time comes later":       {event: model.Event{Type: "sums", At: time.Now().Add(time.Hour), Payload: sums(1, 2).Payload}, ends: model.Waiting},
		"its event is large":         {event: model.Event{Type: "picks", Payload: map[string]any{"a": 2, "b": strings.Repeat("x", 20<<10)}}, ends: model.Succeeded},
		"it is recorded":             {event: sums(1, 2), change: func(o *engine.Options) { o.Record = 100 }, ends: model.Succeeded},
		"an operator holds handlers": {event: sums(1, 2), before: func(r *rig, e *engine.Engine) { r.set(e, "sums/add/sum", guard.ControlChange{Mode: guard.ModeHold}) }, ends: model.Parked},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				inbox := r.watchInbox()
				if c.change == nil {
					c.change = func(*engine.Options) {}
				}
				e, _ := r.start(computing, c.change)
				if c.before != nil {
					c.before(r, e)
				}
				run := r.submit(e, c.event)
				if inbox.endedAtOnce(run) {
					t.Error("the run was stored with its end")
				}
				r.settle(e, run, c.ends)
			})
		})
	}
}

// Such runs take no room: they end although the node works on as many runs as it may, and runs of a queue do not wait for them.
func TestRunsThatOnlyComputeTakeNoRoom(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		inbox, held := r.watchInbox(), make(gate)
		r.on("step", held.do)
		e, _ := r.start(computing, func(o *engine.Options) { o.MaxInFlight = 2 })
		var busy []string
		for range 5 {
			busy = append(busy, r.submit(e, model.Event{Type: "calls"}))
		}
		synctest.Wait()
		mixed := []intake.Submission{{Event: sums(1, 1)}, {Event: model.Event{Type: "calls"}}, {Event: sums(2, 2)}}
		out, err := e.Submit(t.Context(), mixed)
		if err != nil {
			t.Fatal(err)
		}
		for i, o := range out {
			if ends := i != 1; inbox.endedAtOnce(o.Receipt.Run) != ends {
				t.Errorf("want run %d stored with its end: %v", i, ends)
			}
		}
		close(held)
		for _, run := range append(busy, out[1].Receipt.Run) {
			r.settle(e, run, model.Succeeded)
		}
	})
}

// When the answer of the store is lost, the sender repeats the event, and finds its only run.
func TestRunsThatOnlyComputeAreStoredOnceWhenTheAnswerIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		inbox := r.watchInbox()
		e, _ := r.start(computing)
		inbox.fail = func() error { return errors.New("the answer is lost") }
		ev := sums(2, 3)
		ev.ID = "one"
		if _, err := e.Submit(t.Context(), []intake.Submission{{Event: ev}}); err == nil {
			t.Fatal("want an error, since the answer was lost")
		}
		inbox.fail = func() error { return nil }
		out, err := e.Submit(t.Context(), []intake.Submission{{Event: ev}})
		if err != nil || !out[0].Receipt.Duplicate {
			t.Fatalf("want a duplicate, have %+v, %v", out, err)
		}
		r.settle(e, out[0].Receipt.Run, model.Succeeded)
		runs, _, err := r.store.Runs.List(t.Context(), store.RunFilter{Pipeline: "sums", Limit: 10})
		if err != nil || len(runs) != 1 {
			t.Errorf("want one run, have %+v, %v", runs, err)
		}
	})
}

// A node that others take for dead stores no end. The event waits, and its run begins with the next node.
func TestRunsThatOnlyComputeWaitWhenTheirNodeIsFenced(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		inbox := r.watchInbox()
		e, _ := r.start(computing)
		nodes, err := r.store.Ledger.Nodes(t.Context())
		if err != nil || len(nodes) != 1 {
			t.Fatalf("want one node, have %v, %v", nodes, err)
		}
		if err := r.store.Ledger.Leave(t.Context(), nodes[0].Node, nil); err != nil {
			t.Fatal(err)
		}
		run := r.submit(e, sums(2, 3))
		if inbox.endedAtOnce(run) {
			t.Error("want nothing ended by a node that is gone")
		}
		r.settle(e, run, model.Succeeded)
	})
}
