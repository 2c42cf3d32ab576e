package cells

import (
	"context"
	"maps"
	"slices"

	"procaas/engine/store"
	"procaas/handlers/inbox"
)

// Inbox implements [inbox.Cells].
func (s *moves) Inbox(ctx context.Context) (inbox.View, error) {
	c, err := s.refresh(ctx)
	if err != nil {
		return inbox.View{}, err
	}
	v := inbox.View{Inbox: c.Inbox, Slots: store.InboxSlots, Moves: []inbox.Move{}, Ended: c.Ended}
	v.Cells, _ = each(s.live(), func(p *part) (inbox.Cell, error) { return view(ctx, c, p), nil })
	for _, m := range slices.SortedFunc(maps.Values(c.Moves), func(a, b *Move) int { return a.Begun.Compare(b.Begun) }) {
		out := m.view()
		s.mu.Lock()
		if v := s.movers[m.ID]; v != nil {
			out.Rows = v.rows.Load()
		}
		s.mu.Unlock()
		v.Moves = append(v.Moves, out)
	}
	for _, done := range slices.Backward(c.Done) {
		v.Moves = append(v.Moves, done)
	}
	return v, nil
}

// view describes a cell. If the cell does not answer, it says why.
func view(ctx context.Context, c *Chart, p *part) inbox.Cell {
	slots := c.SlotsOf(p.name)
	out := inbox.Cell{Name: p.name, Slots: len(slots), Spans: inbox.FormatSlots(slots)}
	if err := p.use(ctx, func(db *store.Cell) error {
		d, err := db.Gauge.GaugeDepth(ctx)
		if err != nil {
			return err
		}
		l, err := db.Enrolment.Load(ctx)
		out.Waiting = d.Waiting
		out.Frozen = l.Frozen
		out.Outbox = l.Outbox
		out.OutboxOldestS = l.Oldest.Seconds()
		return err
	}); err != nil {
		out.Away = err.Error()
	}
	return out
}

// Loads implements [inbox.Cells].
func (s *moves) Loads(ctx context.Context) ([]int64, error) {
	all, err := ask(ctx, s.directory, func(db *store.Cell) (map[int]int64, error) { return db.Moves.Loads(ctx) })
	loads := make([]int64, store.InboxSlots)
	for _, some := range all {
		for slot, load := range some {
			loads[slot] += load // any cell may have tasks without a key
		}
	}
	return loads, err
}
