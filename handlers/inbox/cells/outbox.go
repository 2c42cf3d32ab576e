package cells

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"procaas/engine/model"
	"procaas/engine/pgkit"
	"procaas/engine/store"
)

// Events that runs emit to keys of other cells are in the outbox of their own cell, written by the transaction that writes the run.
// Every process takes them from there, in their order. Two may do so at once, since the ids of events make repetitions known.

const (
	relayAtOnce = 256              // events of one batch
	relayTurn   = 64               // batches of one cell before the next cell has its turn
	relayEvery  = time.Second      // finds events that other processes emitted
	relayLong   = 10 * time.Second // bounds one batch, so that a cell that hangs does not hold up the others
)

// nudge tells that there may be something in an outbox.
func (s *members) nudge() { pgkit.Signal(s.emitted) }

// relay empties the outboxes as long as the store is open, and delivers parcels of tasks.
func (s *members) relay() {
	tick := time.NewTicker(relayEvery)
	defer tick.Stop()
	for {
		more := false
		for _, p := range s.parts {
			again, err := s.relayFrom(p)
			s.complain(p, "events", err)
			more = more || again
			if s.queues() {
				ctx, cancel := context.WithTimeout(s.ctx, relayLong)
				s.complain(p, "tasks", s.deliver(ctx, p))
				cancel()
			}
		}
		if more && s.ctx.Err() == nil {
			continue
		}
		select {
		case <-s.ctx.Done():
			return
		case <-s.emitted:
		case <-tick.C:
		}
	}
}

// complain logs what cannot be delivered. Cells that are away are logged elsewhere.
func (s *members) complain(p *part, what string, err error) {
	if err != nil && !errors.Is(err, store.ErrAway) && s.ctx.Err() == nil {
		s.log.Warn(what+" cannot be taken from one cell of the inbox to another, trying again", "cell", p.name, "error", err)
	}
}

// relayFrom takes events from the outbox of a cell to their cells. Within a slot they keep their order. Slots that are stuck do not
// hold up others. Neither do rows that cannot be read: they stay until somebody mends or deletes them. More reports that it stopped to
// let other cells have their turn.
func (s *members) relayFrom(p *part) (more bool, err error) {
	r := relaying{stuck: map[int]bool{}, damaged: map[int64]error{}}
	for range relayTurn {
		ctx, cancel := context.WithTimeout(s.ctx, relayLong)
		n, err := use(ctx, p, func(db *store.Cell) (int, error) { return s.relayOnce(ctx, db, &r) })
		cancel()
		if err != nil {
			return false, err
		}
		if n < relayAtOnce {
			s.report(p, r.damaged)
			return false, nil
		}
	}
	return true, nil
}

// report notes which rows of the outbox of a cell cannot be read, and logs those that are new.
func (s *members) report(p *part, damaged map[int64]error) {
	p.mu.Lock()
	before := p.damaged
	p.damaged = damaged
	p.mu.Unlock()
	for number, why := range damaged {
		if before[number] == nil {
			s.log.Error("event of the inbox is set aside, since its row in the store is damaged", "cell", p.name, "table", "inbox_outbox",
				"number", number, "error", why)
		}
	}
}

// Damaged implements [store.Scattered].
func (s *members) Damaged() error {
	var all []error
	for _, p := range s.parts {
		p.mu.Lock()
		numbers := slices.Sorted(maps.Keys(p.damaged))
		p.mu.Unlock()
		if len(numbers) > 0 {
			all = append(all, fmt.Errorf("%w: %d events for other cells cannot be read in cell %s, the first in the row of inbox_outbox with the "+
				"number %d. Check the disk. Put the rows back from a backup, or delete them there and submit the events again",
				store.ErrDamaged, len(numbers), p.name, numbers[0]))
		}
	}
	return errors.Join(all...)
}

// A relaying is what one pass through an outbox leaves there.
type relaying struct {
	stuck   map[int]bool    // slots
	damaged map[int64]error // rows, by their numbers
}

// relayOnce takes the first events of slots that are not stuck, and notes which slots are. It returns the number of events.
func (s *members) relayOnce(ctx context.Context, db *store.Cell, r *relaying) (n int, err error) {
	events, err := db.Outbox.OutboxEvents(ctx, slices.Collect(maps.Keys(r.stuck)), slices.Collect(maps.Keys(r.damaged)), relayAtOnce)
	if err != nil {
		return 0, err
	}
	n = len(events)
	events = slices.DeleteFunc(events, func(e store.OutboxEvent) bool {
		if e.Damage != nil {
			r.damaged[e.Number] = e.Damage
		}
		return e.Damage != nil
	})
	if len(events) == 0 {
		return n, nil
	}
	batch := make([]model.Intake, len(events))
	for i, e := range events {
		batch[i] = e.Intake
	}
	// A batch keeps the order within a key: the events of a slot are all refused, or accepted in order.
	results, err := s.Accept(ctx, 0, batch)
	if err != nil {
		return 0, err
	}
	var done []int64
	for i, result := range results {
		slot := store.InboxSlot(batch[i].Key)
		passes := result.Err != nil && !errors.Is(result.Err, store.ErrConflict) && !errors.Is(result.Err, store.ErrRejected)
		r.stuck[slot] = r.stuck[slot] || passes
		if !r.stuck[slot] {
			done = append(done, events[i].Number)
		}
	}
	maps.DeleteFunc(r.stuck, func(_ int, is bool) bool { return !is })
	return n, db.Outbox.Sent(ctx, done)
}
