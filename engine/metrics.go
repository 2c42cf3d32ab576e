package engine

import "github.com/prometheus/client_golang/prometheus"

// Metrics are what the engine counts. Names and labels are the contract's.
type Metrics struct {
	HandlerCalls   *prometheus.CounterVec   // pipeline, stage, handler, outcome
	HandlerSeconds *prometheus.HistogramVec // pipeline, stage, handler
	Accepted       prometheus.Counter
	Runs           *prometheus.CounterVec // pipeline, status
	InboxWaiting   prometheus.Gauge
	InboxOldest    prometheus.Gauge
	Checkpoint     prometheus.Histogram
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(r prometheus.Registerer) *Metrics { panic("engine: NewMetrics is not written yet") }
