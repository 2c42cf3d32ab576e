package cells

import (
	"context"

	"procaas/engine/store"
)

// MoveNow moves slots and waits for the end of it; what went wrong is in the last of
// [Chart.Done].
func (s *Store) MoveNow(ctx context.Context, o Order) error {
	m, err := s.enter(ctx, o)
	if err != nil {
		return err
	}
	s.carry(m, o.Wait)
	return nil
}

// All gives every slot.
func All() (all []int) {
	for i := range store.InboxSlots {
		all = append(all, i)
	}
	return all
}

// Die lets the process do nothing any more in the background, as if it had been killed.
func (s *Store) Die() { s.stop() }

// Home gives the cell that is the home.
func (s *Store) Home() *store.Cell { return s.home }

// SetPart bounds the rows of one part of a move.
func (s *Store) SetPart(rows int) { s.partRows = rows }
