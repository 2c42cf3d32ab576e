package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/engine/stats"
)

func TestMetricsCountWhatHappens(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.on("bad", func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{}, model.Permanent(errors.New("no"))
		})
		registry := prometheus.NewRegistry()
		e, _ := r.start(`
pipelines:
  - id: work
    stages:
      - id: a
        handlers:
          - {id: good, step: {}}
          - {id: bad, critical: false, step: {}}
          - {id: off, critical: false, enabled: false, step: {}}
`, func(o *engine.Options) { o.Metrics = stats.NewMetrics(registry) })
		r.settle(e, r.submit(e, event("work", "")), model.Succeeded)
		later := event("work", "")
		later.At = time.Now().Add(time.Hour)
		r.submit(e, later)
		pass(2 * time.Second)

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

// contract lists what dashboards and alerts are built on: names, types and labels.
const contract = `procaas_archive_failing GAUGE
procaas_archive_oldest_seconds GAUGE
procaas_archive_runs_total COUNTER
procaas_checkpoint_seconds HISTOGRAM
procaas_claims_stalled_seconds GAUGE
procaas_events_accepted_total COUNTER
procaas_events_shed_total COUNTER reason
procaas_events_untaken_total COUNTER reason
procaas_handler_calls_total COUNTER handler outcome pipeline stage
procaas_handler_fallback GAUGE handler pipeline stage
procaas_handler_given_up_total COUNTER handler pipeline stage
procaas_handler_in_flight GAUGE handler pipeline stage
procaas_handler_seconds HISTOGRAM handler pipeline stage
procaas_handler_success_ratio GAUGE handler pipeline stage
procaas_handler_tolerance GAUGE critical handler owner pipeline stage
procaas_handler_waiting GAUGE handler pipeline stage
procaas_inbox_oldest_seconds GAUGE
procaas_inbox_waiting GAUGE
procaas_limit_values_full_total COUNTER
procaas_pipeline_call_seconds_total COUNTER pipeline
procaas_pipeline_cpu_seconds_total COUNTER pipeline
procaas_pipeline_reply_bytes_total COUNTER pipeline
procaas_pipeline_request_bytes_total COUNTER pipeline
procaas_pipeline_stored_bytes_total COUNTER pipeline
procaas_pipeline_tolerance GAUGE owner pipeline
procaas_run_seconds HISTOGRAM from pipeline
procaas_runs_damaged_total COUNTER
procaas_runs_not_undone_total COUNTER
procaas_runs_passed_total COUNTER
procaas_runs_quarantined_total COUNTER
procaas_runs_total COUNTER pipeline status
procaas_shadow_calls_total COUNTER
procaas_stage_seconds HISTOGRAM from pipeline stage
procaas_store_errors_total COUNTER operation
procaas_store_lost GAUGE
procaas_switch_off GAUGE handler pipeline stage
`

// TestMetricsKeepTheirContract runs events and compares all that is shown; the
// names and helps obey the rules of promtool check metrics.
func TestMetricsKeepTheirContract(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		registry := prometheus.NewRegistry()
		e, _ := r.start(three, func(o *engine.Options) { o.Metrics = stats.NewMetrics(registry) })
		r.settle(e, r.submit(e, event("work", "o-1")), model.Succeeded)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var have strings.Builder
		for _, f := range families {
			labels := map[string]bool{}
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = true
				}
			}
			fmt.Fprintln(&have, strings.Join(append([]string{f.GetName(), f.GetType().String()}, slices.Sorted(maps.Keys(labels))...), " "))
		}
		if have.String() != contract {
			t.Errorf("want\n%s\nhave\n%s", contract, have.String())
		}
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	})
}

// Series are those of the present definition, and of those before for as long as
// runs may need them.
func TestMetricsForgetHandlersThatAreGone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		registry := prometheus.NewRegistry()
		e, _ := r.start(three, func(o *engine.Options) { o.Metrics = stats.NewMetrics(registry) })
		r.settle(e, r.submit(e, event("work", "o-1")), model.Succeeded)
		if _, err := e.Load(t.Context(), r.bundle(parallel(1)), operator); err != nil {
			t.Fatal(err)
		}
		old := []string{"procaas_handler_calls_total one succeeded work a", "procaas_handler_seconds one work a"}
		pass(30 * time.Minute)
		for _, name := range old {
			if have := samples(t, registry); have[name] != 1 {
				t.Errorf("half an hour later: want %s still shown, have %v", name, slices.Sorted(maps.Keys(have)))
			}
		}
		pass(31 * time.Minute)
		for name := range samples(t, registry) {
			if strings.Contains(name, " one ") {
				t.Errorf("an hour later: want what is gone forgotten, have %s", name)
			}
		}
		if _, ok := samples(t, registry)["procaas_handler_calls_total h0 succeeded work a"]; !ok {
			t.Error("want the new handler shown though it was never called")
		}
	})
}

func TestHandlersTellWhatWaitsAndWhatIsUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		open := make(gate)
		r.on("one", open.do)
		e, _ := r.start(`
pipelines:
  - id: work
    owner: team-work
    stages: [{id: a, handlers: [{id: one, max-in-flight: 1, step: {}}]}]
`)
		first, second := r.submit(e, event("work", "")), r.submit(e, event("work", ""))
		synctest.Wait()
		h, ok := e.Handler("work/a/one")
		if !ok || h.InFlight != 1 || h.Waiting != 1 || h.Owner != "team-work" {
			t.Errorf("want one call under way, one run that waits, and the pipeline's owner, have %+v", h)
		}
		close(open)
		r.settle(e, first, model.Succeeded)
		r.settle(e, second, model.Succeeded)
		h, _ = e.Handler("work/a/one")
		if h.InFlight != 0 || h.Waiting != 0 || h.LastSuccess == nil || h.LastFailure != nil || h.CallsPerS == 0 {
			t.Errorf("want nothing left of it but the calls, have %+v", h)
		}
		if _, ok := e.Handler("work/a/two"); ok {
			t.Error("want no handler where there is none")
		}
	})
}

// samples returns counters and gauges, and the counts of histograms, by name and
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
