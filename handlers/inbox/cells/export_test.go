package cells

import (
	"context"
	"time"

	"procaas/engine/store"
	"procaas/handlers/inbox"
)

// An Order is an order of an actor.
type Order struct {
	Slots []int
	To    string
	Wait  time.Duration
	By    store.Actor
}

// MoveNow moves slots, and waits for the end. The last of [Chart.Done] has the error.
func (s *Store) MoveNow(ctx context.Context, o Order) error {
	m, err := s.enter(ctx, inbox.Order{Slots: o.Slots, To: o.To, Wait: o.Wait}, o.By)
	if err != nil {
		return err
	}
	s.carry(m, o.Wait)
	return nil
}

// All returns every slot.
func All() (all []int) {
	for i := range store.InboxSlots {
		all = append(all, i)
	}
	return all
}

// Die ends all work in the background, as if the process had been killed.
func (s *Store) Die() { s.directory.stop() }

// Home returns the cell that is the home.
func (s *Store) Home() *store.Cell { return s.directory.home }

// SetPart bounds the rows of one part of a move.
func (s *Store) SetPart(rows int) { s.partRows = rows }
