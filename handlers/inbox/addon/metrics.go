package addon

import (
	"context"
	"sync"
	"time"

	"procaas/handlers/inbox"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are metrics of the databases of an inbox and of moves. All nodes return the same, except for what they
// can reach.
type metrics struct {
	cells inbox.Cells

	mu   sync.Mutex // guards the following fields
	at   time.Time
	seen *inbox.View // nil if it could not be read
}

// Limits for reading an inbox for metrics.
const (
	inboxSeenAge  = 5 * time.Second // how long a view is reused
	inboxSeenTime = 3 * time.Second
)

// A cellGauge is a metric of each cell. Cells that cannot be read have only those of the map.
type cellGauge struct {
	desc  *prometheus.Desc
	isMap bool // the home database knows it
	of    func(*inbox.Cell) float64
}

func cellGauges() []cellGauge {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"cell"}, nil)
	}
	return []cellGauge{
		{
			desc("procaas_inbox_cell_up", "1 if this node can reach a database of the inbox, else 0."), true,
			func(c *inbox.Cell) float64 {
				if c.Away != "" {
					return 0
				}
				return 1
			},
		},
		{
			desc("procaas_inbox_cell_slots", "Slots of keys that a database of the inbox has."), true,
			func(c *inbox.Cell) float64 { return float64(c.Slots) },
		},
		{
			desc("procaas_inbox_cell_frozen_slots", "Slots that accept no events now, because they move."), false,
			func(c *inbox.Cell) float64 { return float64(c.Frozen) },
		},
		{
			desc("procaas_inbox_cell_waiting", "Runs that wait in a database of the inbox."), false,
			func(c *inbox.Cell) float64 { return float64(c.Waiting) },
		},
		{
			desc("procaas_inbox_cell_outbox", "Events in a database of the inbox for other databases, counted up to 1000."), false,
			func(c *inbox.Cell) float64 { return float64(c.Outbox) },
		},
		{
			desc("procaas_inbox_cell_outbox_oldest_seconds", "Age of the oldest of them; 0 if there is none."), false,
			func(c *inbox.Cell) float64 { return c.OutboxOldestS },
		},
	}
}

var (
	inboxMoving = prometheus.NewDesc("procaas_inbox_moving_slots", "Slots that still have to move to another database of the inbox.",
		nil, nil)
	inboxEnded = prometheus.NewDesc("procaas_inbox_moves_total", "Ended moves of slots, by outcome. All nodes report the same "+
		"number.", []string{"outcome"}, nil)
)

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, g := range cellGauges() {
		out <- g.desc
	}
	out <- inboxMoving
	out <- inboxEnded
}

// Collect implements [prometheus.Collector].
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	v := m.view()
	if v == nil {
		return
	}
	for i := range v.Cells {
		for _, g := range cellGauges() {
			if c := &v.Cells[i]; g.isMap || c.Away == "" {
				out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.of(c), c.Name)
			}
		}
	}
	moving := 0
	for _, move := range v.Moves {
		if move.Ended == nil {
			moving += move.Slots - move.Moved
		}
	}
	out <- prometheus.MustNewConstMetric(inboxMoving, prometheus.GaugeValue, float64(moving))
	out <- prometheus.MustNewConstMetric(inboxEnded, prometheus.CounterValue, float64(v.Ended.Moved), "moved")
	out <- prometheus.MustNewConstMetric(inboxEnded, prometheus.CounterValue, float64(v.Ended.Undone), "undone")
}

// view reads the inbox, or reuses a recent view.
func (m *metrics) view() *inbox.View {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.at) < inboxSeenAge {
		return m.seen
	}
	ctx, cancel := context.WithTimeout(context.Background(), inboxSeenTime)
	defer cancel()
	v, err := m.cells.Inbox(ctx)
	m.at, m.seen = time.Now(), &v
	if err != nil {
		m.seen = nil
	}
	return m.seen
}
