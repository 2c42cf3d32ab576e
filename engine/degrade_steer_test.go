package engine_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/fallback"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/stats"
	"procaas/engine/store"
)

func TestOperatorEndsAFallback(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		yaml := strings.Replace(degradable, "duration: 10s", "duration: 5m", 1)
		var bonus sick
		r.on("bonus", bonus.do)
		first, _ := r.start(yaml)
		second, _ := r.start(yaml)
		stop := r.orders(100*time.Millisecond, first, second)
		if ended, err := first.EndFallbacks(t.Context(), "work", operator); err != nil || len(ended) != 0 {
			t.Errorf("want nothing ended, have %v, %v", ended, err)
		}
		var refused *guard.ControlError
		if _, err := first.EndFallbacks(t.Context(), "wrok", operator); !errors.As(err, &refused) ||
			!strings.Contains(refused.Message, "did you mean work?") {
			t.Errorf("want an unknown path refused, have %v", err)
		}
		bonus.down.Store(true)
		waitFor(t, first, "work/b/bonus", fallback.Out, 6*time.Second)
		pass(30 * time.Second)
		bonus.down.Store(false)
		ended, err := second.EndFallbacks(t.Context(), "work/b", operator)
		if err != nil || !slices.Equal(ended, []string{"work/b/bonus"}) {
			t.Fatalf("want the handler back, have %v, %v", ended, err)
		}
		for _, e := range []*engine.Engine{first, second} {
			waitFor(t, e, "work/b/bonus", fallback.In, time.Second)
		}
		pass(time.Minute) // what failed before does not count any more
		if v := fallbackOf(t, first, "work/b/bonus"); v.State != fallback.In {
			t.Errorf("want it to stay in the flow, have %+v", v)
		}
		audits, err := first.Audit(t.Context(), store.AuditFilter{Kind: store.AuditFallback, Limit: 1})
		if err != nil || len(audits) != 1 || audits[0].By != "ann" || audits[0].Reason != "incident 7" || audits[0].After != nil {
			t.Errorf("want the operator in the audit, have %+v, %v", audits, err)
		}
		for _, run := range stop() {
			r.settle(first, run, model.Succeeded)
		}
	})
}

func TestKeptHandlerStaysInTheFlow(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var bonus sick
		r.on("bonus", bonus.do)
		bonus.down.Store(true)
		first, _ := r.start(degradable)
		second, _ := r.start(degradable)
		stop := r.orders(100*time.Millisecond, first, second)
		waitFor(t, first, "work/b/bonus", fallback.Out, 6*time.Second)
		r.set(first, "work/b", guard.ControlChange{Enabled: true, Mode: guard.ModeKeep, Until: time.Now().Add(time.Minute)})
		pass(time.Second)
		calls := r.count("work/b/bonus")
		pass(50 * time.Second)
		if n := r.count("work/b/bonus") - calls; n < 499 {
			t.Errorf("want all of 500 calls made while it is kept, have %d", n)
		}
		i := slices.IndexFunc(second.Handlers(), func(h stats.HandlerInfo) bool { return h.Path == "work/b/bonus" })
		if h := second.Handlers()[i]; len(h.Effective) == 0 || !strings.HasPrefix(h.Effective[0], "kept in the flow at work/b until ") ||
			h.Switch != "on" {
			t.Errorf("want it told that it is kept, have %+v", h)
		}
		pass(10 * time.Second)
		for _, e := range []*engine.Engine{first, second} {
			waitFor(t, e, "work/b/bonus", fallback.Out, 6*time.Second)
		}
		for _, run := range stop() {
			r.settle(first, run, model.Succeeded)
		}
	})
}

// Runs that wait for long to repeat a call need not when they can do without it.
func TestRunsDoNotWaitToRepeatWhatIsLeftOut(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		yaml := strings.Replace(degradable, "retry: {attempts: 1}", "retry: {attempts: 9, min-delay: 1h, max-delay: 1h, on: [any]}", 1)
		yaml = strings.Replace(yaml, "duration: 10s", "duration: 5m", 1)
		var bonus sick
		r.on("bonus", bonus.do)
		bonus.down.Store(true)
		first, _ := r.start(yaml)
		second, _ := r.start(yaml)
		stop := r.orders(100*time.Millisecond, first, second)
		waitFor(t, first, "work/b/bonus", fallback.Out, 6*time.Second)
		runs := stop()
		began := time.Now()
		for _, run := range runs {
			r.settle(second, run, model.Succeeded)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("want the runs to go on when the handler is out, and not %v later", took)
		}

		// A switch does the same.
		if _, err := first.EndFallbacks(t.Context(), "work", operator); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		run := r.submit(first, event("work", "one more"))
		r.settle(first, run, model.Parked)
		r.set(second, "work/b/bonus", guard.ControlChange{})
		began = time.Now()
		r.settle(first, run, model.Succeeded)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("want the run to go on when the handler is off, and not %v later", took)
		}
	})
}
