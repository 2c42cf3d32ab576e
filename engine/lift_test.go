package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// crowded is a pipeline whose last handler may be left out, and calls a service that can take
// forty calls a second.
const crowded = `
services:
  - {id: orders, url: "http://127.0.0.1:1", timeout: 2s}
  - {id: push, url: "http://127.0.0.1:2", timeout: 1s, max-in-flight: 2}
pipelines:
  - id: work
    stages:
      - {id: a, handlers: [{id: one, step: {service: orders}}]}
      - {id: b, handlers: [{id: tell, critical: false, retry: {attempts: 2}, step: {service: push}}]}
`

// leftOut counts the runs that went on without a handler.
func (r *rig) leftOut(e *engine.Engine, path string) (n int) {
	r.t.Helper()
	for cursor := ""; ; {
		runs, next, err := e.List(context.Background(), store.RunFilter{Status: model.Succeeded, Limit: 1000, Cursor: cursor})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, v := range runs {
			for _, h := range v.Handlers {
				if h.Path == path && h.Outcome != model.OutcomeSucceeded {
					n++
				}
			}
		}
		if cursor = next; cursor == "" {
			return n
		}
	}
}

// A hold makes a queue. When it is lifted, under load, no run may lose a call in that queue,
// however the hold ends and wherever it was.
func TestALiftedHoldLeavesNoHandlerOut(t *testing.T) {
	t.Parallel()
	by := store.Actor{Name: "ann"}
	for name, lift := range map[string]func(*rig, *engine.Engine, string){
		"by an operator": func(r *rig, e *engine.Engine, path string) {
			if _, err := e.RemoveControl(context.Background(), path, -1, by); err != nil {
				r.t.Error(err)
			}
		},
		"by the time": func(*rig, *engine.Engine, string) {},
	} {
		for _, path := range []string{"work", "work/a/one", "work/b"} {
			t.Run(name+" at "+strings.ReplaceAll(path, "/", "."), func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					orders, push := &target{latency: 2 * time.Millisecond}, &target{latency: 50 * time.Millisecond}
					r.on("one", orders.do)
					r.on("tell", push.do)
					e, _ := r.start(crowded)
					hold := guard.ControlChange{Mode: guard.ModeHold, Until: time.Now().Add(time.Minute)}
					if _, err := e.SetControl(context.Background(), path, hold, -1, by); err != nil {
						t.Fatal(err)
					}
					stop := r.load(50*time.Millisecond, e) // half of what push can take
					pass(55 * time.Second)
					lift(r, e, path)
					pass(10 * time.Second)
					if parked := e.Backlog().Parked; len(parked) != 1 || parked[0].Reason != stats.ParkedLifted {
						t.Errorf("want to see runs that go on gently, have %+v", parked)
					}
					pass(2 * time.Minute)
					stop()
					r.succeeded(e, time.Minute)
					if n := r.leftOut(e, "work/b/tell"); n != 0 {
						t.Errorf("want no run to go on without its call, have %d of %d", n, r.count("work/b/tell")+n)
					}
				})
			})
		}
	}
}

// A service that is down must not keep those back who can do without it.
func TestALiftDoesNotWaitForAServiceThatIsDown(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		push := &target{latency: 5 * time.Millisecond, failWith: refused}
		r.on("tell", push.do)
		e, _ := r.start(crowded)
		push.down.Store(true)
		stop := r.load(50*time.Millisecond, e)
		pass(10 * time.Second)
		by := store.Actor{Name: "ann"}
		if _, err := e.SetControl(context.Background(), "work", guard.ControlChange{Mode: guard.ModeHold, Forever: true}, -1, by); err != nil {
			t.Fatal(err)
		}
		pass(30 * time.Second)
		if _, err := e.RemoveControl(context.Background(), "work", -1, by); err != nil {
			t.Fatal(err)
		}
		stop()
		r.succeeded(e, 15*time.Second)
	})
}

// farLedger answers beats late, and counts the runs that are given back for later.
type farLedger struct {
	store.Ledger
	parked atomic.Int64
}

func (s *farLedger) Beat(ctx context.Context, node int64, lease time.Duration, bundle string) (store.Beat, error) {
	b, err := s.Ledger.Beat(ctx, node, lease, bundle)
	time.Sleep(30 * time.Millisecond)
	return b, err
}

func (s *farLedger) Commit(ctx context.Context, node int64, changes []model.Change) ([]error, error) {
	for _, c := range changes {
		if c.Status == model.Parked {
			s.parked.Add(1)
		}
	}
	return s.Ledger.Commit(ctx, node, changes)
}

// A run in a short line keeps its place in memory, however slow the beats are by
// which its node knows the store's time.
func TestARunInAShortLineIsNotGivenAway(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := &farLedger{Ledger: r.store.Ledger}
		r.store.Ledger = s
		r.on("one", (&target{latency: 2 * time.Millisecond}).do)
		r.on("tell", (&target{latency: 50 * time.Millisecond}).do)
		e, _ := r.start(crowded)
		pass(time.Minute) // many beats have been answered
		for range 20 {
			r.submit(e, event("work", ""))
		}
		r.succeeded(e, time.Minute)
		if n := s.parked.Load(); n != 0 {
			t.Errorf("want all runs to wait in memory for half a second, have %d given back", n)
		}
	})
}

// Runs that wait for the limit of a handler that is then switched off have nothing left to wait for.
func TestRunsLeaveTheQueueOfALimitWhenItsHandlerIsSwitchedOff(t *testing.T) {
	t.Parallel()
	limit := guard.ControlChange{Enabled: true, RateLimit: "1/m"}
	for name, c := range map[string]struct{ text, limited, off string }{
		"a limit of the files": {
			strings.Replace(crowded, "retry: {attempts: 2}", "rate-limit: {rate: 1/m, burst: 1}", 1), "",
			"work/b/tell",
		},
		"a limit of an operator":      {crowded, "work/b/tell", "work/b/tell"},
		"a limit of the stage":        {crowded, "work/b", "work/b/tell"},
		"a switch of the stage":       {crowded, "work/b/tell", "work/b"},
		"both at the path of a stage": {crowded, "work/b", "work/b"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.on("one", (&target{latency: time.Millisecond}).do)
				r.on("tell", (&target{latency: time.Millisecond}).do)
				e, _ := r.start(c.text)
				if c.limited != "" {
					r.set(e, c.limited, limit)
				}
				for range 100 {
					r.submit(e, event("work", ""))
				}
				pass(10 * time.Second)
				off := guard.ControlChange{Forever: true}
				if c.off == c.limited {
					off.RateLimit = limit.RateLimit
				}
				r.set(e, c.off, off)
				r.succeeded(e, 5*time.Second)
				if n := r.leftOut(e, "work/b/tell"); n < 95 {
					t.Errorf("want the runs that wait to go on without the call, have %d of 100", n)
				}
			})
		})
	}
}
