package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/fallback"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// degradable has a handler that goes out of the flow, and leaves a value behind.
const degradable = `
flows:
  - id: order
    key: !$ event.payload.id
    shared-state: {bonus: null, seen: null}
pipelines:
  - id: work
    flow: order
    stages:
      - id: a
        handlers: [{id: core, step: {}}]
      - id: b
        handlers:
          - id: bonus
            critical: false
            step: {value: 7}
            result: {bonus: !$ sources.bonus.response}
            retry: {attempts: 1}
            fallback: {duration: 10s, result: {bonus: 0}}
      - id: c
        handlers: [{id: last, step: {value: !$ shared-state.bonus}, result: {seen: !$ sources.last.response}}]
`

// A sick handler fails as long as it is down.
type sick struct{ down atomic.Bool }

var errSick = &model.StatusError{Status: 503, Method: "POST", URL: "http://bonus/"}

func (s *sick) do(_ context.Context, _ *engine.Call, value any) (model.Result, error) {
	if s.down.Load() {
		return model.Result{}, errSick
	}
	return model.Result{Response: value}, nil
}

// fallbackOf returns what an engine tells of a handler's fallback.
func fallbackOf(t *testing.T, e *engine.Engine, path string) fallback.View {
	t.Helper()
	for _, h := range e.Handlers() {
		if h.Path == path && h.Fallback != nil {
			return *h.Fallback
		}
	}
	t.Fatalf("nothing is told of the fallback of %s", path)
	return fallback.View{}
}

// waitFor lets fake time pass until a handler is in a state.
func waitFor(t *testing.T, e *engine.Engine, path, state string, most time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	for time.Since(began) <= most {
		if fallbackOf(t, e, path).State == state {
			return time.Since(began)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("after %v the fallback of %s is not %s: %+v", most, path, state, fallbackOf(t, e, path))
	return 0
}

// orders submits events with keys of their own, at a steady pace, until stop, and
// gives their runs.
func (r *rig) orders(every time.Duration, engines ...*engine.Engine) (stop func() []string) {
	ctx, cancel := context.WithCancel(context.Background())
	var runs []string
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			// Not with ctx: an event may be accepted although its caller gives up, and would be missing in runs.
			out, err := engines[i%len(engines)].Submit(context.Background(), []intake.Submission{{Event: event("work", fmt.Sprint("k", i))}})
			if err == nil && out[0].Err == nil {
				runs = append(runs, out[0].Receipt.Run)
			} else if ctx.Err() == nil {
				r.t.Error(err, out)
			}
			time.Sleep(every)
		}
	})
	stop = sync.OnceValue(func() []string { cancel(); wg.Wait(); return runs })
	r.t.Cleanup(func() { stop() })
	return stop
}

// A handler that is only slow leaves the flow like one that fails, stays out while its probes are slow, and comes back by
// itself. Runs use the results of its slow calls.
func TestSlowHandlerGoesOutAndComesBackByItself(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var slow atomic.Bool
		r.on("bonus", func(_ context.Context, _ *engine.Call, value any) (model.Result, error) {
			if slow.Load() {
				time.Sleep(600 * time.Millisecond)
			}
			return model.Result{Response: value}, nil
		})
		flow := strings.Replace(degradable, "fallback: {", "fallback: {slower-than: 500ms, ", 1)
		first, _ := r.start(flow)
		second, _ := r.start(flow)
		stop := r.orders(200*time.Millisecond, first, second)
		pass(10 * time.Second)
		slow.Store(true)
		run := r.submit(first, event("work", "marked"))
		if view := r.settle(first, run, model.Succeeded); view.SharedState["bonus"] != 7 {
			t.Errorf("want the result of the slow call used, have %v", view.SharedState)
		}
		waitFor(t, second, "work/b/bonus", fallback.Out, 30*time.Second)
		if v := fallbackOf(t, second, "work/b/bonus"); !strings.Contains(v.Reason, "calls slower than 500ms count as failed") {
			t.Errorf("want the reason to say that it is slow, have %q", v.Reason)
		}
		calls := r.count("work/b/bonus")
		pass(30 * time.Second)
		if n := r.count("work/b/bonus") - calls; n < 2 || n > 10 {
			t.Errorf("want few probes while it is slow, have %d", n)
		}
		slow.Store(false)
		waitFor(t, first, "work/b/bonus", fallback.In, time.Minute)
		for _, run := range stop() {
			r.settle(first, run, model.Succeeded)
		}
	})
}

func TestFailingHandlerGoesOutOnAllNodesAndComesBackByItself(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var bonus sick
		r.on("bonus", bonus.do)
		registry := prometheus.NewRegistry()
		first, _ := r.start(degradable, func(o *engine.Options) { o.Metrics = stats.NewMetrics(registry) })
		second, _ := r.start(degradable)
		stop := r.orders(200*time.Millisecond, first, second) // 5 a second
		pass(time.Minute)
		if v := fallbackOf(t, first, "work/b/bonus"); v.State != fallback.In || v.Since != nil {
			t.Fatalf("want it in the flow, have %+v", v)
		}
		pass(time.Duration(rand.N(1000)) * time.Millisecond) // seconds begin at any moment
		began := time.Now()
		bonus.down.Store(true)
		for _, e := range []*engine.Engine{first, second} {
			waitFor(t, e, "work/b/bonus", fallback.Out, time.Until(began.Add(5*time.Second)))
		}
		v := fallbackOf(t, second, "work/b/bonus")
		if v.Since == nil || v.Until == nil || v.Until.Sub(*v.Since) != 10*time.Second || v.Trips != 1 || v.Reason == "" || v.Ratio == nil ||
			*v.Ratio > 0.95 {
			t.Errorf("want since when, until, why and how much, have %+v", v)
		}
		calls := r.count("work/b/bonus")
		run := r.submit(second, event("work", "marked"))
		pass(time.Until(*v.Until) - time.Millisecond)
		if n := r.count("work/b/bonus"); n != calls {
			t.Errorf("want no call while it is out, have %d", n-calls)
		}
		view := r.settle(first, run, model.Succeeded)
		h := view.Handlers[1]
		if h.Outcome != model.OutcomeSkipped || !strings.HasPrefix(h.Reason, "fallback since 2000-01-01T00:01:0") ||
			!strings.Contains(h.Reason, ", success ratio 0.") {
			t.Errorf("want it skipped with the reason, have %+v", h)
		}
		if view.SharedState["bonus"] != 0 {
			t.Errorf("want the fallback's result in the shared state, have %v", view.SharedState)
		}

		have := samples(t, registry)
		if on := have["procaas_handler_fallback bonus work b"]; on != 1 {
			t.Errorf("want the gauge at 1, have %v", on)
		}
		if ratio := have["procaas_handler_success_ratio bonus work b"]; ratio < 0.7 || ratio > 0.99 {
			t.Errorf("want a ratio below 1, have %v", ratio)
		}

		// While it is down, one call a second tries whether it is up.
		calls = r.count("work/b/bonus")
		pass(30 * time.Second)
		if n := r.count("work/b/bonus") - calls; n < 2 || n > 10 {
			t.Errorf("want few probes, have %d", n)
		}
		bonus.down.Store(false)
		waitFor(t, second, "work/b/bonus", fallback.In, 40*time.Second)
		pass(time.Second)
		calls = r.count("work/b/bonus")
		pass(10 * time.Second)
		if n := r.count("work/b/bonus") - calls; n < 49 {
			t.Errorf("want all of 50 calls when it is back, have %d", n)
		}
		for _, run := range stop() {
			r.settle(first, run, model.Succeeded)
		}

		if on, known := samples(t, registry)["procaas_handler_fallback bonus work b"]; on != 0 || !known {
			t.Errorf("want the gauge at 0, have %v", on)
		}
		var kinds []string
		audits, err := first.Audit(t.Context(), store.AuditFilter{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range audits {
			if a.Kind == store.AuditFallback {
				kinds = append(kinds, fmt.Sprintf("%s %s %v", a.By, a.Name, a.After == nil))
			}
		}
		if have := strings.Join(kinds, ", "); have != "engine work/b/bonus true, engine work/b/bonus false" {
			t.Errorf("want the way out and back in the audit, have %s", have)
		}
		log := r.log.String()
		for _, want := range []string{
			`msg="fallback on" path=work/b/bonus ratio=0.`, `until=2000-01-01T00:0`,
			`msg="fallback off" path=work/b/bonus ratio=0.`,
		} {
			if !strings.Contains(log, want) {
				t.Errorf("want %s in the log", want)
			}
		}
	})
}

func TestCriticalHandlerIsNeverTakenOut(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var core sick
		core.down.Store(true)
		r.on("core", core.do)
		e, _ := r.start(degradable)
		stop := r.orders(100*time.Millisecond, e)
		pass(2 * time.Minute)
		core.down.Store(false)
		runs := stop()
		for _, run := range runs {
			pass(time.Second)
			if r.view(e, run).Status == model.Failed {
				if _, err := e.Retry(t.Context(), run, operator); err != nil {
					t.Fatal(err)
				}
			}
			v := r.settle(e, run, model.Succeeded)
			if h := v.Handlers[0]; h.Outcome != model.OutcomeSucceeded {
				t.Fatalf("critical handler is %s: %s", h.Outcome, h.Reason)
			}
		}
	})
}

func TestRareAndShortFailuresTakeNothingOut(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func(time.Duration, int) bool{
		"30 %":    func(_ time.Duration, n int) bool { return n%10 < 3 },
		"2s blip": func(at time.Duration, _ int) bool { return at > time.Minute && at < time.Minute+2*time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				began := time.Now()
				var n atomic.Int32
				r.on("bonus", func(context.Context, *engine.Call, any) (model.Result, error) {
					if fails(time.Since(began), int(n.Add(1))) {
						return model.Result{}, errSick
					}
					return model.Result{}, nil
				})
				e, _ := r.start(degradable)
				stop := r.orders(50*time.Millisecond, e)
				pass(5 * time.Minute)
				runs := stop()
				synctest.Wait()
				if n := r.count("work/b/bonus"); n != len(runs) {
					t.Errorf("%d of %d calls were skipped", len(runs)-n, len(runs))
				}
			})
		})
	}
}

func TestFallbackSurvivesARestartOfAllNodes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		yaml := strings.Replace(degradable, "duration: 10s", "duration: 1m", 1)
		var bonus sick
		r.on("bonus", bonus.do)
		bonus.down.Store(true)
		first, stopFirst := r.start(yaml)
		second, stopSecond := r.start(yaml)
		stop := r.orders(100*time.Millisecond, first, second)
		waitFor(t, first, "work/b/bonus", fallback.Out, 6*time.Second)
		until := *fallbackOf(t, first, "work/b/bonus").Until
		stop()
		stopFirst()
		stopSecond()
		bonus.down.Store(false)
		pass(20 * time.Second)

		first, _ = r.start(yaml)
		second, _ = r.start(yaml)
		calls := r.count("work/b/bonus")
		r.settle(first, r.submit(first, event("work", "at once")), model.Succeeded)
		stop = r.orders(100*time.Millisecond, first, second)
		pass(time.Until(until) - time.Millisecond)
		if n := r.count("work/b/bonus"); n != calls {
			t.Errorf("want it out until %v, have %d calls before", until, n-calls)
		}
		waitFor(t, second, "work/b/bonus", fallback.In, 30*time.Second)
		for _, run := range stop() {
			r.settle(first, run, model.Succeeded)
		}
	})
}

func TestNodesTakeTurnsToProbe(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var bonus sick
		var mu sync.Mutex // guards made
		var made []time.Time
		r.on("bonus", func(ctx context.Context, c *engine.Call, v any) (model.Result, error) {
			mu.Lock()
			made = append(made, time.Now())
			mu.Unlock()
			return bonus.do(ctx, c, v)
		})
		bonus.down.Store(true)
		engines := []*engine.Engine{}
		for range 3 {
			e, _ := r.start(degradable)
			engines = append(engines, e)
		}
		r.orders(5*time.Millisecond, engines...)
		waitFor(t, engines[0], "work/b/bonus", fallback.Out, 6*time.Second)
		pass(2 * time.Second)
		bonus.down.Store(false)
		mu.Lock()
		made = nil
		mu.Unlock()
		waitFor(t, engines[0], "work/b/bonus", fallback.Ramping, 20*time.Second)
		mu.Lock()
		probes := slices.Clone(made)
		mu.Unlock()
		for i, at := range probes {
			if i > 0 && i < 5 && at.Sub(probes[i-1]) < time.Second {
				t.Errorf("want one probe a second, have %v", probes[:5])
			}
		}
		if len(probes) < 5 {
			t.Errorf("want five probes at least before more calls are made, have %d", len(probes))
		}
	})
}

// cutStore is a store that a test takes away and brings back.
func cutStore(s store.Store) (store *enginetest.Faulty, away *atomic.Bool) {
	away = new(atomic.Bool)
	return &enginetest.Faulty{Store: s, Before: func(string) error {
		if away.Load() {
			return errors.New("the store is away")
		}
		return nil
	}}, away
}

// While the store is away, a node uses what it knows as long as it may make
// calls at all, which is 4 s, and then makes none. Later it finds the outage as
// it was.
func TestFallbackWhileTheStoreIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		store, away := cutStore(r.store)
		var bonus sick
		r.on("bonus", bonus.do)
		bonus.down.Store(true)
		yaml := strings.Replace(degradable, "duration: 10s", "duration: 1m", 1)
		e, _ := r.startOn(store.Ports(), yaml)
		stop := r.orders(100*time.Millisecond, e)
		waitFor(t, e, "work/b/bonus", fallback.Out, 6*time.Second)
		until := *fallbackOf(t, e, "work/b/bonus").Until
		stop()
		pass(time.Second)
		bonus.down.Store(false)
		calls := len(r.paths())
		away.Store(true)
		pass(5 * time.Second)
		before := len(r.paths())
		if n := r.count("work/b/bonus"); n == 0 || before-calls > 2 {
			t.Fatalf("the test shows nothing: %d calls", before-calls)
		}
		pass(time.Until(until) + time.Minute) // and beyond its end: nobody can take a probe
		if n := len(r.paths()); n != before {
			t.Errorf("want no call while the store is away, have %d", n-before)
		}
		away.Store(false)
		pass(time.Second)
		stop = r.orders(100*time.Millisecond, e)
		if took := waitFor(t, e, "work/b/bonus", fallback.In, 30*time.Second); took < 15*time.Second {
			t.Errorf("want probes and a ramp before it is back, have it back after %v", took)
		}
		for _, run := range stop() {
			r.settle(e, run, model.Succeeded)
		}
		if n := strings.Count(r.log.String(), "do not go out of the flow, nor come back, until the store answers"); n != 1 {
			t.Errorf("want it logged once that nothing is decided, have %d lines", n)
		}
	})
}

func TestAnotherNodeDecidesWhenTheOneThatDidDies(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		store, away := cutStore(r.store)
		var bonus sick
		r.on("bonus", bonus.do)
		r.startOn(store.Ports(), degradable)
		pass(2 * time.Second) // so that it decides
		e, _ := r.start(degradable)
		stop := r.orders(100*time.Millisecond, e)
		pass(20 * time.Second)
		bonus.down.Store(true)
		pass(2 * time.Second)
		away.Store(true)
		waitFor(t, e, "work/b/bonus", fallback.Out, 8*time.Second)
		bonus.down.Store(false)
		waitFor(t, e, "work/b/bonus", fallback.In, 40*time.Second)
		for _, run := range stop() {
			r.settle(e, run, model.Succeeded)
		}
	})
}

// The answers of all that is asked about fallbacks are lost now and then; the
// failures are counted once all the same.
func TestLostAnswersChangeNoFallback(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var n, calls atomic.Int32
		store := &enginetest.Faulty{Store: r.store, After: func(op string) error {
			switch op {
			case "report", "conclude", "deliberate", "outages":
				if n.Add(1)%3 == 0 {
					return errors.New("the answer is lost")
				}
			}
			return nil
		}}
		r.on("bonus", func(context.Context, *engine.Call, any) (model.Result, error) {
			if calls.Add(1)%5 < 2 { // 40 %: reports that count twice would not change the ratio, those that are lost might
				return model.Result{}, errSick
			}
			return model.Result{}, nil
		})
		e, _ := r.startOn(store.Ports(), degradable)
		stop := r.orders(100*time.Millisecond, e)
		pass(3 * time.Minute)
		if v := fallbackOf(t, e, "work/b/bonus"); v.State != fallback.In {
			t.Errorf("want it in the flow with 40 %% failing, have %+v", v)
		}
		r.on("bonus", func(context.Context, *engine.Call, any) (model.Result, error) { return model.Result{}, errSick })
		waitFor(t, e, "work/b/bonus", fallback.Out, 15*time.Second)
		for _, run := range stop() {
			r.settle(e, run, model.Succeeded)
		}
	})
}

func TestDefinitionWithoutFallbacksAsksNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var asked atomic.Int32
		store := &enginetest.Faulty{Store: r.store, Before: func(op string) error {
			switch op {
			case "report", "deliberate", "conclude", "probe":
				asked.Add(1)
			}
			return nil
		}}
		e, _ := r.startOn(store.Ports(), controlled)
		stop := r.load(50*time.Millisecond, e)
		pass(time.Minute)
		stop()
		if n := asked.Load(); n != 0 {
			t.Errorf("the store was asked %d times", n)
		}
	})
}

// A run knows how the call ends that it may have to undo, so it waits for a probe of such a handler. Others go on.
func TestOnlyWhatCanBeUndoneWaitsForItsProbe(t *testing.T) {
	t.Parallel()
	for undo, want := range map[string]string{"": model.OutcomeSkipped, "compensate: {step: {}}": model.OutcomeSucceeded} {
		t.Run(want, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var bonus sick
				bonus.down.Store(true)
				r.on("bonus", bonus.do)
				e, _ := r.start(strings.Replace(degradable, "critical: false", "critical: false\n            "+undo, 1))
				stop := r.orders(50*time.Millisecond, e)
				waitFor(t, e, "work/b/bonus", fallback.Out, 6*time.Second)
				stop()
				synctest.Wait()
				pass(11 * time.Second)
				open := make(gate)
				r.on("bonus", open.do)
				calls := r.count("work/b/bonus")
				run := r.submit(e, event("work", "probe"))
				pass(time.Second)
				if n := r.count("work/b/bonus") - calls; n != 1 {
					t.Fatalf("want one probe, have %d", n)
				}
				if ended := r.view(e, run).Status.Ended(); ended != (undo == "") {
					t.Errorf("its probe hangs, and the run has ended: %t", ended)
				}
				close(open)
				if h := r.settle(e, run, model.Succeeded).Handlers[1]; h.Outcome != want {
					t.Errorf("want the handler %s, have %+v", want, h)
				}
			})
		})
	}
}
