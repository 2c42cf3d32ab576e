package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/stats"
)

// What fails is failing, whoever failed: expressions of the result and of the body, and called pipelines count as well as
// calls. So do the runs of their pipelines.
func TestWhatFailsIsFailing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("one", func(context.Context, *engine.Call, any) (model.Result, error) {
			time.Sleep(50 * time.Millisecond)
			return model.Result{Response: map[string]any{}}, nil
		})
		e, _ := r.start(`
pipelines:
  - id: result
    shared-state: {n: 0}
    stages: [{id: s, handlers: [{id: one, step: {}, result: {n: !$ "1 / sources.one.response.none"}}]}]
  - id: body
    stages: [{id: s, handlers: [{id: one, step: {value: !$ "1 / event.payload.none"}}]}]
  - id: calls
    stages: [{id: s, handlers: [{id: inner, call: {pipeline: part}}]}]
  - id: part
    inputs: {}
    stages: [{id: s, handlers: [{id: one, step: {value: !$ "1 / configs.none"}}]}]
  - id: works
    stages: [{id: s, handlers: [{id: one, step: {}}, {id: inner, call: {pipeline: fine}}]}]
  - id: fine
    inputs: {}
    stages: [{id: s, handlers: [{id: one, step: {}}]}]
`)
		for range 4 {
			for _, p := range []string{"result", "body", "calls"} {
				r.settle(e, r.submit(e, event(p, "")), model.Failed)
			}
			r.settle(e, r.submit(e, event("works", "")), model.Succeeded)
		}
		for _, h := range e.Handlers() {
			want := 0.0
			if strings.HasPrefix(h.Path, "works/") || strings.HasPrefix(h.Path, "fine/") {
				want = 1
			}
			if h.Calls != 4 || h.SuccessRatio == nil || *h.SuccessRatio != want {
				t.Errorf("%s: want 4 calls and a ratio of %g, have %d and %v: %s", h.Path, want, h.Calls, h.SuccessRatio, h.LastError)
			}
		}
		for _, p := range e.Pipelines() {
			if p.Pipeline == "part" || p.Pipeline == "fine" {
				continue // they have no runs of their own
			}
			w := p.Windows[0]
			failed := int64(4)
			if p.Pipeline == "works" {
				failed = 0
			}
			if w.Accepted != 4 || w.Ended != 4 || w.Failed != failed {
				t.Errorf("%s: want 4 events, 4 runs and %d failures, have %+v", p.Pipeline, failed, w)
			}
		}
	})
}

// All figures are of the same four periods. A failure is in the shortest one first, and in the longest one last.
func TestFiguresOfFourPeriods(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("one", func(context.Context, *engine.Call, any) (model.Result, error) { return model.Result{}, nil })
		e, _ := r.start("pipelines: [{id: work, stages: [{id: s, handlers: [{id: one, step: {}}]}]}]")
		ended := func() (calls, runs [4]int64) {
			for i, w := range e.Handlers()[0].Windows {
				calls[i] = w.Ended
			}
			for i, w := range e.Pipelines()[0].Windows {
				runs[i] = w.Ended
			}
			return calls, runs
		}
		want := func(when string, want [4]int64) {
			t.Helper()
			if calls, runs := ended(); calls != want || runs != want {
				t.Errorf("%s: want %v in 10s, 1m, 10m and 1h, have %v calls and %v runs", when, want, calls, runs)
			}
		}
		r.settle(e, r.submit(e, event("work", "")), model.Succeeded)
		want("at once", [4]int64{1, 1, 1, 1})
		pass(15 * time.Second)
		want("15 s later", [4]int64{0, 1, 1, 1})
		pass(time.Minute)
		want("a minute later", [4]int64{0, 0, 1, 1})
		pass(10 * time.Minute)
		want("ten minutes later", [4]int64{0, 0, 0, 1})
		pass(time.Hour)
		want("an hour later", [4]int64{})
		var names []string
		for _, w := range e.Handlers()[0].Windows {
			names = append(names, w.Period)
		}
		if have := strings.Join(names, " "); have != strings.Join(stats.Periods(), " ") {
			t.Errorf("want the windows of %v, have %s", stats.Periods(), have)
		}
	})
}

// What a node looks at all the time is only what was called lately, or is kept out of the flow. The numbers count what the
// metrics count.
func TestActiveHandlersAreThoseOfTheLastMinute(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("one", func(context.Context, *engine.Call, any) (model.Result, error) { return model.Result{}, nil })
		e, _ := r.start(`
pipelines:
  - {id: work, stages: [{id: s, handlers: [{id: one, step: {}, critical: false}]}]}
  - {id: rest, stages: [{id: s, handlers: [{id: one, step: {}, critical: false}, {id: two, step: {}}]}]}
`)
		want := func(when string, paths ...string) {
			t.Helper()
			var have []string
			for _, h := range e.Active() {
				have = append(have, h.Path)
			}
			if !slices.Equal(have, paths) {
				t.Errorf("%s: want %v, have %v", when, paths, have)
			}
		}
		want("at the start")
		r.settle(e, r.submit(e, event("work", "")), model.Succeeded)
		want("after a call", "work/s/one")
		pass(2 * time.Minute)
		want("two minutes later")
		r.set(e, "rest/s/one", guard.ControlChange{Forever: true})
		want("with a switch", "rest/s/one")
		r.settle(e, r.submit(e, event("rest", "")), model.Succeeded)
		want("after the others", "rest/s/one", "rest/s/two")
		n := e.Numbers()
		if n.Accepted != 2 || n.Runs["succeeded"] != 2 || n.LeftOut != 1 || n.P99(stats.Numbers{}) <= 0 {
			t.Errorf("want 2 events, 2 runs that succeeded and 1 without a handler, have %+v", n)
		}
	})
}
