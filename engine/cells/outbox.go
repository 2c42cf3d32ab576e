package cells

import (
	"context"
	"errors"
	"time"

	"procaas/engine"
)

// What runs emit to keys of other cells is in the outbox of their own cell, in the
// transaction that writes the run. Every process takes it on from there, in its order;
// that two may do so at once is harmless, since events are known by their ids.

const (
	relayAtOnce = 256
	relayEvery  = time.Second
	relayLong   = 10 * time.Second
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
		ctx, cancel := context.WithTimeout(s.ctx, relayLong)
		more := false
		for _, p := range s.parts {
			n, err := s.relayFrom(ctx, p)
			if err != nil && s.ctx.Err() == nil {
				s.log.Warn("events cannot be taken from one cell of the inbox to another, trying again", "cell", p.name, "error", err)
			}
			more = more || n == relayAtOnce
		}
		cancel()
		if more {
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
// an earlier one. It gives how many have gone.
func (s *Store) relayFrom(ctx context.Context, p *part) (sent int, err error) {
	store, err := p.cell()
	if err != nil {
		return 0, nil // it is told elsewhere
	}
	parcels, err := store.Outbox(ctx, relayAtOnce)
	if err != nil || len(parcels) == 0 {
		return 0, p.heed(ctx, err)
	}
	batch := make([]engine.Intake, len(parcels))
	for i, parcel := range parcels {
		batch[i] = parcel.Intake
	}
	// One batch keeps the order within each key: those of a slot are refused together,
	// or accepted in order.
	results, err := s.Accept(ctx, 0, batch)
	if err != nil {
		return 0, err
	}
	stuck := map[int]bool{}
	var done []int64
	for i, r := range results {
		slot := engine.InboxSlot(batch[i].Key)
		if failed := isPassing(r.Err); failed || stuck[slot] {
			stuck[slot] = true
			continue
		}
		done = append(done, parcels[i].Number)
	}
	return len(done), p.heed(ctx, store.Sent(ctx, done))
}

// isPassing tells whether an event that was not accepted may be later.
func isPassing(err error) bool {
	return err != nil && !errors.Is(err, engine.ErrConflict) && !errors.Is(err, engine.ErrRejected)
}
