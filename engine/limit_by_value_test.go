package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/store"
)

// perCustomer is a pipeline whose calls have a limit for each customer.
func perCustomer(limit string) string {
	return `
pipelines:
  - id: work
    stages: [{id: a, handlers: [{id: one, step: {value: !$ event.payload.customer}, rate-limit: {` + limit + `, per: !$ event.payload.customer}}]}]
`
}

// ofCustomer is an event of a customer, which may be any data.
func ofCustomer(customer any, n int) model.Event {
	ev := event("work", fmt.Sprintf("%v-%d", customer, n))
	ev.Payload = map[string]any{"customer": customer}
	return ev
}

func TestLimitByValueIsOfEachValue(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, perCustomer("rate: 1/m, burst: 2"))
	r.on("one", func(_ context.Context, _ *engine.Call, value any) (model.Result, error) {
		r.note("%v", value)
		return model.Result{}, nil
	})
	for i := range 4 {
		r.submit(r.v.Engine(), ofCustomer("eve", i))
	}
	r.submit(r.v.Engine(), ofCustomer(7, 0))
	r.submit(r.v.Engine(), ofCustomer(true, 0))
	r.drain()
	var have []string
	for _, line := range r.history {
		if !strings.Contains(line, "work/a/one") && !strings.Contains(line, "succeeded") {
			have = append(have, line)
		}
	}
	if got, want := strings.Join(have, ", "), "0s eve, 0s eve, 0s 7, 0s true, 1m0s eve, 2m0s eve"; got != want {
		t.Errorf("want %s, have %s", want, got)
	}
	if kept, err := r.store.Limits.SweepLimits(t.Context()); err != nil || kept["work/a/one"] != 1 {
		t.Errorf("want one customer whose limit is in use, have %v, %v", kept, err)
	}
}

func TestLimitByValueRefusesWhatIsNoValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		customer any
		want     string
	}{
		{nil, "rate-limit: per: want text, a number or a boolean, have null"},
		{[]any{"eve"}, "rate-limit: per: want text, a number or a boolean, have a list"},
		{map[string]any{"id": "eve"}, "rate-limit: per: want text, a number or a boolean, have a mapping"},
	} {
		r := newVirtualRig(t, perCustomer("rate: 1/m"))
		if v := r.send(ofCustomer(c.customer, 0)); v.Status != model.Failed || !strings.Contains(v.Error, c.want) {
			t.Errorf("customer %v: want a failed run with %q, have %s: %s", c.customer, c.want, v.Status, v.Error)
		}
		if n := len(r.paths()); n != 0 {
			t.Errorf("customer %v: want no call, have %d", c.customer, n)
		}
	}
}

// A token that a call has taken, and cannot use because another limit keeps it back, must not be lost: with one call a day, the
// run would wait another day.
func TestLimitByValueReturnsTheTokensOfCallsThatDoNotStart(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, perCustomer("rate: 1/d"))
	r.set(r.v.Engine(), "work", guard.ControlChange{Enabled: true, RateLimit: "1/m"})
	for i, customer := range []string{"ann", "bob", "eve"} {
		r.submit(r.v.Engine(), ofCustomer(customer, i))
	}
	r.drain()
	r.wantHistory("0s work/a/one 1", "0s succeeded", "1m0s work/a/one 1", "1m0s succeeded", "2m0s work/a/one 1", "2m0s succeeded")
}

func TestLimitByValueSkips(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, strings.Replace(perCustomer("rate: 1/m, burst: 1, over: skip"), "id: one,", "id: one, critical: false,", 1))
	r.send(ofCustomer("eve", 0))
	v := r.send(ofCustomer("eve", 1))
	if h := v.Handlers[0]; h.Outcome != model.OutcomeSkipped || h.Reason != "over its rate limit of 1/m for each event.payload.customer" {
		t.Errorf("want the second call skipped, and its reason without the customer, have %s: %s", h.Outcome, h.Reason)
	}
}

// While a handler is out of the flow, single calls try whether it works again. They need tokens, too.
func TestLimitByValueLetsProbesThrough(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		broken := true
		r.on("one", func(context.Context, *engine.Call, any) (model.Result, error) {
			if broken {
				return model.Result{}, context.DeadlineExceeded
			}
			return model.Result{}, nil
		})
		e, _ := r.start(strings.Replace(perCustomer("rate: 10/s"), "id: one,", "id: one, critical: false, fallback: {min-calls: 3, duration: 2s},", 1))
		for i := range 30 {
			r.settle(e, r.submit(e, ofCustomer(i, 0)), model.Succeeded)
			pass(100 * time.Millisecond)
		}
		broken = false
		before := r.count("work/a/one")
		for i := range 60 {
			r.settle(e, r.submit(e, ofCustomer(i, 1)), model.Succeeded)
			pass(time.Second)
		}
		if n := r.count("work/a/one") - before; n < 20 {
			t.Errorf("want the handler back in the flow, have %d of 60 calls", n)
		}
	})
}

// The limit is one for all nodes, exactly: also while a store fails, and a node joins or leaves.
func TestLimitByValueIsForAllNodesTogether(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const customers, runs, burst, perSecond = 5, 40, 3, 2
		calls := map[any][]time.Time{}
		var mu sync.Mutex
		r.on("one", func(_ context.Context, _ *engine.Call, value any) (model.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			calls[value] = append(calls[value], time.Now())
			return model.Result{}, nil
		})
		yaml := perCustomer(fmt.Sprintf("rate: %d/s, burst: %d", perSecond, burst))
		first, leave := r.start(yaml)
		flaky := &flakyLimits{Limits: r.store.Limits}
		db := r.store
		db.Limits = flaky
		second, _ := r.startOn(db, yaml)
		nodes := []*engine.Engine{first, second}
		var ids []string
		for i := range runs * customers {
			ids = append(ids, r.submit(nodes[i%2], ofCustomer(fmt.Sprint("c", i%customers), i)))
		}
		pass(5 * time.Second)
		if err := leave(); err != nil {
			t.Error(err)
		}
		r.start(yaml)
		pass(time.Minute)
		for _, id := range ids {
			r.settle(second, id, model.Succeeded)
		}
		mu.Lock()
		defer mu.Unlock()
		for customer, at := range calls {
			for i := range at {
				for j := i; j < len(at); j++ {
					window := at[j].Sub(at[i])
					if n, most := j-i+1, burst+int(perSecond*(window+50*time.Millisecond).Seconds()); n > most {
						t.Fatalf("customer %v: want at most %d calls in %s, have %d", customer, most, window, n)
					}
				}
			}
			if took := at[len(at)-1].Sub(at[0]); took > 40*time.Second {
				t.Errorf("customer %v: want the limit used, %d calls took %s", customer, len(at), took)
			}
		}
		if flaky.lost == 0 {
			t.Error("want some answers of the store lost")
		}
	})
}

// flakyLimits loses each fifth answer.
type flakyLimits struct {
	store.Limits
	asked, lost int
}

func (f *flakyLimits) TakeTokens(ctx context.Context, asks []store.TokenAsk, rows int) ([]store.Token, error) {
	out, err := f.Limits.TakeTokens(ctx, asks, rows)
	f.asked++
	if err == nil && f.asked%5 == 0 {
		f.lost++
		return nil, errors.Join(err, enginetest.ErrInjected)
	}
	return out, err
}
