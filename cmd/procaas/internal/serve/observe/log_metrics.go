package observe

import "github.com/prometheus/client_golang/prometheus"

// NewLostLines returns the metric of lines of the log that nobody will read.
func NewLostLines(lost func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "procaas_log_dropped_total",
		Help: "Lines of the log that were lost, because their reader was too slow or gone.",
	}, func() float64 { return float64(lost()) })
}
