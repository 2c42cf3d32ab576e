package observe

import "github.com/prometheus/client_golang/prometheus"

// NewDegraded returns the metric of what /readyz names as degraded.
func NewDegraded(of interface{ Degraded() error }) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "procaas_node_degraded",
		Help: "1 while a part of the node does not work although the node does; /readyz says which. 0 otherwise.",
	}, func() float64 {
		if of.Degraded() != nil {
			return 1
		}
		return 0
	})
}
