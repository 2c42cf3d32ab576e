package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// gauged reads a gauge by the values of its labels, in the order of their names.
func gauged(t *testing.T, registry *prometheus.Registry, name string, labels ...string) (value float64, ok bool) {
	t.Helper()
	value, ok = samples(t, registry)[strings.Join(append([]string{name}, labels...), " ")]
	return value, ok
}

// A service that every run needs is down: nothing waits in the queue, and no run fails.
func TestAnOutageIsSeenWithinTenSeconds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := &target{latency: 10 * time.Millisecond, failWith: refused}
		r.on("one", s.do)
		registry := prometheus.NewRegistry()
		e, _ := r.start(guarded, func(o *engine.Options) { o.Metrics = stats.NewMetrics(registry) })
		stop := r.load(100*time.Millisecond, e)
		pass(time.Minute)
		if v := e.Services()[0]; v.FailingSince != nil || !v.Critical || v.SuccessRatio == nil || *v.SuccessRatio != 1 {
			t.Errorf("want a service that answers, have %+v", v)
		}
		down := time.Now()
		s.down.Store(true)
		pass(7 * time.Second)
		if v := e.Services()[0]; v.FailingSince == nil || v.FailingSince.Before(down) || v.FailingSince.Sub(down) > 2*time.Second ||
			v.LastError != refused.Error() {
			t.Errorf("want the service seen to fail since %s, have %+v", down, v)
		}
		pass(113 * time.Second)
		view := e.Backlog()
		if len(view.Parked) != 2 || view.Parked[1].Reason != stats.ParkedFailed || view.Counted == nil {
			t.Fatalf("want one thing that runs wait for, besides the few that failed at first, have %+v", view)
		}
		parked := view.Parked[0]
		if parked.Pipeline != "work" || parked.Reason != stats.ParkedService || parked.For != "orders" || parked.Runs < 1000 ||
			parked.AgeS < 100 || parked.AgeS > 120 {
			t.Errorf("want some 1,150 runs to wait for orders for two minutes, have %+v", parked)
		}
		if v := e.Services()[0]; v.Parked < 1000 || v.ParkedSince == nil || !v.ParkedSince.Equal(parked.Since) {
			t.Errorf("want the same at the service, have %+v", v)
		}
		h, _ := e.Handler("work/a/one")
		if h.Parked < 1000 || h.RecentRatio == nil || *h.RecentRatio != 0 || h.RecentCalls < 10 {
			t.Errorf("want the same at the handler, and no success in ten seconds, have %+v", h)
		}
		for name, least := range map[string]float64{"procaas_runs_parked": 1000, "procaas_runs_parked_oldest_seconds": 100} {
			if have, ok := gauged(t, registry, name, "work", "service"); !ok || have < least {
				t.Errorf("want %s to be more than %g, have %g", name, least, have)
			}
		}
		if have, _ := gauged(t, registry, "procaas_service_parked", "orders"); have < 1000 {
			t.Errorf("want some %d runs in procaas_service_parked, have %g", parked.Runs, have)
		}
		s.down.Store(false)
		stop()
		pass(2 * time.Minute)
		if v := e.Services()[0]; v.FailingSince != nil || v.Parked != 0 || len(e.Backlog().Parked) != 1 {
			t.Errorf("want nothing left but what has failed, have %+v and %+v", v, e.Backlog())
		}
	})
}

// The minute before an outage hides it for a minute.
func TestTheLastTenSecondsShowWhatTheMinuteHides(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := &target{latency: 10 * time.Millisecond, failWith: refused}
		r.on("one", s.do)
		e, _ := r.start(guarded)
		stop := r.load(100*time.Millisecond, e)
		pass(time.Minute)
		s.down.Store(true)
		pass(12 * time.Second)
		h, _ := e.Handler("work/a/one")
		if h.SuccessRatio == nil || *h.SuccessRatio < 0.5 || h.RecentRatio == nil || *h.RecentRatio > 0.05 {
			t.Errorf("want a minute that looks well and ten seconds that do not, have %v and %v", h.SuccessRatio, h.RecentRatio)
		}
		stop()
	})
}

// Without a gate that adapts nothing trips, and runs that repeat forever never fail.
func TestAServiceThatIsNotProtectedIsSeenToFail(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := &target{latency: 10 * time.Millisecond, failWith: refused}
		r.on("one", s.do)
		fixed := strings.ReplaceAll(strings.ReplaceAll(guarded, "timeout: 2s", "timeout: 2s, concurrency: fixed"), "{id: one,",
			"{id: one, retry: {attempts: 0, min-delay: 2s, max-delay: 1m},")
		e, _ := r.start(fixed)
		s.down.Store(true)
		stop := r.load(500*time.Millisecond, e)
		pass(10 * time.Second)
		if v := e.Services()[0]; v.FailingSince == nil {
			t.Errorf("want the service seen to fail, have %+v", v)
		}
		pass(20 * time.Second)
		stop()
		parked := e.Backlog().Parked
		if len(parked) != 1 || parked[0].Reason != stats.ParkedRetry || parked[0].For != "work/a/one" || parked[0].Runs < 20 {
			t.Errorf("want the runs that wait to repeat the call, have %+v", parked)
		}
		s.down.Store(false)
		r.succeeded(e, 5*time.Minute)
	})
}

func TestWhatRunsWaitForIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("fails", func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{}, model.Permanent(errors.New("no"))
		})
		e, _ := r.start(`
flows:
  - {id: order, key: !$ event.key}
pipelines:
  - {id: held, stages: [{id: a, handlers: [{id: h, step: {}}]}]}
  - {id: limited, stages: [{id: a, handlers: [{id: h, step: {}, rate-limit: {rate: 1/m, burst: 1}}]}]}
  - {id: lost, stages: [{id: a, handlers: [{id: fails, step: {}}]}]}
  - {id: listens, flow: order, stages: [{id: a, handlers: [{id: h, await: {event: paid, timeout: 10m}}]}]}
`)
		if _, err := e.SetControl(t.Context(), "held", guard.ControlChange{Mode: guard.ModeHold, Forever: true}, -1,
			store.Actor{Name: "ann"}); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			for _, p := range []string{"held", "limited", "lost"} {
				r.submit(e, event(p, ""))
			}
			r.submit(e, event("listens", fmt.Sprint("k", i)))
		}
		pass(5 * time.Second)
		have := map[string]string{}
		for _, p := range e.Backlog().Parked {
			if p.Runs >= 2 {
				have[p.Pipeline] = strings.TrimSpace(p.Reason + " " + p.For)
			}
		}
		for pipeline, want := range map[string]string{
			"held": "hold held", "limited": "limit limited/a/h", "lost": "failed", "listens": "event",
		} {
			if have[pipeline] != want {
				t.Errorf("pipeline %s: want its runs to wait for %q, have %q of %+v", pipeline, want, have[pipeline], e.Backlog().Parked)
			}
		}
	})
}
