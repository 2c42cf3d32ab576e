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
		have := samples(t, registry)
		for key, want := range map[string]float64{ // critical, handler, owner, pipeline, stage
			"procaas_handler_tolerance true must team-a work s": 0.05,
			"procaas_handler_tolerance false may team-b work s": 0.1,
			"procaas_handler_tolerance false out team-a work s": 0.25,
			"procaas_pipeline_tolerance team-a work":            0.01,
			"procaas_pipeline_tolerance  quiet":                 0.01, // nobody owns it
		} {
			if got, ok := have[key]; !ok || got != want {
				t.Errorf("%s: want %g, have %g (%v)", key, want, got, ok)
			}
		}
	})
}
