package addon

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/language"
)

// metrics are those of the latest observations of balancers. Each scrape reads them from the store, so all
// nodes return the same.
type metrics struct {
	of    *clusters.Clusters
	descs []*prometheus.Desc
}

// clusterGauges are the metrics of each cluster.
var clusterGauges = []struct {
	name, help string
	kind       prometheus.ValueType
	of         func(*clusters.ClusterStatus) float64
}{
	{
		"procaas_cluster_gini", "The Gini index of the weights of the workers, from 0 (even) to 1.", prometheus.GaugeValue,
		func(s *clusters.ClusterStatus) float64 { return s.State.Gini },
	},
	{
		"procaas_cluster_requests_per_second", "Requests that the workers serve.", prometheus.GaugeValue,
		func(s *clusters.ClusterStatus) float64 { return s.State.Requests },
	},
	{
		"procaas_cluster_drops_per_second", "Requests that the workers drop for lack of capacity.", prometheus.GaugeValue,
		func(s *clusters.ClusterStatus) float64 { return s.State.Drops },
	},
	{
		"procaas_cluster_moves_total", "Moves of partitions.", prometheus.CounterValue,
		func(s *clusters.ClusterStatus) float64 { return float64(s.State.Moves) },
	},
	{
		"procaas_cluster_drops_total", "Requests that the workers dropped for lack of capacity.", prometheus.CounterValue,
		func(s *clusters.ClusterStatus) float64 { return s.State.Dropped },
	},
	{
		"procaas_cluster_assignment_version", "The version of the assignment.", prometheus.GaugeValue,
		func(s *clusters.ClusterStatus) float64 { return float64(s.Assignment.Version) },
	},
	{"procaas_cluster_workers_up", "Workers that answer.", prometheus.GaugeValue, func(s *clusters.ClusterStatus) float64 {
		up := 0
		for _, w := range s.State.Workers {
			if w.Up {
				up++
			}
		}
		return float64(up)
	}},
	{
		"procaas_cluster_alerts", "The number of alerts of the cluster.", prometheus.GaugeValue,
		func(s *clusters.ClusterStatus) float64 { return float64(len(s.State.Alerts)) },
	},
	{
		"procaas_cluster_unserved_partitions", "Partitions that no worker serves, because none of those that may hold them answers.",
		prometheus.GaugeValue,
		func(s *clusters.ClusterStatus) float64 { return float64(s.State.Unserved) },
	},
	{
		"procaas_cluster_observed_seconds", "Time of the last observation, as Unix time.", prometheus.GaugeValue,
		func(s *clusters.ClusterStatus) float64 { return s.State.At },
	},
}

// newMetrics returns the metrics of the clusters.
func newMetrics(of *clusters.Clusters) *metrics {
	m := &metrics{of: of}
	for _, g := range clusterGauges {
		m.descs = append(m.descs, prometheus.NewDesc(g.name, g.help, []string{"cluster"}, nil))
	}
	return m
}

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range m.descs {
		out <- d
	}
}

// Collect implements [prometheus.Collector]. It omits clusters that it cannot read.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, c := range language.ClustersOf(m.of.Bundle()) {
		status, err := m.of.ClusterStatus(ctx, c.ID)
		if err != nil || status.State.Decided == 0 {
			continue
		}
		for i, g := range clusterGauges {
			out <- prometheus.MustNewConstMetric(m.descs[i], g.kind, g.of(&status), c.ID)
		}
	}
}
