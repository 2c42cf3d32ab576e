package observe

import (
	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine/budget"
)

// Memory has the metrics of the node's budget of memory.
type Memory struct {
	Of *budget.Memory
}

var (
	memoryLimit = prometheus.NewDesc("procaas_memory_limit_bytes",
		"Bytes that the node may use: --memory, or the limit of its container.", nil, nil)
	memoryBudget = prometheus.NewDesc("procaas_memory_budget_bytes",
		"Bytes of the limit that runs, requests and replies share.", nil, nil)
	memoryUsed = prometheus.NewDesc("procaas_memory_used_bytes",
		"Bytes of the budget in use: runs, replies, requests, proxied requests, pages and messages.", []string{"kind"}, nil)
	memoryWaiting = prometheus.NewDesc("procaas_memory_waiting",
		"Runs, replies and requests that wait for memory.", nil, nil)
	memoryWaits = prometheus.NewDesc("procaas_memory_waits_total",
		"How often a kind had to wait for memory.", []string{"kind"}, nil)
	memoryRefused = prometheus.NewDesc("procaas_memory_refused_total",
		"How often a kind got no memory: too large for the node, or none in time.", []string{"kind"}, nil)
)

// Describe implements [prometheus.Collector].
func (m *Memory) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{memoryLimit, memoryBudget, memoryUsed, memoryWaiting, memoryWaits, memoryRefused} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *Memory) Collect(out chan<- prometheus.Metric) {
	u := m.Of.Usage()
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	gauge(memoryLimit, u.Limit)
	gauge(memoryBudget, u.Budget)
	gauge(memoryWaiting, u.Waiting)
	for _, k := range budget.Kinds() {
		gauge(memoryUsed, u.Used[k], string(k))
		out <- prometheus.MustNewConstMetric(memoryWaits, prometheus.CounterValue, float64(u.Waits[k]), string(k))
		out <- prometheus.MustNewConstMetric(memoryRefused, prometheus.CounterValue, float64(u.Refused[k]), string(k))
	}
}
