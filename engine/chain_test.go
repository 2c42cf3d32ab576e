package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/dsl/expr"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/core"
	"procaas/engine/enginetest"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// sends adds a handler type to the rig that hands in an event of the type that its body names.
func (r *rig) sends() {
	t := enginetest.Scripted("send", r.calls.Record(func(_ context.Context, _ *engine.Call, value any) (model.Result, error) {
		return model.Result{Emit: []model.Event{{Type: value.(string)}}}, nil
	}))
	t.Emission = func(body *expr.Value) tree.Emission { return tree.Emission{Type: body.Get("value")} }
	t.Emits = true
	r.types = append(r.types, t)
}

// The pipeline of the attack: one event, and each run makes two of it.
const doubling = `
pipelines:
  - {id: tick, stages: [{id: s, handlers: [{id: one, send: {value: tick}}, {id: two, send: {value: tick}}]}]}
  - {id: honest, stages: [{id: s, handlers: [{id: h, step: {}}]}]}
`

func TestAPipelineThatEmitsItselfTwiceIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.sends()
		registry := prometheus.NewRegistry()
		e, _ := r.start(doubling, func(o *engine.Options) { o.Metrics = stats.NewMetrics(registry) })
		const left, seconds = 50, 20
		budget := e.Guard.Bucket("tick" + guard.CauseLoop) // as if its runs had spent some of it
		for range guard.LoopBurst - left {
			budget.Reserve(e.Now(), guard.LoopRate, guard.LoopBurst)
		}
		r.submit(e, model.Event{Type: "tick"})
		pass(seconds * time.Second)
		// What takes the place of its run costs nothing, and each further one does.
		const most = 3 * seconds * guard.LoopRate
		first := len(r.paths())
		if first < left || first > 2*left+most {
			t.Errorf("want some hundreds of events after %d seconds, have %d", seconds, first)
		}
		pass(seconds * time.Second)
		if second := len(r.paths()); second == first || second-first > most {
			t.Errorf("want the pipeline to go on slowly, have %d events and then %d", first, second)
		}
		parked := e.Backlog().Parked
		if len(parked) == 0 || parked[0].Reason != stats.ParkedLoop || parked[0].Pipeline != "tick" ||
			!strings.HasPrefix(parked[0].For, "tick/s/") {
			t.Fatalf("want runs that wait for the budget of the loop, have %+v", parked)
		}
		if have, ok := gauged(t, registry, "procaas_runs_parked", "tick", "loop"); !ok || have < left/2 {
			t.Errorf("want them in procaas_runs_parked, have %g", have)
		}
		runs, _, err := e.List(context.Background(), store.RunFilter{Status: model.Parked, Limit: 1})
		if err != nil || len(runs) != 1 || !strings.Contains(fmt.Sprint(runs[0].Handlers),
			"the pipeline starts itself more than once in each run") {
			t.Errorf("want the cause told, have %+v %v", runs, err)
		}
		r.settle(e, r.submit(e, model.Event{Type: "honest"}), model.Succeeded)
		if err := e.Healthy(context.Background()); err != nil {
			t.Errorf("want a healthy node, have %v", err)
		}
	})
}

func TestAChainOfEventsEnds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.sends()
		e, _ := r.start(`
pipelines:
  - {id: ping, stages: [{id: s, handlers: [{id: h, send: {value: pong}}]}]}
  - {id: pong, stages: [{id: s, handlers: [{id: h, send: {value: ping}}]}]}
`)
		r.submit(e, model.Event{Type: "ping"})
		pass(time.Hour)
		if calls := len(r.paths()); calls < core.MaxHops || calls > 2*core.MaxHops {
			t.Errorf("want about %d runs, have %d", core.MaxHops, calls)
		}
		failed, _, err := e.List(context.Background(), store.RunFilter{Status: model.Failed})
		if err != nil || len(failed) != 1 {
			t.Fatalf("want one run that has failed, have %+v %v", failed, err)
		}
		const want = "th of a chain in which each was emitted by the run of the one before"
		if !strings.Contains(failed[0].Error, want) || !strings.Contains(failed[0].Error, "let a condition end the chain") {
			t.Errorf("want it told what is wrong and how to mend it, have %q", failed[0].Error)
		}
	})
}

// A chain may be as long as it likes when it takes its time, and a run may start another one
// of its pipeline as often as it likes when it starts one only.
func TestHonestChainsAreUnharmed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.sends()
		var b strings.Builder
		b.WriteString("pipelines:\n")
		for i := range 10 {
			fmt.Fprintf(&b, "  - {id: p%d, stages: [{id: s, handlers: [{id: h, send: {value: p%d}}]}]}\n", i, i+1)
		}
		b.WriteString("  - {id: p10, stages: [{id: s, handlers: [{id: last, step: {}}]}]}\n")
		b.WriteString("  - {id: poll, stages: [{id: a, handlers: [{id: slow, step: {}}]}, {id: b, handlers: [{id: again, send: " +
			"{value: poll}}]}]}\n")
		r.on("slow", func(ctx context.Context, _ *engine.Call, _ any) (model.Result, error) {
			time.Sleep(time.Duration(core.HopEvery))
			return model.Result{}, ctx.Err()
		})
		e, _ := r.start(b.String())
		r.submit(e, model.Event{Type: "p0"})
		r.submit(e, model.Event{Type: "poll"})
		pass(5 * time.Minute)
		counts := map[string]int{}
		for _, path := range r.paths() {
			counts[path]++
		}
		if counts["p10/s/last"] != 1 {
			t.Errorf("want a chain of ten events at its end, have %v", counts)
		}
		if have := counts["poll/b/again"]; have < 2*core.MaxHops {
			t.Errorf("want a loop with pauses to go on, have %d runs of it", have)
		}
		if failed, _, err := e.List(context.Background(), store.RunFilter{Status: model.Failed}); err != nil || len(failed) > 0 {
			t.Errorf("have %+v %v", failed, err)
		}
	})
}
