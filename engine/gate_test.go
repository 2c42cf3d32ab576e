package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/model"
	"procaas/engine/stats"
	"procaas/engine/store"
)

const guarded = `
services:
  - {id: orders, url: "http://127.0.0.1:1", timeout: 2s}
pipelines:
  - id: work
    stages:
      - {id: a, handlers: [{id: one, step: {service: orders}}]}
`

// A target is a service that a test breaks and mends.
type target struct {
	latency  time.Duration
	failWith error         // of calls while it is down
	hang     time.Duration // before that

	down atomic.Bool

	mu       sync.Mutex // guards the following
	underway int
	peak     int
	calls    []time.Time // when they began
}

func (s *target) do(ctx context.Context, c *engine.Call, value any) (model.Result, error) {
	s.mu.Lock()
	s.underway++
	s.peak = max(s.peak, s.underway)
	s.calls = append(s.calls, time.Now())
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.underway--
	}()
	if s.down.Load() {
		time.Sleep(s.hang)
		return model.Result{}, s.failWith
	}
	time.Sleep(s.latency)
	return model.Result{Response: value}, nil
}

// since counts the calls that began after a time.
func (s *target) since(t time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, at := range s.calls {
		if at.After(t) {
			n++
		}
	}
	return n
}

var (
	refused     = &model.StatusError{Status: 500, Method: "POST", URL: "http://orders"}
	unavailable = &model.StatusError{Status: 503, Method: "POST", URL: "http://orders"}
)

// succeeded waits until all runs that were submitted have succeeded.
func (r *rig) succeeded(e *engine.Engine, most time.Duration) {
	r.t.Helper()
	for end := time.Now().Add(most); ; time.Sleep(time.Second) {
		n := 0
		for _, status := range []model.Status{model.Waiting, model.Running, model.Parked} {
			p, err := e.Preview(context.Background(), store.RunFilter{Status: status})
			if err != nil {
				r.t.Fatal(err)
			}
			n += p.Total
		}
		if n == 0 {
			break
		}
		if time.Now().After(end) {
			r.t.Fatalf("%d runs have not ended\n%+v", n, e.Services())
		}
	}
	failed, _, err := e.List(context.Background(), store.RunFilter{Status: model.Failed, Limit: 10})
	if err != nil || len(failed) > 0 {
		r.t.Fatalf("want no failed run, have %+v, %v", failed, err)
	}
}

// An outage as long as one likes costs critical calls nothing: those that find out
// about it do not count, all others wait.
func TestOutageOfAServiceLosesNothing(t *testing.T) {
	t.Parallel()
	for _, hang := range []time.Duration{0, 2 * time.Second} {
		t.Run(fmt.Sprint("hangs for ", hang), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				s := &target{latency: 100 * time.Millisecond, failWith: refused, hang: hang}
				r.on("one", s.do)
				// More attempts than a run makes before the outage is noticed.
				e, _ := r.start(strings.ReplaceAll(guarded, "{service: orders}}", "{service: orders}, retry: {attempts: 6}}"))
				stop := r.load(100*time.Millisecond, e) // 10 a second
				pass(10 * time.Second)
				s.down.Store(true)
				pass(20 * time.Second)
				at := time.Now()
				pass(20 * time.Second)
				if n := s.since(at); n > 41 || n < 5 {
					t.Errorf("want at most two calls a second while it is down, have %d in 20s", n)
				}
				if have := e.Services()[0]; !have.Down || *have.Limit != 1 {
					t.Errorf("want the service down and one call at a time, have %+v", have)
				}
				pass(time.Minute)
				if !strings.Contains(r.log.String(), "service is down, one call at a time finds out when it is back") {
					t.Error("want the outage in the log")
				}
				s.down.Store(false)
				back := time.Now()
				pass(15 * time.Second)
				if n := s.since(back); n < 15*10 {
					t.Errorf("want more calls than come in 15s, have %d", n)
				}
				stop()
				r.succeeded(e, 20*time.Minute)
				if s.peak > 256 {
					t.Errorf("want 256 calls at once at most, have %d", s.peak)
				}
			})
		})
	}
}

func TestOldestRunsGoFirstAfterAnOutageAndNewOnesHaveAShare(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := &target{latency: 100 * time.Millisecond, failWith: refused}
		r.on("one", s.do)
		e, _ := r.start(strings.ReplaceAll(guarded, "timeout: 2s", "timeout: 2s, max-in-flight: 20")) // 200 calls a second
		s.down.Store(true)
		stop := r.load(10*time.Millisecond, e)
		pass(30 * time.Second)
		s.down.Store(false)
		back := time.Now()
		pass(15 * time.Second)
		stop()
		var old, fresh []time.Time
		for _, c := range r.calls.Calls() {
			if c.Now.Before(back.Add(5*time.Second)) || c.Now.After(back.Add(15*time.Second)) {
				continue
			}
			if c.Event.Time.Before(back) {
				old = append(old, c.Event.Time)
			} else {
				fresh = append(fresh, c.Event.Time)
			}
		}
		if len(old) < 1000 || len(fresh) < 200 {
			t.Errorf("want calls for old and for new work, have %d and %d in 10s", len(old), len(fresh))
		}
		// Not exactly in order: runs are called up in groups.
		inversions := 0
		for i := 100; i < len(old); i++ {
			if old[i].Before(old[i-100]) {
				inversions++
			}
		}
		if inversions > len(old)/20 {
			t.Errorf("want the oldest first, have %d of %d calls behind younger ones", inversions, len(old))
		}
		r.succeeded(e, 10*time.Minute)
	})
}

func TestPauseThatAServiceAsksForIsForAllItsCalls(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := &target{latency: 10 * time.Millisecond, failWith: model.After(20*time.Second, unavailable)}
		r.on("one", s.do)
		e, _ := r.start(guarded)
		s.down.Store(true)
		first := r.submit(e, event("work", ""))
		pass(time.Second)
		s.down.Store(false)
		at := time.Now()
		second := r.submit(e, event("work", ""))
		pass(18 * time.Second)
		if n := s.since(at); n != 0 {
			t.Errorf("want no call in the pause, have %d", n)
		}
		v := r.view(e, second)
		if want := "orders wants no calls until 2000-01-01T00:00:20Z"; len(v.Handlers) != 1 || v.Handlers[0].Reason != want {
			t.Errorf("want the reason %q, have %+v", want, v.Handlers)
		}
		if until := e.Services()[0].ClosedUntil; until == nil {
			t.Error("want to see until when the service wants no calls")
		}
		pass(2 * time.Second)
		r.settle(e, second, model.Succeeded)
		r.settle(e, first, model.Succeeded)
	})
}

func TestRepetitionsAreAShareOfTheCalls(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var n, repeated atomic.Int64
		r.on("one", func(_ context.Context, c *engine.Call, value any) (model.Result, error) {
			if c.Attempt > 1 {
				repeated.Add(1)
			}
			if n.Add(1)%2 == 0 { // half of all calls fail
				return model.Result{}, refused
			}
			return model.Result{Response: value}, nil
		})
		e, _ := r.start(strings.ReplaceAll(guarded, "{service: orders}}", "{service: orders}, retry: {attempts: 0, max-delay: 1s}}"))
		stop := r.load(10*time.Millisecond, e) // 100 a second
		pass(20 * time.Second)
		stop()
		share := float64(repeated.Load()-10*20) / float64(n.Load())
		if share > 0.22 || share < 0.15 {
			t.Errorf("want a fifth of the calls besides ten a second to be repetitions, have %.2f of %d", share, n.Load())
		}
		r.succeeded(e, 10*time.Minute)
	})
}

func TestHandlerThatIsNotCriticalWaitsNoLongerThanItsAttempts(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := &target{latency: 10 * time.Millisecond, failWith: refused, hang: time.Second}
		r.on("one", s.do)
		e, _ := r.start(strings.ReplaceAll(guarded, "{id: one,", "{id: one, critical: false,"))
		s.down.Store(true)
		var runs []string
		stop := r.load(20*time.Millisecond, e)
		pass(30 * time.Second)
		for range 10 {
			runs = append(runs, r.submit(e, event("work", "")))
		}
		stop()
		pass(8 * time.Second) // 3 attempts of 2s, and what holds are rounded to
		left := 0
		for _, run := range runs {
			v := r.settle(e, run, model.Succeeded)
			if h := v.Handlers[0]; h.Outcome == model.OutcomeSkipped {
				left++
				if want := "left out after 6s: calls of orders fail; one at a time finds out when it is back"; h.Reason != want {
					t.Errorf("want the reason %q, have %q", want, h.Reason)
				}
			}
		}
		if left < 5 {
			t.Errorf("want most runs to go on without their call, have %d of %d", left, len(runs))
		}
	})
}

// Protection slows a handler down until degradation takes it out; then nobody waits.
func TestFallbackLetsThoseGoThatWaitForTheService(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := &target{latency: 10 * time.Millisecond, failWith: refused, hang: time.Second}
		r.on("one", s.do)
		e, _ := r.start(strings.ReplaceAll(guarded, "{id: one,", "{id: one, critical: false, retry: {attempts: 0}, fallback: {result: {}},"))
		s.down.Store(true)
		stop := r.load(20*time.Millisecond, e)
		pass(30 * time.Second)
		stop()
		r.succeeded(e, 5*time.Second)
		if have := e.Services()[0]; !have.Down {
			t.Errorf("want the service down, have %+v", have)
		}
	})
}

// A run that always fails must not keep it closed to others.
func TestOneBadRunDoesNotKeepAServiceDown(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := &target{latency: 10 * time.Millisecond, failWith: refused}
		r.on("one", func(ctx context.Context, c *engine.Call, value any) (model.Result, error) {
			result, err := s.do(ctx, c, value)
			if c.Event.Key == "poison" {
				return model.Result{}, refused
			}
			return result, err
		})
		e, _ := r.start(guarded)
		s.down.Store(true)
		poison := r.submit(e, event("work", "poison"))
		stop := r.load(20*time.Millisecond, e)
		pass(30 * time.Second)
		stop()
		s.down.Store(false)
		pass(30 * time.Second)
		if have := e.Services()[0]; have.Down {
			t.Errorf("want the service up, have %+v", have)
		}
		r.settle(e, poison, model.Failed)
	})
}

func TestWaitingRunsLeaveRoomForOthers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := &target{latency: 10 * time.Millisecond, failWith: errors.New("no answer"), hang: 2 * time.Second}
		r.on("one", s.do)
		e, _ := r.start(guarded + `
  - id: other
    stages:
      - {id: a, handlers: [{id: free, step: {}}]}
`)
		s.down.Store(true)
		for range 1000 {
			r.submit(e, event("work", ""))
		}
		pass(20 * time.Second)
		if have := e.Services()[0]; have.Waiting > 64 {
			t.Errorf("want few runs in memory, have %+v", have)
		}
		began := time.Now()
		r.settle(e, r.submit(e, event("other", "")), model.Succeeded)
		if took := time.Since(began); took > time.Second {
			t.Errorf("want another run to end at once, have %s", took)
		}
	})
}

func TestServicesAreSeen(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		open := make(gate)
		r.on("one", open.do)
		registry := prometheus.NewRegistry()
		e := r.engine(r.store, strings.ReplaceAll(guarded, "timeout: 2s", "timeout: 2s, max-in-flight: 3"),
			func(o *engine.Options) { o.Metrics = stats.NewMetrics(registry) })
		r.run(e)
		for range 5 {
			r.submit(e, event("work", ""))
		}
		pass(2 * time.Second)
		have := samples(t, registry)
		maps.DeleteFunc(have, func(name string, _ float64) bool { return !strings.HasPrefix(name, "procaas_service_") })
		want := map[string]float64{
			"procaas_service_limit orders": 3, "procaas_service_in_flight orders": 3,
			"procaas_service_waiting orders": 2, "procaas_service_down orders": 0, "procaas_service_parked orders": 0,
			"procaas_service_failing_seconds orders": 0,
		}
		if !maps.Equal(have, want) {
			t.Errorf("want %v, have %v", want, have)
		}
		if effects := e.Handlers()[0].Effective; len(effects) != 1 ||
			effects[0] != "waits for one of 3 calls of orders under way at once to end" {
			t.Errorf("want to see what keeps the handler from running, have %q", effects)
		}
		close(open)
		r.succeeded(e, time.Minute)
	})
}

// A run that waits for a service while another call of it is in flight is in no
// store, from where it could be called up.
func TestRunWaitsForAServiceDuringAnotherCall(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		open := make(gate)
		r.on("long", open.do)
		s := &target{latency: 10 * time.Millisecond}
		r.on("one", s.do)
		e, _ := r.start(strings.ReplaceAll(strings.ReplaceAll(guarded, "handlers: [", "handlers: [{id: long, step: {}}, "),
			"timeout: 2s", "timeout: 2s, max-in-flight: 1"))
		for range 200 {
			r.submit(e, event("work", ""))
		}
		pass(20 * time.Second)
		if n := r.count("work/a/one"); n != 200 {
			t.Errorf("want all 200 calls, have %d and %+v", n, e.Services()[0])
		}
		close(open)
		r.succeeded(e, time.Minute)
	})
}

// A process that starts after a crash has the runs of before in hand. It need not find out anew how
// many calls at once the service takes.
func TestANewProcessBeginsWithTheLimitsOfBefore(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := &target{latency: 500 * time.Millisecond}
		r.on("one", s.do)
		first, stop := r.start(guarded)
		for n := range 2000 {
			r.submit(first, event("work", fmt.Sprint("before-", n)))
		}
		pass(time.Minute)
		if s.peak < 150 {
			t.Fatalf("want a limit that the next process can begin with, have a peak of %d calls", s.peak)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		s.peak = 0
		second, _ := r.start(guarded)
		for n := range 500 {
			r.submit(second, event("work", fmt.Sprint("after-", n)))
		}
		pass(400 * time.Millisecond) // no call has ended
		if s.peak < 150 {
			t.Errorf("want 150 calls at once or more from the start, have %d", s.peak)
		}
		pass(time.Minute)
	})
}

// A crash does not wait until somebody looks at the limits. The next process must not begin with an older one.
func TestAnImprovedLimitIsKeptAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := &target{latency: 530 * time.Millisecond}
		r.on("one", s.do)
		e, _ := r.start(guarded)
		for range 500 {
			r.submit(e, event("work", ""))
		}
		for want := 40; want <= 160; want *= 2 {
			pass(s.latency)
			if found := *e.Services()[0].Limit; found != want {
				t.Fatalf("want a limit of %d after a round, have %d", want, found)
			}
			if kept, err := r.store.Documents.Document(t.Context(), "services", "limits"); err != nil ||
				string(kept.Value) != fmt.Sprintf(`{"orders":%d}`, want) {
				t.Errorf("want the limit %d in the store, have %s and %v", want, kept.Value, err)
			}
		}
		r.succeeded(e, time.Minute)
	})
}

// knownService is what a crash interrupts: a node that has made so many calls of a service that it may make many at once, with
// runs whose calls are all in flight.
func (r *rig) knownService(runs int, more func(*engine.Options)) {
	r.t.Helper()
	s := &target{latency: time.Second}
	r.on("one", s.do)
	faulty := &enginetest.Faulty{Store: r.store}
	e, _ := r.startOn(faulty.Ports(), guarded, more)
	for range 6 * runs {
		r.submit(e, event("work", ""))
	}
	r.succeeded(e, 5*time.Minute)
	for range runs {
		r.submit(e, event("work", ""))
	}
	time.Sleep(s.latency * 9 / 10)
	if s.underway != runs {
		r.t.Fatalf("want all %d calls in flight, have %d", runs, s.underway)
	}
	faulty.Cut() // as kill -9 does
	// Only the runs tell what was in flight: a node that takes them over has found another limit, or none.
	if _, err := r.store.Documents.WriteDocuments(r.t.Context(), 0, []store.DocumentWrite{
		{Kind: "services", Name: "limits", Version: store.AnyVersion, Value: []byte("{}")},
	}, nil); err != nil {
		r.t.Fatal(err)
	}
}

// first waits for the first call.
func (s *target) first() {
	for s.since(time.Time{}) == 0 {
		time.Sleep(time.Millisecond)
	}
}

// Recovery takes no rounds of growing limits: the service gets all calls at once that it had at the crash.
func TestCallsInFlightAtACrashAreRepeatedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const runs = 500
		more := func(o *engine.Options) { o.MaxInFlight = 2 * runs }
		r.knownService(runs, more)
		s := &target{latency: 2 * time.Second}
		r.on("one", s.do)
		e, _ := r.start(guarded, more)
		s.first()
		pass(s.latency - time.Millisecond) // no call has ended
		if s.peak != runs {
			t.Errorf("want all %d calls again before the service answers the first one, have %d", runs, s.peak)
		}
		r.succeeded(e, time.Minute)
		if n := s.since(time.Time{}); n != runs {
			t.Errorf("want each call once, have %d", n)
		}
	})
}

// A service that is down since the crash is protected as always.
func TestCallsInFlightAtACrashSpareAServiceThatIsDown(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const runs = 500
		more := func(o *engine.Options) { o.MaxInFlight = 2 * runs }
		r.knownService(runs, more)
		s := &target{latency: 100 * time.Millisecond, failWith: refused, hang: 100 * time.Millisecond}
		s.down.Store(true)
		r.on("one", s.do)
		e, _ := r.start(strings.ReplaceAll(guarded, "{service: orders}}", "{service: orders}, retry: {attempts: 6}}"), more)
		s.first()
		pass(5 * time.Second)
		if n := s.since(time.Time{}); s.peak > runs || n > runs+20 {
			t.Errorf("want each call once and a few probes, have %d, and %d at once", n, s.peak)
		}
		at := time.Now()
		pass(20 * time.Second)
		if n := s.since(at); n > 41 || *e.Services()[0].Limit != 1 {
			t.Errorf("want at most two calls a second, have %d in 20s and %+v", n, e.Services()[0])
		}
		s.down.Store(false)
		r.succeeded(e, 5*time.Minute)
	})
}
