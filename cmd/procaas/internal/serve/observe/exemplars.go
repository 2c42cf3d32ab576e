package observe

import (
	"context"
	"encoding/hex"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// exemplars mends what the bridge makes of exemplars: it takes the text of the label trace_id for the id itself.
type exemplars struct{ sdkmetric.Producer }

// Produce implements [sdkmetric.Producer].
func (e exemplars) Produce(ctx context.Context) ([]metricdata.ScopeMetrics, error) {
	all, err := e.Producer.Produce(ctx)
	for _, scope := range all {
		for _, m := range scope.Metrics {
			h, ok := m.Data.(metricdata.Histogram[float64])
			if !ok {
				continue
			}
			for _, point := range h.DataPoints {
				for i := range point.Exemplars {
					id, err := hex.DecodeString(string(point.Exemplars[i].TraceID))
					if err == nil && len(id) == 16 { // later bridges may do it themselves
						point.Exemplars[i].TraceID = id
					}
				}
			}
		}
	}
	return all, err
}
