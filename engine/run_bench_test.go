package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"procaas/engine/core"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// BenchmarkRunThreeHandlers is what the core itself costs in a run of three calls.
func BenchmarkRunThreeHandlers(b *testing.B) {
	b.ReportAllocs()
	plan := benchPlan(b, 3)
	live := core.Live{Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	response := map[string]any{"order": map[string]any{"id": "o1", "tariff": "econom", "price": 199}}
	for b.Loop() {
		run := core.Begin(plan, core.Start{ID: "r1", Event: model.Event{ID: "e1", Type: "p", Payload: response}})
		for !run.Status().Ended() {
			tasks := run.Ready(live)
			run.Change()
			for _, task := range tasks {
				run.Finish(task.Ref(), core.Outcome{Result: model.Result{Response: response}}, live)
			}
		}
		if run.Change().Status != model.Succeeded {
			b.Fatal(run.Change().Error)
		}
	}
}

func BenchmarkPlan(b *testing.B) {
	plan := benchPlan(b, 100)
	types := facts()
	for b.Loop() {
		if _, err := planner.New(plan.Bundle, plan.Pipeline, types); err != nil {
			b.Fatal(err)
		}
	}
}

// benchPlan is a pipeline of one stage with n handlers, each of which depends on
// the one before.
func benchPlan(b *testing.B, n int) *planner.Plan {
	var yaml strings.Builder
	yaml.WriteString("pipelines:\n- id: p\n  shared-state: {s0: {id: x}")
	for i := range n {
		fmt.Fprintf(&yaml, ", s%d: null", i+1)
	}
	yaml.WriteString("}\n  stages:\n  - id: s\n    handlers:\n")
	for i := range n {
		fmt.Fprintf(&yaml, "    - id: h%d\n      request: {id: !$ shared-state.s%d.id, tariff: !$ event.payload.order.tariff}\n     "+
			" result: {s%d: !$ sources.h%d.response.order}\n", i, i, i+1, i)
	}
	return plan(b, yaml.String())
}
