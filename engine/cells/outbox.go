package cells

import (
	"context"
	"errors"
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
			ctx, cancel := context.WithTimeout(s.ctx, relayLong)
			s.complain(p, "tasks", s.deliver(ctx, p))
			cancel()
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
// hold up others. More reports that it stopped to let other cells have their turn.
func (s *members) relayFrom(p *part) (more bool, err error) {
	stuck := map[int]bool{}
	for range relayTurn {
		ctx, cancel := context.WithTimeout(s.ctx, relayLong)
		n, err := use(ctx, p, func(db *store.Cell) (int, error) { return s.relayOnce(ctx, db, stuck) })
		cancel()
		if err != nil || n < relayAtOnce {
			return false, err
		}
	}
	return true, nil
}

// relayOnce takes the first events of slots that are not stuck, and notes which slots are. It returns the number of events.
func (s *members) relayOnce(ctx context.Context, db *store.Cell, stuck map[int]bool) (n int, err error) {
	events, err := db.Outbox.OutboxEvents(ctx, slices.Collect(maps.Keys(stuck)), relayAtOnce)
	if err != nil || len(events) == 0 {
		return 0, err
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
	for i, r := range results {
		slot := store.InboxSlot(batch[i].Key)
		passes := r.Err != nil && !errors.Is(r.Err, store.ErrConflict) && !errors.Is(r.Err, store.ErrRejected)
		if stuck[slot] = stuck[slot] || passes; !stuck[slot] {
			done = append(done, events[i].Number)
		}
	}
	maps.DeleteFunc(stuck, func(_ int, is bool) bool { return !is })
	return len(events), db.Outbox.Sent(ctx, done)
}
