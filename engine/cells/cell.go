package cells

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"procaas/engine/store"
)

// Home is the name of the cell that is the home.
const Home = "home"

// A part is a cell with what this process knows of it.
type part struct {
	name   string
	number int
	open   func(context.Context) (*store.Cell, error)

	mu      sync.Mutex  // guards the following
	store   *store.Cell // nil until it was reached once
	away    error       // why it could not be reached last; nil when it could
	since   time.Time   // when that was found out
	probing bool        // one try to reach it is under way
	retired bool        // the cell was removed from the inbox; it is away for good
	lost    bool        // it has lost what it acknowledged; so it is for this process

	members map[int64]*store.Membership // of this process's nodes, by their numbers in the cell
}

// joined begins to remember what the cell answers to a number.
func (p *part) joined(number int64) {
	m := &store.Membership{}
	m.Joined(number)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.members == nil {
		p.members = map[int64]*store.Membership{}
	}
	p.members[number] = m
}

// memberOf is what the cell has answered to a number.
func (p *part) memberOf(number int64) *store.Membership {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.members[number]; m != nil {
		return m
	}
	return &store.Membership{}
}

// lose refuses a cell for as long as this process lives.
func (p *part) lose(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away, p.since, p.lost = err, time.Now(), true
}

// cell returns the store of a cell that can be reached.
func (p *part) cell() (*store.Cell, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away != nil {
		return nil, fmt.Errorf("%w: cell %s: %w", store.ErrAway, p.name, p.away)
	}
	return p.store, nil
}

// heed notes what an error of a cell says of it, and gives it as that of a cell that is
// away when it says so. The caller's own end says nothing. The daily work goes through it, so
// that the first one which finds a cell away makes the others fail at once, rather than
// each wait for a time-out of its own.
func (p *part) heed(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, store.ErrAway) || errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.store == nil || !p.store.Enrolment.IsAway(err) && !errors.Is(err, store.ErrLost) {
		return err
	}
	if p.number != 0 && p.away == nil { // the home is what everything needs: it is asked each time
		p.away, p.since = err, time.Now()
	}
	return fmt.Errorf("%w: cell %s: %w", store.ErrAway, p.name, err)
}

// back notes that a cell can be reached.
func (p *part) back(store *store.Cell) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.store = store; !p.retired && !p.lost {
		p.away = nil
	}
}

// state returns why and since when a cell is away.
func (p *part) state() (away error, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.away, p.since
}

// errNotOpen says that a cell has not been reached yet.
var errNotOpen = errors.New("it has not been reached yet")

// probeLong bounds one try to reach a cell that is away.
const probeLong = 5 * time.Second

// probe tries to reach a cell that is away, in the background, one try at a time.
func (s *Store) probe(p *part) {
	p.mu.Lock()
	if p.away == nil || p.probing || p.retired || p.lost || s.ctx.Err() != nil {
		p.mu.Unlock()
		return
	}
	p.probing = true
	store := p.store
	p.mu.Unlock()
	s.helpers.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, probeLong)
		defer cancel()
		store, err := s.reach(ctx, p, store)
		p.mu.Lock()
		p.probing = false
		if err != nil && !p.retired && !p.lost {
			p.away = err
		}
		p.mu.Unlock()
		if err == nil {
			s.log.Info("cell of the inbox is there", "cell", p.name)
			p.back(store)
			s.hint()
		}
	})
}

// reach opens a cell, and makes sure that it is the one.
func (s *Store) reach(ctx context.Context, p *part, store *store.Cell) (*store.Cell, error) {
	opened := store == nil
	if opened {
		var err error
		if store, err = p.open(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.check(ctx, p, store); err != nil {
		if opened {
			err = errors.Join(err, store.Close())
		}
		return nil, err
	}
	return store, nil
}

// check makes a store the cell that it shall be, or finds that it is another one.
func (s *Store) check(ctx context.Context, p *part, db *store.Cell) error {
	enrolled, err := db.Enrolment.EnrolledAs(ctx)
	if err != nil {
		return err
	}
	chart := s.chart.Load()
	want := store.CellID{Inbox: chart.Inbox, Name: p.name, Number: p.number}
	if enrolled == want {
		return nil
	}
	if want.After, err = s.home.Enrolment.Last(ctx); err != nil {
		return err
	}
	return db.Enrolment.Enroll(ctx, want, false)
}
