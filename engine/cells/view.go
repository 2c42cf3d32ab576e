package cells

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"procaas/engine/inbox"
	"procaas/engine/store"
)

var _ inbox.Cells = (*Store)(nil)

// Inbox implements [inbox.Cells].
func (s *Store) Inbox(ctx context.Context) (inbox.View, error) {
	c, err := s.refresh(ctx)
	if err != nil {
		return inbox.View{}, err
	}
	v := inbox.View{Inbox: c.Inbox, Slots: store.InboxSlots, Moves: []inbox.Move{}, Ended: c.Ended}
	v.Cells, _ = each(s.live(), func(p *part) (inbox.Cell, error) { return s.view(ctx, c, p), nil })
	for _, m := range slices.SortedFunc(maps.Values(c.Moves), func(a, b *Move) int { return a.Begun.Compare(b.Begun) }) {
		out := m.view()
		s.mu.Lock()
		if w := s.movers[m.ID]; w != nil {
			out.Rows = w.rows.Load()
		}
		s.mu.Unlock()
		v.Moves = append(v.Moves, out)
	}
	for _, d := range slices.Backward(c.Done) {
		step, over := "moved", d.Slots
		if d.Error != "" {
			step, over = "undone", d.Over
		}
		v.Moves = append(v.Moves, inbox.Move{
			ID: d.ID, From: d.From, To: d.To, Slots: d.Slots, Moved: over, Step: step, By: d.By, Reason: d.Reason,
			Begun: d.Begun, Ended: &d.Ended, Rows: d.Rows, FrozenS: d.Frozen, Error: d.Error,
		})
	}
	return v, nil
}

// view describes one cell; what cannot be asked is left out.
func (s *Store) view(ctx context.Context, c *Chart, p *part) inbox.Cell {
	slots := c.SlotsOf(p.name)
	out := inbox.Cell{Name: p.name, Slots: len(slots), Spans: inbox.FormatSlots(slots)}
	db, err := p.cell()
	if err == nil {
		var d store.Depth
		d, err = gauge(ctx, db)
		out.Waiting = d.Waiting
	}
	if err == nil {
		var l store.CellLoad
		l, err = db.Enrolment.Load(ctx)
		out.Frozen, out.Outbox, out.OutboxOldestS = l.Frozen, l.Outbox, l.Oldest.Seconds()
	}
	if err = p.heed(ctx, err); err != nil {
		out.Away = err.Error()
	}
	return out
}

// Loads implements [inbox.Cells].
func (s *Store) Loads(ctx context.Context) ([]int64, error) {
	all, err := ask(ctx, s, func(db *store.Cell) (map[int]int64, error) { return db.Moves.Loads(ctx) })
	loads := make([]int64, store.InboxSlots)
	for _, some := range all {
		for slot, load := range some {
			loads[slot] += load // tasks without a key may be anywhere
		}
	}
	return loads, err
}

// moved counts the slots that are the target's.
func (m *Move) moved() int {
	if m.Step == Switched || m.Step == Opened {
		return m.Over + len(ofKeys(m.Slots))
	}
	return m.Over
}

// view makes a move readable.
func (m *Move) view() inbox.Move {
	return inbox.Move{
		ID: m.ID, From: m.From, To: m.To, Slots: m.all(), Moved: m.moved(), Step: string(m.Step), By: m.By, Reason: m.Reason, Begun: m.Begun,
	}
}

// MoveSlots implements [inbox.Cells].
func (s *Store) MoveSlots(ctx context.Context, o inbox.Order, by store.Actor, dry bool) (inbox.Move, error) {
	order := Order{Slots: o.Slots, To: o.To, Wait: o.Wait, By: by}
	if dry {
		c, err := s.refresh(ctx)
		if err != nil {
			return inbox.Move{}, err
		}
		from, err := s.checkOrder(c, order)
		now, again := s.now(ctx)
		return inbox.Move{From: from, To: o.To, Slots: len(o.Slots), Step: "planned", By: by.Name, Reason: by.Reason, Begun: now},
			cmp.Or(err, again)
	}
	m, err := s.enter(ctx, order)
	if err != nil {
		return inbox.Move{}, err
	}
	view := m.view()
	s.helpers.Go(func() { s.carry(m, cmp.Or(o.Wait, DefaultWait)) })
	return view, nil
}
