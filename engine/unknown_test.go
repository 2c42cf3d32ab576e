package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/model"
	"procaas/engine/store"
)

// paying is a pipeline whose one call must not be repeated blindly.
const paying = `
flows:
  - {id: order, key: !$ event.payload.id, shared-state: {bill: null}}
pipelines:
  - id: work
    flow: order
    stages:
      - id: a
        handlers:
          - id: pay
            step: {}
            result: {bill: !$ sources.pay.response}
            on-unknown: ON-UNKNOWN
`

// diesInACall starts a run whose first call is in flight when its node dies, and
// another engine on the same store, where the handler does something else.
func diesInACall(r *rig, onUnknown string, then enginetest.Do) (second *engine.Engine, run string) {
	r.t.Helper()
	yaml := strings.Replace(paying, "ON-UNKNOWN", onUnknown, 1)
	stuck := make(gate)
	r.on("pay", stuck.do)
	store := &enginetest.Faulty{Store: r.store}
	first, stop := r.startOn(store.Ports(), yaml)
	run = r.submit(first, event("work", "k"))
	synctest.Wait()
	r.want("work/a/pay")
	store.Cut()
	stop()
	r.on("pay", then)
	second, _ = r.start(yaml)
	return second, run
}

func TestCallOfADeadNodeWaitsForAnOperator(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, run := diesInACall(r, "park", nil)
		later := r.submit(e, event("work", "k"))
		v := r.settle(e, run, model.Parked)
		if v.Due != nil || v.Handlers[0].Outcome != model.OutcomeUnknown || !strings.Contains(v.Reason, "retry the run") {
			t.Errorf("want the run to wait for an operator who is told so, have it due %v, %+v: %s", v.Due, v.Handlers, v.Reason)
		}
		pass(time.Hour)
		r.want("work/a/pay")
		if v := r.view(e, later); v.Status != model.Waiting || !v.Blocked {
			t.Errorf("want the later event of the key to wait, have it %s", v.Status)
		}
		if v, err := e.Entity(context.Background(), "order", "k"); err != nil || v.BlockedBy != run {
			t.Errorf("want the key blocked by %s, have %s and %v", run, v.BlockedBy, err)
		}
		if _, err := e.Retry(context.Background(), run, store.Actor{Name: "ann"}); err != nil {
			t.Fatal(err)
		}
		r.settle(e, run, model.Succeeded)
		r.settle(e, later, model.Succeeded)
		r.want("work/a/pay", "work/a/pay", "work/a/pay")
		if calls := r.calls.Of("work/a/pay"); calls[0].IdempotencyKey != calls[1].IdempotencyKey || calls[1].Attempt != 2 {
			t.Errorf("want the same call again, have %+v", calls[1])
		}
	})
}

func TestCallOfADeadNodeMayBeCancelled(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, run := diesInACall(r, "park", nil)
		later := r.submit(e, event("work", "k"))
		r.settle(e, run, model.Parked)
		if _, err := e.Cancel(context.Background(), run, store.Actor{Name: "ann", Reason: "paid by hand"}); err != nil {
			t.Fatal(err)
		}
		r.settle(e, later, model.Succeeded)
		if v := r.view(e, run); v.Status != model.Cancelled || v.Handlers[0].Outcome != model.OutcomeUnknown {
			t.Errorf("want the run cancelled with a call of unknown end, have it %s, %+v", v.Status, v.Handlers)
		}
	})
}

// answering returns answers, one for each call, and then that of the handler's own
// call; one with a status of 5xx is a failure.
func answering(answers ...model.Result) enginetest.Do {
	return func(context.Context, *engine.Call, any) (model.Result, error) {
		if len(answers) == 0 {
			return model.Result{Response: "called"}, nil
		}
		a := answers[0]
		answers = answers[1:]
		if a.Status >= 500 {
			return model.Result{}, &model.StatusError{Status: a.Status}
		}
		return a, nil
	}
}

func TestCallOfADeadNodeIsVerified(t *testing.T) {
	t.Parallel()
	const verify = `{verify: {step: {value: !$ run.id}, done: !$ "sources.pay.status == 200"}}`
	for name, c := range map[string]struct {
		answers []model.Result
		calls   int
		bill    string
	}{
		"it was made":                       {[]model.Result{{Status: 200, Response: "verified"}}, 2, "verified"},
		"it was not made":                   {[]model.Result{{Status: 404}}, 3, "called"},
		"it was not made, at second asking": {[]model.Result{{Status: 503}, {Status: 404}}, 4, "called"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				e, run := diesInACall(r, verify, answering(c.answers...))
				v := r.settle(e, run, model.Succeeded)
				if v.SharedState["bill"] != c.bill {
					t.Errorf("want the bill %s, have %v", c.bill, v.SharedState["bill"])
				}
				calls := r.calls.Of("work/a/pay")
				if len(calls) != c.calls {
					t.Fatalf("want %d calls, have %d", c.calls, len(calls))
				}
				for _, call := range calls[1:] {
					if again := call.Attempt == 2; again != (call.IdempotencyKey == calls[0].IdempotencyKey) {
						t.Errorf("attempt %d has the key %s, the first one %s", call.Attempt, call.IdempotencyKey, calls[0].IdempotencyKey)
					}
				}
			})
		})
	}
}

// A run that resumes by itself at its time is not an operator's to retry.
func TestRetryIsForFailedRunsAndThoseThatWaitForIt(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("pay", func(_ context.Context, c *engine.Call, _ any) (model.Result, error) {
			return model.Result{Until: c.Now.Add(time.Hour)}, nil
		})
		e, _ := r.start(strings.Replace(paying, "ON-UNKNOWN", "park", 1))
		run := r.submit(e, event("work", "k"))
		r.settle(e, run, model.Parked)
		if _, err := e.Retry(context.Background(), run, store.Actor{Name: "ann"}); !errors.Is(err, store.ErrConflict) {
			t.Errorf("want ErrConflict for a run that waits for its time, have %v", err)
		}
	})
}
