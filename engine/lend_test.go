package engine_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
	"procaas/engine/intake"
	"procaas/engine/model"
)

const limited = `
pipelines:
  - id: work
    stages: [{id: a, handlers: [{id: one, step: {}, rate-limit: {rate: 20/s, burst: 1}}]}]
  - id: long
    stages: [{id: a, handlers: [{id: sleep, step: {}}]}]
`

// When the calls come to one of two nodes, the other one lends its part of the limit within a
// second, and has it back when calls come to it.
func TestAnIdleNodeLendsItsPartOfALimit(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		wake := make(chan struct{})
		r.on("sleep", func(ctx context.Context, _ *engine.Call, _ any) (model.Result, error) {
			select {
			case <-wake:
			case <-ctx.Done():
			}
			return model.Result{}, nil
		})
		other, _ := r.start(limited, func(o *engine.Options) { o.MaxInFlight = 1 })
		if _, err := other.Submit(t.Context(), []intake.Submission{{Event: event("long", "")}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the other one has its only run in hand
		busy, _ := r.start(limited, func(o *engine.Options) { o.MaxInFlight = 500 })
		pass(3 * time.Second)                     // until they know of each other
		stop := r.load(20*time.Millisecond, busy) // 50 a second
		pass(1500 * time.Millisecond)
		rate := func(d time.Duration) float64 {
			before := r.count("work/a/one")
			time.Sleep(d)
			return float64(r.count("work/a/one")-before) / d.Seconds()
		}
		if have := rate(5 * time.Second); have < 17 || have > 21 {
			t.Errorf("want nearly 20 calls a second on the one node that has calls, have %g", have)
		}
		close(wake) // now both have
		pass(2 * time.Second)
		if have := rate(5 * time.Second); have < 17 || have > 21 {
			t.Errorf("want 20 calls a second of both together, have %g", have)
		}
		stop()
	})
}

// One node alone has the whole limit a second after the others have left, even if it had lent it to them.
func TestALimitIsWholeAgainWhenOthersLeave(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		_, leave := r.start(limited)
		e, _ := r.start(strings.Replace(limited, "long", "other", 1))
		pass(2 * time.Second)
		stop := r.load(20*time.Millisecond, e)
		pass(5 * time.Second)
		if err := leave(); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		before := r.count("work/a/one")
		pass(5 * time.Second)
		if rate := float64(r.count("work/a/one")-before) / 5; rate < 18 || rate > 21 {
			t.Errorf("want 20 calls a second, have %g", rate)
		}
		stop()
	})
}
