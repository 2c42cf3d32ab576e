package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// telling is a flow whose last handler may be left out.
const telling = `
services:
  - {id: push, url: "http://127.0.0.1:2", timeout: 1s, max-in-flight: 2}
flows:
  - {id: order, key: !$ event.payload.id, shared-state: {seen: 0}}
pipelines:
  - id: work
    flow: order
    deadline: 2m
    stages:
      - {id: a, handlers: [{id: one, step: {}, result: {seen: !$ shared-state.seen + 1}}]}
      - {id: b, deadline: 90s, handlers: [{id: tell, critical: false, retry: {attempts: 2}, step: {service: push}}, {id: two, critical: false, step: {}}]}
      - {id: c, handlers: [{id: three, step: {}}]}
`

// What a run has gone on without is counted, listed and told of, and can be made up: the call
// alone, with the key that it would have had.
func TestWhatIsLeftOutCanBeMadeUp(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var down atomic.Bool
		down.Store(true)
		open := make(gate)
		r.on("tell", func(ctx context.Context, c *engine.Call, v any) (model.Result, error) {
			if down.Load() {
				return model.Result{}, model.Permanent(errors.New("away"))
			}
			return open.do(ctx, c, v)
		})
		registry := prometheus.NewRegistry()
		e, stop := r.start(telling, func(o *engine.Options) { o.Metrics = stats.NewMetrics(registry) })
		failed := r.submit(e, event("work", "k"))
		r.settle(e, failed, model.Succeeded)
		by := store.Actor{Name: "ann", Reason: "push is back"}
		if _, err := e.SetControl(t.Context(), "work/b/tell", guard.ControlChange{Forever: true}, -1, by); err != nil {
			t.Fatal(err)
		}
		skipped := r.submit(e, event("work", "k"))
		r.settle(e, skipped, model.Succeeded)
		for reason, want := range map[string]float64{model.LeftByFailure: 1, model.LeftBySwitch: 1} {
			if have, _ := gauged(t, registry, "procaas_handler_left_out_total", "tell", "work", reason, "b"); have != want {
				t.Errorf("want %g left out by %s, have %g", want, reason, have)
			}
		}
		filter := store.RunFilter{LeftOut: "work/b/tell", Limit: 100}
		if p, err := e.Preview(t.Context(), filter); err != nil || p.Total != 2 {
			t.Fatalf("want two runs listed, have %+v, %v", p, err)
		}
		_, err := e.MakeUpAll(t.Context(), filter, by)
		if off, ok := errors.AsType[*records.OffError](err); !ok || !strings.Contains(off.Reason, "switched off at work/b/tell by ann") {
			t.Errorf("want a refusal while the handler is off, have %v", err)
		}
		if _, err := e.RemoveControl(t.Context(), "work/b/tell", -1, by); err != nil {
			t.Fatal(err)
		}
		pass(time.Hour) // all deadlines have passed
		before := len(r.calls.Calls())
		down.Store(false)
		if done, err := e.MakeUpAll(t.Context(), filter, by); err != nil || done.Done != 2 || done.MovedOn != 0 {
			t.Fatalf("want both to make it up, have %+v, %v", done, err)
		}
		pass(time.Second)
		if v := r.view(e, failed); v.Status != model.Running {
			t.Errorf("want the call under way, have %+v", v)
		}
		// The node stops meanwhile, and another one goes on.
		go stop()
		pass(time.Minute)
		next, _ := r.start(telling)
		close(open)
		for _, run := range []string{failed, skipped} {
			v := r.settle(next, run, model.Succeeded)
			if len(v.Handlers) != 4 || v.Generation != 1 {
				t.Errorf("want all four handlers, and the next generation, have %+v", v)
			}
			for _, h := range v.Handlers {
				if h.Outcome != model.OutcomeSucceeded {
					t.Errorf("want all to have succeeded, have %+v", h)
				}
			}
		}
		keys := map[string]map[string]bool{}
		for _, c := range r.calls.Calls()[before:] {
			if c.Path != "work/b/tell" {
				t.Errorf("want nothing but the handler to be called, have %s", c.Path)
			}
			if keys[c.Run] == nil {
				keys[c.Run] = map[string]bool{}
			}
			keys[c.Run][c.IdempotencyKey] = true
		}
		for _, c := range r.calls.Calls()[:before] {
			if c.Run == failed && c.Path == "work/b/tell" && !keys[failed][c.IdempotencyKey] {
				t.Errorf("want the key of the call that had failed, have %v", keys[failed])
			}
		}
		if len(keys) != 2 || len(keys[failed]) != 1 || len(keys[skipped]) != 1 {
			t.Errorf("want one key for each run, have %v", keys)
		}
		if p, err := next.Preview(t.Context(), filter); err != nil || p.Total != 0 {
			t.Errorf("want nothing left out, have %+v, %v", p, err)
		}
		if v, err := next.Entity(t.Context(), "order", "k"); err != nil || v.SharedState["seen"] != 2 {
			t.Errorf("want the key as the runs had left it, have %+v, %v", v, err)
		}
	})
}

// Nothing fails, and most runs lose a call: that is reported as if it had failed.
func TestHandlersThatWaitTooLongAreToldOf(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		push := &target{latency: time.Second}
		r.on("tell", push.do)
		registry := prometheus.NewRegistry()
		e, _ := r.start(crowded, func(o *engine.Options) { o.Metrics = stats.NewMetrics(registry) })
		stop := r.load(50*time.Millisecond, e)
		pass(20 * time.Second)
		h, _ := e.Handler("work/b/tell")
		if h.LeftOut < 50 || h.RecentRatio == nil || *h.RecentRatio != 1 {
			t.Errorf("want runs that went on without a handler that never fails, have %+v", h)
		}
		stop()
		r.succeeded(e, time.Minute)
		left := r.leftOut(e, "work/b/tell")
		if have, _ := gauged(t, registry, "procaas_handler_left_out_total", "tell", "work", model.LeftByWait, "b"); int(have) != left ||
			left == 0 {
			t.Errorf("want %d counted, have %g", left, have)
		}
		told := 0
		for _, line := range r.notices.lines() {
			if strings.HasPrefix(line, "handler-given-up work/b/tell ") && strings.Contains(line, ": left out after 2s: ") {
				told++
			}
		}
		if told != left {
			t.Errorf("want %d told of, have %d", left, told)
		}
	})
}

// What cannot be made up is refused, run by run.
func TestWhatCannotBeMadeUpIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("tell", func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{}, model.Permanent(errors.New("away"))
		})
		e, _ := r.start(`
pipelines:
  - id: work
    stages:
      - {id: a, handlers: [{id: tell, critical: false, for-each: {items: [1, 2]}, step: {}}]}
`)
		run := r.submit(e, event("work", ""))
		r.settle(e, run, model.Succeeded)
		done, err := e.MakeUpAll(t.Context(), store.RunFilter{LeftOut: "work/a/tell"}, store.Actor{Name: "ann"})
		if err != nil || done.Done != 0 || done.MovedOn != 1 {
			t.Errorf("want one that cannot, have %+v, %v", done, err)
		}
		r.settle(e, run, model.Succeeded)
	})
}
