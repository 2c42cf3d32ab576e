package addon

import (
	"context"
	"errors"
	"testing"
	"time"

	"procaas/handlers/inbox"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// A seenInbox is an inbox with prepared answers.
type seenInbox struct {
	inbox.Cells
	view inbox.View
	err  error
}

func (s *seenInbox) Inbox(context.Context) (inbox.View, error) { return s.view, s.err }

// Metrics tell of each cell what is known of it, and nothing of an inbox that cannot be
// read: a wrong number is worse than none.
func TestInboxMetrics(t *testing.T) {
	t.Parallel()
	ended := time.Now()
	s := &seenInbox{view: inbox.View{
		Cells: []inbox.Cell{
			{Name: "home", Slots: 4000, Waiting: 7, Frozen: 3, Outbox: 2, OutboxOldestS: 1.5},
			{Name: "b", Slots: 96, Away: "connection refused"},
		},
		Moves: []inbox.Move{{Slots: 100, Moved: 40}, {Slots: 50, Ended: &ended}},
		Ended: inbox.Ended{Moved: 5, Undone: 1},
	}}
	want := map[string]float64{
		"procaas_inbox_cell_up home": 1, "procaas_inbox_cell_up b": 0,
		"procaas_inbox_cell_slots home": 4000, "procaas_inbox_cell_slots b": 96,
		"procaas_inbox_cell_frozen_slots home": 3, "procaas_inbox_cell_waiting home": 7,
		"procaas_inbox_cell_outbox home": 2, "procaas_inbox_cell_outbox_oldest_seconds home": 1.5,
		"procaas_inbox_moving_slots": 60, "procaas_inbox_moves_total moved": 5, "procaas_inbox_moves_total undone": 1,
	}
	if d := cmp.Diff(want, gathered(t, &metrics{cells: s})); d != "" {
		t.Errorf("-want +have\n%s", d)
	}
	s.err = errors.New("away")
	if have := gathered(t, &metrics{cells: s}); len(have) > 0 {
		t.Errorf("want nothing of an inbox that cannot be read, have %v", have)
	}
}

// gathered returns the values of a collector by name and label.
func gathered(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}
