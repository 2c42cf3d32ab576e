package cells

import (
	"context"
	"errors"
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

// Give makes a home and another cell of two empty databases, and gives all slots to the other, as the end of a move leaves them.
func Give(ctx context.Context, home, other *store.Cell, name string) error {
	c := newChart("test")
	c.Cells[name] = c.numbers()
	for slot := range chartSlots {
		c.owner[slot] = name
	}
	c.give(nil, name)
	return errors.Join(home.Enrolment.Enroll(ctx, store.CellID{Inbox: c.Inbox, Name: Home}, false),
		other.Enrolment.Enroll(ctx, store.CellID{Inbox: c.Inbox, Name: name, Number: c.Cells[name]}, true),
		(&directory{home: home}).writeMap(ctx, c, nil))
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
