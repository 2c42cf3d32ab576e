package stats

import (
	"strconv"

	"procaas/engine/definitions"
	"procaas/engine/model"

	"github.com/prometheus/client_golang/prometheus"
)

// This file defines how many failures are tolerable, and who owns them. So alert rules are the same
// for all pipelines, and follow each reload.

// These are the tolerable shares.
const (
	failingCritical = 0.05 // of the calls of a critical handler
	failingOther    = 0.1  // of those of another one, if its fallback does not say
	failingRuns     = 0.01 // of the runs of a pipeline
)

// A tolerance is the share of failures that need no alert.
type tolerance struct {
	path     string // of a handler or a pipeline
	owner    string
	critical bool
	most     float64
}

// handlerTolerances lists those of the handlers that make calls.
func handlerTolerances(d *definitions.Definition) (out []tolerance) {
	for _, p := range d.Plans {
		for _, s := range p.Written {
			if s.Computes() {
				continue
			}
			t := tolerance{path: s.Path, owner: s.Owner, critical: s.Handler.IsCritical(), most: failingOther}
			switch f := s.Handler.Fallback; {
			case t.critical:
				t.most = failingCritical
			case f != nil: // below that, fallback turns it off
				t.most = 1 - f.MinSuccessRatio
			}
			out = append(out, t)
		}
	}
	return out
}

// pipelineTolerances lists those of all pipelines.
func pipelineTolerances(d *definitions.Definition) (out []tolerance) {
	for _, p := range d.Plans {
		out = append(out, tolerance{path: p.Pipeline.ID, owner: p.Pipeline.Owner, most: failingRuns})
	}
	return out
}

func newHandlerTolerance() *liveGauges[tolerance] {
	labels := append(handlerLabels(), "owner", "critical")
	desc := prometheus.NewDesc("procaas_handler_tolerance", "Share of the calls of the handler that may fail before an alert: 0.05 "+
		"for a critical handler, that of the fallback if there is one, else 0.1.", labels, nil)
	return &liveGauges[tolerance]{
		labels: func(t *tolerance) []string {
			path := model.SplitPath(t.path)
			return append(path[:], t.owner, strconv.FormatBool(t.critical))
		},
		gauges: []liveGauge[tolerance]{{desc, func(t *tolerance) (float64, bool) { return t.most, true }}},
	}
}

func newPipelineTolerance() *liveGauges[tolerance] {
	desc := prometheus.NewDesc("procaas_pipeline_tolerance", "Share of the runs of the pipeline that may fail before an alert.",
		[]string{"pipeline", "owner"}, nil)
	return &liveGauges[tolerance]{
		labels: func(t *tolerance) []string { return []string{t.path, t.owner} },
		gauges: []liveGauge[tolerance]{{desc, func(t *tolerance) (float64, bool) { return t.most, true }}},
	}
}
