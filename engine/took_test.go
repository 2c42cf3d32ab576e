package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/model"
	"procaas/engine/stats"
	"procaas/engine/steering"
)

const slowStages = `
pipelines:
  - id: work
    owner: team-work
    stages:
      - {id: quick, handlers: [{id: first, step: {}}]}
      - {id: off, handlers: [{id: never, critical: false, enabled: false, step: {}}]}
      - {id: slow, handlers: [{id: second, step: {}}]}
`

// Each stage and each run counts once, on the node that completed it, also if a node dies in between.
func TestDurationsCountOnceAcrossACrash(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("first", func(ctx context.Context, _ *engine.Call, v any) (model.Result, error) {
			time.Sleep(100 * time.Millisecond)
			return model.Result{Response: v}, nil
		})
		r.on("second", func(ctx context.Context, _ *engine.Call, v any) (model.Result, error) {
			select {
			case <-time.After(3 * time.Second):
				return model.Result{Response: v}, nil
			case <-ctx.Done():
				return model.Result{}, ctx.Err()
			}
		})
		registries := []*prometheus.Registry{prometheus.NewRegistry(), prometheus.NewRegistry()}
		faulty := &enginetest.Faulty{Store: r.store}
		first, _ := r.startOn(faulty.Ports(), slowStages, func(o *engine.Options) { o.Metrics = stats.NewMetrics(registries[0]) })
		run := r.submit(first, event("work", "o-1"))
		pass(time.Second)
		faulty.Cut() // as kill -9 does
		second, _ := r.start(slowStages, func(o *engine.Options) { o.Metrics = stats.NewMetrics(registries[1]) })
		r.settle(second, run, model.Succeeded)

		const runs, quick, off, slow = "procaas_run_seconds begun work", "procaas_stage_seconds begun work quick",
			"procaas_stage_seconds begun work off", "procaas_stage_seconds begun work slow"
		for i, want := range []map[string]float64{{quick: 1}, {runs: 1, slow: 1}} {
			have := samples(t, registries[i])
			for _, name := range []string{runs, quick, off, slow} {
				if have[name] != want[name] {
					t.Errorf("node %d: %s: want %g, have %g", i+1, name, want[name], have[name])
				}
			}
		}
		all := second.Durations()
		if len(all) != 2 || all[0].Path != "work" || all[1].Path != "work/slow" || all[0].Owner != "team-work" {
			t.Fatalf("want the run and the slow stage, have %+v", all)
		}
		// The stage began when the quick one was complete, on the node that has died, and made its call twice.
		if p99 := *all[1].Begun.Minute.P99; p99 < 3500 || p99 > 30000 {
			t.Errorf("want the stage counted from its begin on the node that died, have %g ms", p99)
		}
		// Who looks for the cause finds the run, and the handler that cost the time.
		found := second.SlowRuns("work", time.Now().Add(-time.Hour))
		if len(found) != 1 || found[0].Run != run || found[0].Handler != "work/slow/second" || found[0].HandlerMS < 3000 {
			t.Errorf("want the run and its slow handler, have %+v", found)
		}
		if none := second.SlowRuns("", time.Now().Add(time.Second)); len(none) != 0 {
			t.Errorf("want no run that ended from now on, have %+v", none)
		}
	})
}

// What has failed, and what only makes up for something, is no duration.
func TestDurationsLeaveOutWhatFailed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("second", func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{}, model.Permanent(errors.New("no"))
		})
		e, _ := r.start(slowStages)
		r.settle(e, r.submit(e, event("work", "o-1")), model.Failed)
		for _, d := range e.Durations() {
			if d.Path != "work/quick" {
				t.Errorf("want only the stage that is complete, have %+v", d)
			}
		}
	})
}

// People compare the last hour with the one before, and see at once that something is mended.
func TestDurationsCompareWithTheHourBefore(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		took := 100 * time.Millisecond
		r.on("second", func(_ context.Context, _ *engine.Call, v any) (model.Result, error) {
			time.Sleep(took)
			return model.Result{Response: v}, nil
		})
		e, _ := r.start(slowStages)
		r.settle(e, r.submit(e, event("work", "o-1")), model.Succeeded)
		pass(90 * time.Minute)
		took = 4 * time.Second
		r.settle(e, r.submit(e, event("work", "o-2")), model.Succeeded)
		pass(5 * time.Minute)
		took = 10 * time.Millisecond
		r.settle(e, r.submit(e, event("work", "o-3")), model.Succeeded)
		d := e.Durations()[0].Accepted
		if d.Minute.Ended != 1 || *d.Minute.P99 > 100 || d.TenMinutes.Ended != 2 || *d.TenMinutes.P99 < 3000 {
			t.Errorf("want one quick run in the last minute, and a slow one in ten, have %+v %+v", d.Minute, d.TenMinutes)
		}
		if d.Hour.Ended != 2 || *d.Hour.P99 < 3000 || d.HourBefore.Ended != 1 || *d.HourBefore.P99 > 200 {
			t.Errorf("want the hour compared with a quick one, have %+v %+v", d.Hour, d.HourBefore)
		}
	})
}

const withTargets = `
pipelines:
  - id: work
    owner: team-work
    target: 2s
    stages:
      - {id: quick, handlers: [{id: first, step: {}}]}
      - {id: slow, target: 1s, handlers: [{id: second, step: {}}]}
`

// Error budgets are those of all nodes, and outlive them: a node that dies takes at most its last minute along.
func TestErrorBudgetsOutliveNodes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		took := 3 * time.Second
		r.on("second", func(_ context.Context, _ *engine.Call, v any) (model.Result, error) {
			time.Sleep(took)
			return model.Result{Response: v}, nil
		})
		faulty := &enginetest.Faulty{Store: r.store}
		first, _ := r.startOn(faulty.Ports(), withTargets)
		for _, key := range []string{"o-1", "o-2", "o-3"} {
			r.settle(first, r.submit(first, event("work", key)), model.Succeeded)
		}
		late := first.Late()
		if len(late) != 2 || late[0].Path != "work" || late[0].Handler != "work/slow/second" || late[0].Ten.Late != 3 {
			t.Fatalf("want both targets missed by the slow handler, have %+v", late)
		}
		pass(steering.UsageEvery)
		r.settle(first, r.submit(first, event("work", "o-4")), model.Succeeded)
		faulty.Cut() // as kill -9 does, before the fourth is in the store

		took = 10 * time.Millisecond
		second, stop := r.start(withTargets)
		r.settle(second, r.submit(second, event("work", "o-5")), model.Succeeded)
		run, stage := second.Durations()[0].Target, second.Durations()[2].Target
		if run.Week.Ended != 4 || run.Week.Late != 3 || *run.Week.Left >= 0 || stage.Week != run.Week && stage.Week.Late != 3 {
			t.Errorf("want three late of four, have %+v %+v", run.Week, stage.Week)
		}
		if !*run.Kept || len(second.Late()) != 0 {
			t.Errorf("want the target kept on the new node, have %+v", run)
		}
		if found := second.SlowRuns("work", time.Now().Add(-time.Minute)); len(found) != 1 || found[0].TargetMS != 2000 {
			t.Errorf("want the slowest run with its target, have %+v", found)
		}
		if err := stop(); err != nil { // it saves what it has counted
			t.Fatal(err)
		}
		third, _ := r.start(withTargets)
		r.settle(third, r.submit(third, event("work", "o-6")), model.Succeeded)
		if week := third.Durations()[0].Target.Week; week.Ended != 5 || week.Late != 3 {
			t.Errorf("want nothing lost by a stop, have %+v", week)
		}
	})
}

// The stages that a run completed before it gave up count, and so does finally.
func TestStagesOfARunThatFailsCount(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("second", func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{}, model.Permanent(errors.New("broken"))
		})
		registry := prometheus.NewRegistry()
		e, _ := r.start(slowStages+"    finally: [{id: third, step: {}}]\n", func(o *engine.Options) { o.Metrics = stats.NewMetrics(registry) })
		r.settle(e, r.submit(e, event("work", "o-1")), model.Failed)
		have := samples(t, registry)
		for name, want := range map[string]float64{
			"stage_seconds begun work quick": 1, "stage_seconds begun work finally": 1, "run_seconds begun work": 0,
		} {
			if have["procaas_"+name] != want {
				t.Errorf("%s: want %g, have %g", name, want, have["procaas_"+name])
			}
		}
	})
}

// Costs are those of all nodes, by day, and outlive them.
func TestCostsAreThoseOfAllNodes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("second", func(ctx context.Context, c *engine.Call, v any) (model.Result, error) {
			c.Sent(100)
			return slowly(2*time.Second)(ctx, c, v)
		})
		first, stop := r.start(slowStages)
		r.settle(first, r.submit(first, event("work", "o-1")), model.Succeeded)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		second, _ := r.start(slowStages)
		r.settle(second, r.submit(second, event("work", "o-2")), model.Succeeded)
		pass(2 * steering.UsageEvery)
		costs := func(by string, reads func(string) bool) map[string]stats.Cost {
			t.Helper()
			all, err := second.Costs(t.Context(), by, 7, reads)
			if err != nil {
				t.Fatal(err)
			}
			out := map[string]stats.Cost{}
			for _, c := range all {
				out[c.Name] = c
			}
			return out
		}
		everything := func(string) bool { return true }
		for by, name := range map[string]string{stats.ByPipeline: "work", stats.ByOwner: "team-work"} {
			if c := costs(by, everything)[name]; c.Calls != 4 || c.CallSeconds < 4 || c.Runs != 2 || c.RequestBytes != 200 || c.StoredBytes == 0 || c.Day == "" {
				t.Errorf("by %s: want the calls of both nodes, have %+v", by, c)
			}
		}
		if c := costs(stats.ByHandler, everything)["work/slow/second"]; c.Calls != 2 || c.CallSeconds < 4 || c.Runs != 0 {
			t.Errorf("want the calls of the slow handler, have %+v", c)
		}
		if c := costs(stats.ByPipeline, func(path string) bool { return path != "work" && path != "work/slow/second" })["work"]; c.Calls != 2 {
			t.Errorf("want only what the caller may read, have %+v", c)
		}
	})
}
