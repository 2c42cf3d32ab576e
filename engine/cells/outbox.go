package cells

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// What runs emit to keys of other cells is in the outbox of their own cell, in the
// transaction that writes the run. Every process takes it on from there, in its order;
// that two may do so at once is harmless, since events are known by their ids.

const (
	relayAtOnce = 256              // events of one batch
	relayTurn   = 64               // batches of one cell, before it is another one's turn
	relayEvery  = time.Second      // what another process has emitted is found without a nudge
	relayLong   = 10 * time.Second // bounds one batch: a cell that hangs must not hold the others up
)

// nudge tells that there may be something in an outbox.
func (s *Store) nudge() {
	select {
	case s.relays <- struct{}{}:
	default:
	}
}

// relay empties the outboxes as long as the store is open.
func (s *Store) relay() {
	tick := time.NewTicker(relayEvery)
	defer tick.Stop()
	for {
		more := false
		for _, p := range s.parts {
			again, err := s.relayFrom(p)
			if err != nil && s.ctx.Err() == nil {
				s.log.Warn("events cannot be taken from one cell of the inbox to another, trying again", "cell", p.name, "error", err)
			}
			more = more || again
			ctx, cancel := context.WithTimeout(s.ctx, relayLong)
			if err := s.deliver(ctx, p); err != nil && !errors.Is(err, store.ErrAway) && s.ctx.Err() == nil {
				s.log.Warn("tasks cannot be taken from one cell of the inbox to another, trying again", "cell", p.name, "error", err)
			}
			cancel()
		}
		if more && s.ctx.Err() == nil {
			continue
		}
		select {
		case <-s.ctx.Done():
			return
		case <-s.relays:
		case <-tick.C:
		}
	}
}

// relayFrom takes events from the outbox of a cell to theirs. Of a slot none goes before
// an earlier one; those of other slots pass by what cannot go at present. More tells that
// it has stopped to let other cells have their turn.
func (s *Store) relayFrom(p *part) (more bool, err error) {
	store, err := p.cell()
	if err != nil {
		return false, nil // it is told elsewhere
	}
	stuck := map[int]bool{}
	for range relayTurn {
		n, err := s.relayOnce(p, store, stuck)
		if err != nil || n < relayAtOnce {
			return false, err
		}
	}
	return true, nil
}

// relayOnce takes the first events of slots that are not stuck, and notes which are. It
// returns how many there were.
func (s *Store) relayOnce(p *part, db *store.Cell, stuck map[int]bool) (n int, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, relayLong)
	defer cancel()
	parcels, err := db.Outbox.OutboxEvents(ctx, slices.Collect(maps.Keys(stuck)), relayAtOnce)
	if err != nil || len(parcels) == 0 {
		return 0, p.heed(ctx, err)
	}
	batch := make([]model.Intake, len(parcels))
	for i, parcel := range parcels {
		batch[i] = parcel.Intake
	}
	// One batch keeps the order within each key: those of a slot are refused together,
	// or accepted in order.
	results, err := s.Accept(ctx, 0, batch)
	if err != nil {
		return 0, err
	}
	var done []int64
	for i, r := range results {
		slot := store.InboxSlot(batch[i].Key)
		if isPassing(r.Err) || stuck[slot] {
			stuck[slot] = true
			continue
		}
		done = append(done, parcels[i].Number)
	}
	return len(parcels), p.heed(ctx, db.Outbox.Sent(ctx, done))
}

// isPassing reports whether an event that was not accepted may be later.
func isPassing(err error) bool {
	return err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrRejected)
}
