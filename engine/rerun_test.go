package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"procaas/engine"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
)

// charging is a flow whose last stage may have to be done again.
var charging = strings.ReplaceAll(`
flows:
  - {id: order, key: !$ event.payload.id, shared-state: {total: 0, seen: 0}}
pipelines:
  - id: work
    flow: order
    shared-state: {price: null, paid: 0, note: ''}
    stages:
      - id: price
        handlers:
          - {id: look, step: {value: !$ 7}, result: {price: !$ sources.look.response, seen: !$ shared-state.seen + 1}}
      - id: charge
        handlers:
          - {id: pay, step: {value: !$ shared-state.price + shared-state.paid},
             result: {paid: !$ shared-state.paid + shared-state.price, price: 0, total: !$ shared-state.total + 7}}
          - {id: note, step: {}, result: {note: LONG}}
      - id: tell
        handlers: [{id: mail, step: {value: !$ shared-state.paid}}, {id: wipe, step: {}, result: {note: gone}}]
`, "LONG", strings.Repeat("x", 2000))

// A run that has ended is run again as a new one, all of it or from a stage on, behind the others of its key. What it
// calls has new keys, and the two know each other.
func TestRunsAreRunAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(strings.ReplaceAll(charging, "xx", ""))
		by := store.Actor{Name: "ann", Reason: "refunded"}
		first := r.submit(e, event("work", "k"))
		was := r.settle(e, first, model.Succeeded)
		open := make(gate)
		r.on("look", open.do)
		busy := r.submit(e, event("work", "k"))
		synctest.Wait()
		plan, err := e.RerunPlan(t.Context(), first, "charge")
		if err != nil || plan.Ahead != 1 || !slices.Equal(plan.Kept, []string{"work/price/look"}) || plan.Key != "k" {
			t.Errorf("want a plan behind one run, which keeps one handler, have %+v, %v", plan, err)
		}
		before := len(r.calls.Calls())
		v, err := e.Rerun(t.Context(), first, "charge", by)
		if err != nil || v.ID == first || v.RerunOf != first || v.RerunFrom != "charge" || v.RerunBy != "ann" || v.Status != model.Waiting {
			t.Fatalf("want a run that waits, and runs %s again, have %+v, %v", first, v, err)
		}
		if _, err := e.Rerun(t.Context(), first, "", by); !isRefused(err, v.ID+" already does") {
			t.Errorf("want no second rerun meanwhile, have %v", err)
		}
		r.on("look", nil)
		close(open)
		r.settle(e, busy, model.Succeeded)
		v = r.settle(e, v.ID, model.Succeeded)
		if v.SharedState["paid"] != 7 || v.SharedState["seen"] != 2 || v.SharedState["total"] != 21 || len(v.Handlers) != 5 {
			t.Errorf("want the state before the stage, and what the key has by now, have %+v", v.SharedState)
		}
		if x, err := e.Explain(t.Context(), v.ID, "look"); err != nil || !strings.HasPrefix(x.Summary, "it was done by run "+first) {
			t.Errorf("want the first run named for what it did, have %q, %v", x.Summary, err)
		}
		var keys []string
		for _, c := range r.calls.Calls() {
			if c.Run == v.ID && c.Path == "work/price/look" {
				t.Error("want the first stage kept, have it called")
			}
			if c.Path == "work/charge/pay" {
				keys = append(keys, c.IdempotencyKey)
			}
		}
		slices.Sort(keys)
		if len(slices.Compact(keys)) != 3 || len(r.calls.Calls()) < before+4 {
			t.Errorf("want three charges with keys of their own, have %v", keys)
		}
		if was = r.view(e, first); was.RerunAs != v.ID || was.Status != model.Succeeded {
			t.Errorf("want the first run to name %s, have %+v", v.ID, was)
		}
		whole, err := e.Rerun(t.Context(), first, "", by)
		if err != nil {
			t.Fatal(err)
		}
		if whole = r.settle(e, whole.ID, model.Succeeded); whole.SharedState["seen"] != 3 || r.view(e, first).RerunAs != whole.ID {
			t.Errorf("want all of it run again, have %+v", whole)
		}
		audit, err := e.Audit(t.Context(), store.AuditFilter{Kind: store.AuditRun, Limit: 10})
		if err != nil || len(audit) != 2 || audit[1].Name != v.ID || audit[1].Reason != "refunded" {
			t.Errorf("want both reruns on record, have %+v, %v", audit, err)
		}
	})
}

// isRefused reports whether a rerun was refused with a text.
func isRefused(err error, text string) bool {
	refused, ok := errors.AsType[*intake.RerunError](err)
	return ok && strings.Contains(refused.Message, text)
}

// What cannot be run again is refused, and the message says why.
func TestRerunsAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(charging)
		refused := func(run, stage, text string) {
			t.Helper()
			if _, err := e.Rerun(t.Context(), run, stage, store.Actor{}); !isRefused(err, text) {
				t.Errorf("rerun from %q: want %q, have %v", stage, text, err)
			}
		}
		open := make(gate)
		r.on("look", open.do)
		done := r.submit(e, event("work", "k"))
		synctest.Wait()
		refused(done, "", "it has not ended, it is running")
		r.on("look", nil)
		close(open)
		r.settle(e, done, model.Succeeded)
		refused(done, "charges", `in the version of the run, pipeline work has no stage "charges"; did you mean charge?`)
		refused(done, "tell", "shared-state.note is not known as it was before stage tell: "+
			"it had more than 1024 bytes when work/tell/wipe replaced it")
		if _, err := e.Rerun(t.Context(), "no-such", "", store.Actor{}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("want no such run, have %v", err)
		}
		r.on("pay", func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{}, model.Permanent(errors.New("no money"))
		})
		failed := r.submit(e, event("work", "f"))
		r.settle(e, failed, model.Failed)
		refused(failed, "", "it has failed, and the later runs of its key wait for it")
		if _, err := e.Cancel(t.Context(), failed, store.Actor{}); err != nil {
			t.Fatal(err)
		}
		refused(failed, "tell", "it has not reached stage tell: it ended in stage charge")
	})
}

// The outcomes that a run takes over from another one are not its own to compensate.
func TestRerunsCompensateTheirOwnCallsOnly(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(strings.Replace(charging, "seen + 1}", "seen + 1}, compensate: {step: {}}", 1))
		done := r.submit(e, event("work", "k"))
		r.settle(e, done, model.Succeeded)
		fails := func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{}, model.Permanent(errors.New("no money"))
		}
		r.on("pay", fails)
		before := len(r.calls.Calls())
		v, err := e.Rerun(t.Context(), done, "charge", store.Actor{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if v = r.view(e, v.ID); !v.Status.Ended() || v.Status == model.Succeeded {
			t.Errorf("want the rerun failed, have %+v", v)
		}
		for _, c := range r.calls.Calls()[before:] {
			if strings.HasPrefix(c.Path, "work/price/") {
				t.Errorf("want nothing of the first stage called, have %s", c.Path)
			}
		}
	})
}

// A rerun waits for its turn, and finds another definition then. Where its state does not fit, it fails and says so.
func TestRerunsMeetAnotherDefinition(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		small := strings.ReplaceAll(charging, "xx", "")
		e, _ := r.start(small)
		done := r.submit(e, event("work", "k"))
		r.settle(e, done, model.Succeeded)
		open := make(gate)
		r.on("look", open.do)
		r.submit(e, event("work", "k"))
		synctest.Wait()
		v, err := e.Rerun(t.Context(), done, "charge", store.Actor{})
		if err != nil {
			t.Fatal(err)
		}
		r.activate(e, strings.Replace(small, "- id: price\n", "- {id: check, handlers: [{id: check, step: {}}]}\n      - id: price\n", 1))
		if _, err := e.RerunPlan(t.Context(), done, "charge"); err == nil {
			t.Error("want a plan refused while a rerun waits")
		}
		r.on("look", nil)
		close(open)
		why := "rerun of " + done + " from stage charge: it has left the stage of the handler work/check/check"
		if v = r.settle(e, v.ID, model.Failed); !strings.Contains(v.Error, why) {
			t.Errorf("want the rerun refused by the new definition, have %+v", v)
		}
		if _, err := e.Cancel(t.Context(), v.ID, store.Actor{}); err != nil {
			t.Fatal(err)
		}
		if _, err = e.RerunPlan(t.Context(), done, "charge"); !isRefused(err, "does not fit the present definition") {
			t.Errorf("want the plan refused by the new definition, have %v", err)
		}
		r.activate(e, "pipelines: [{id: other, stages: [{id: s, handlers: [{id: h, step: {}}]}]}]")
		_, err = e.Rerun(t.Context(), done, "", store.Actor{})
		if gone, ok := errors.AsType[*intake.Error](err); !ok || gone.Code != "unknown_event_type" {
			t.Errorf("want no pipeline for the event, have %v", gone)
		}
		if _, err = e.RerunPlan(t.Context(), done, "charge"); !isRefused(err, "pipeline work is gone; put it back") {
			t.Errorf("want the plan refused without the pipeline, have %v", err)
		}
	})
}
