package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/engine/store"
)

const buffering = `
flows:
  - {id: order}
pipelines:
  - id: place
    flow: order
    shared-state: {by: null}
    stages:
      - id: wait
        handlers:
          - id: approval
            await: {event: approved, where: !$ awaited.payload.sum == 7, timeout: 90m, buffered: true, max-age: 10m}
            result: {by: !$ sources.approval.response.payload.by}
            on-error: [{on: timeout, then: continue, result: {by: nobody}}]
  - id: other
    flow: order
    stages: [{id: a, handlers: [{id: ask, await: {event: approved, timeout: 1s}, on-error: [{on: timeout, then: continue}]}]}]
`

// An event that came before its run is kept, lets its key go on, and is taken once by the run that awaits it.
func TestEarlierEventIsTakenByTheRun(t *testing.T) {
	for _, yaml := range []string{buffering, strings.Replace(buffering, "{id: order}", `
    id: order
    states: {initial: new, transitions: [{from: new, on: [place, other], to: new}], otherwise: reject}`, 1)} {
		t.Run("", func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				e, stop := r.start(yaml)
				wrong, right, spare := r.submit(e, approved(5, "ann")), r.submit(e, approved(7, "bob")), r.submit(e, approved(7, "cid"))
				pass(time.Minute)
				for _, id := range []string{wrong, right, spare} {
					if v := r.view(e, id); v.Status != model.Waiting || v.Reason != "kept for a run that awaits it" || v.Due == nil {
						t.Fatalf("want it kept until a time, have %+v", v)
					}
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				e, _ = r.start(yaml)
				other := r.submit(e, event("other", "o1")) // which takes no earlier events
				pass(time.Minute)
				r.settle(e, other, model.Succeeded)
				run := r.submit(e, event("place", "o1"))
				pass(time.Second)
				r.settle(e, run, model.Succeeded)
				if v := r.view(e, run); v.SharedState["by"] != "bob" {
					t.Errorf("have %v", v.SharedState)
				}
				r.settle(e, right, model.Succeeded)
				if v := r.view(e, right); v.Reason != "taken by run "+run+" at place/wait/approval" {
					t.Errorf("have %q", v.Reason)
				}
				pass(10 * time.Minute)
				for _, id := range []string{wrong, spare} {
					r.settle(e, id, model.Ignored)
					if v := r.view(e, id); v.Reason != "no run of order o1 took it within 10m0s" {
						t.Errorf("have %q", v.Reason)
					}
				}
				if _, err := e.Retry(t.Context(), spare, operator); err != nil {
					t.Fatal(err)
				}
				pass(time.Second)
				again := r.submit(e, event("place", "o1"))
				pass(time.Second)
				r.settle(e, spare, model.Succeeded)
				r.settle(e, again, model.Succeeded)
			})
		})
	}
}

// What a key keeps is bounded. An event that finds no room is refused, or ends visibly if that was not known when it came.
func TestKeysKeepSoManyEvents(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(buffering)
		for range store.KeptEvents {
			r.submit(e, approved(5, "ann"))
			pass(time.Second)
		}
		refused := r.refuse(e, approved(7, "bob"))
		if refused.Code != "buffer_full" || !strings.Contains(refused.Message, "order o1 already keeps 100 events") {
			t.Errorf("have %+v", refused)
		}
		run := r.submit(e, event("place", "o1"))
		pass(time.Second)
		junk := r.submit(e, approved(5, "ann")) // a run is in flight, and might take it
		r.submit(e, approved(7, "bob"))
		pass(time.Second)
		r.settle(e, run, model.Succeeded)
		r.settle(e, junk, model.Ignored)
		if v := r.view(e, junk); v.Reason != "no run took it, and order o1 already keeps 100 events, or 4 MiB of them" {
			t.Errorf("have %q", v.Reason)
		}
	})
}

// An event is kept by the definition of its turn. If a later one serves its type, it starts the pipeline at its time, and else it ends.
func TestKeptEventsOutliveTheirAwait(t *testing.T) {
	place, rest, _ := strings.Cut(buffering, "            await: {event: approved, where")
	_, rest, _ = strings.Cut(rest, "on-error: [{on: timeout, then: continue, result: {by: nobody}}]\n")
	without := place + "            step: {}\n" + strings.Replace(rest, "await: {event: approved, timeout: 1s}, on-error: [{on: timeout, then: continue}]",
		"step: {}", 1)
	for want, yaml := range map[model.Status]string{
		model.Ignored:   without,
		model.Succeeded: without + "  - {id: approved, flow: order, stages: [{id: a, handlers: [{id: note, step: {}}]}]}\n",
	} {
		t.Run(string(want), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				e, stop := r.start(buffering)
				kept := r.submit(e, approved(7, "bob"))
				pass(time.Minute)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				e, _ = r.start(yaml)
				pass(5 * time.Minute)
				if v := r.view(e, kept); v.Status != model.Waiting {
					t.Errorf("want it kept, have %s", v.Status)
				}
				pass(5 * time.Minute)
				r.settle(e, kept, want)
			})
		})
	}
}

// The run has what it has taken, whatever becomes of it: a retry goes on with it, and nobody else gets it.
func TestARunThatFailsKeepsTheEarlierEvent(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		yaml := strings.Replace(buffering, "  - id: other", `      - id: tell
        handlers: [{id: tell, step: {}}]
  - id: other`, 1)
		broken := true
		r.on("tell", func(context.Context, *engine.Call, any) (model.Result, error) {
			if broken {
				return model.Result{}, model.Permanent(errors.New("broken"))
			}
			return model.Result{}, nil
		})
		e, _ := r.start(yaml)
		kept := r.submit(e, approved(7, "bob"))
		run := r.submit(e, event("place", "o1"))
		pass(time.Second)
		r.settle(e, run, model.Failed)
		r.settle(e, kept, model.Succeeded)
		broken = false
		if _, err := e.Retry(t.Context(), run, operator); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		r.settle(e, run, model.Succeeded)
		if v := r.view(e, run); v.SharedState["by"] != "bob" {
			t.Errorf("have %v", v.SharedState)
		}
	})
}
