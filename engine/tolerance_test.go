package engine_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine"
	"procaas/engine/stats"
)

// The rules for alerts are the same for all pipelines: what is too much, and whose it is, they
// find in metrics.
func TestTolerancesAreThoseOfTheDefinition(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		registry := prometheus.NewRegistry()
		r.engine(r.store, `
pipelines:
  - id: work
    owner: team-a
    stages:
      - id: s
        handlers:
          - {id: must, step: {}}
          - {id: may, critical: false, owner: team-b, step: {}}
          - {id: out, critical: false, step: {}, fallback: {min-success-ratio: 0.75}}
  - {id: quiet, stages: [{id: s, handlers: [{id: h, step: {}}]}]}
`, func(o *engine.Options) { o.Metrics = stats.NewMetrics(registry) })
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				key := ""
				for _, l := range m.GetLabel() {
					key += " " + l.GetName() + "=" + l.GetValue()
				}
				have[f.GetName()+key] = m.GetGauge().GetValue()
			}
		}
		for key, want := range map[string]float64{
			"procaas_handler_tolerance critical=true handler=must owner=team-a pipeline=work stage=s": 0.05,
			"procaas_handler_tolerance critical=false handler=may owner=team-b pipeline=work stage=s": 0.1,
			"procaas_handler_tolerance critical=false handler=out owner=team-a pipeline=work stage=s": 0.25,
			"procaas_pipeline_tolerance owner=team-a pipeline=work":                                   0.01,
			"procaas_pipeline_tolerance owner= pipeline=quiet":                                        0.01,
		} {
			if got, ok := have[key]; !ok || got != want {
				t.Errorf("%s: want %g, have %g (%v)", key, want, got, ok)
			}
		}
	})
}
