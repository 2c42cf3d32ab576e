package observe

import (
	"context"
	"sync"
	"time"

	"procaas/engine/inbox"

	"github.com/prometheus/client_golang/prometheus"
)

// Inbox shows which database of an inbox has what, and what moves. All nodes show
// the same, but for what each of them can reach.
type Inbox struct {
	Cells inbox.Cells

	mu   sync.Mutex // guards the following
	at   time.Time
	seen *inbox.View // nil when it could not be read
}

// The bounds of what metrics ask of an inbox.
const (
	inboxSeenAge  = 5 * time.Second // for so long, it is not asked again
	inboxSeenTime = 3 * time.Second
)

// A cellGauge is shown of each cell. One that cannot be asked has none but those of the map.
type cellGauge struct {
	desc  *prometheus.Desc
	isMap bool // the home knows it of the cell
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
func (m *Inbox) Describe(out chan<- *prometheus.Desc) {
	for _, g := range cellGauges() {
		out <- g.desc
	}
	out <- inboxMoving
	out <- inboxEnded
}

// Collect implements [prometheus.Collector].
func (m *Inbox) Collect(out chan<- prometheus.Metric) {
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

// view asks the inbox, unless it has been asked lately.
func (m *Inbox) view() *inbox.View {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.at) < inboxSeenAge {
		return m.seen
	}
	ctx, cancel := context.WithTimeout(context.Background(), inboxSeenTime)
	defer cancel()
	v, err := m.Cells.Inbox(ctx)
	if m.at, m.seen = time.Now(), &v; err != nil {
		m.seen = nil
	}
	return m.seen
}
