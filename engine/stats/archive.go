package stats

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// An archive has the metrics of the archive of ended runs. They stay 0 on nodes that do not archive.
type archive struct {
	runs    prometheus.Counter
	failing prometheus.Gauge
	oldest  prometheus.Gauge
}

func newArchive(r prometheus.Registerer) archive {
	a := archive{
		runs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "procaas_archive_runs_total",
			Help: "Ended runs that this node archived before they left the store.",
		}),
		failing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "procaas_archive_failing",
			Help: "1 while this node cannot archive ended runs, which then stay in the store. 0 otherwise, and on nodes that do not archive.",
		}),
		oldest: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "procaas_archive_oldest_seconds",
			Help: "How long ago the oldest run ended that waits for the archive of this node; 0 if none waits.",
		}),
	}
	r.MustRegister(a.runs, a.failing, a.oldest)
	return a
}

// CountArchived counts runs that this node has archived.
func (m *Metrics) CountArchived(runs int) { m.archive.runs.Add(float64(runs)) }

// ShowArchive shows whether this node fails to archive.
func (m *Metrics) ShowArchive(failing bool) {
	m.archive.failing.Set(0)
	if failing {
		m.archive.failing.Set(1)
	}
}

// ShowOldest shows how long ago the run ended that waits longest for the archive of this node. 0 means that none waits.
func (m *Metrics) ShowOldest(age time.Duration) { m.archive.oldest.Set(age.Seconds()) }
