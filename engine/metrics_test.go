package engine_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine"
)

func TestMetricsCountWhatHappens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.on("bad", func(context.Context, *engine.Call, any) (engine.Result, error) {
			return engine.Result{}, engine.Permanent(errors.New("no"))
		})
		registry := prometheus.NewRegistry()
		e := r.engine(r.store, `
pipelines:
  - id: work
    stages:
      - id: a
        handlers:
          - {id: good, step: {}}
          - {id: bad, critical: false, step: {}}
          - {id: off, critical: false, enabled: false, step: {}}
`, func(o *engine.Options) { o.Metrics = engine.NewMetrics(registry) })
		r.run(e)
		r.settle(e, r.submit(e, event("work", "")), engine.Succeeded)
		later := event("work", "")
		later.At = time.Now().Add(time.Hour)
		r.submit(e, later)
		time.Sleep(2 * time.Second)

		have := samples(t, registry)
		for name, want := range map[string]float64{
			"procaas_events_accepted_total":                     2,
			"procaas_runs_total work succeeded":                 1,
			"procaas_handler_calls_total good succeeded work a": 1,
			"procaas_handler_calls_total bad failed work a":     1,
			"procaas_handler_calls_total off skipped work a":    1,
			"procaas_handler_seconds good work a":               1,
			"procaas_inbox_waiting":                             1,
			"procaas_inbox_oldest_seconds":                      0,
		} {
			if got, ok := have[name]; !ok || got != want {
				t.Errorf("%s: want %g, have %g; all: %v", name, want, got, slices.Sorted(maps.Keys(have)))
			}
		}
		if have["procaas_checkpoint_seconds"] < 2 {
			t.Errorf("want each checkpoint timed, have %g", have["procaas_checkpoint_seconds"])
		}
	})
}

// samples gives counters and gauges, and the counts of histograms, by name and
// the values of labels.
func samples(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}
