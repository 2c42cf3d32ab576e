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

// A part is a cell as this process knows it.
type part struct {
	name   string
	number int
	open   func(context.Context) (*store.Cell, error)

	mu      sync.Mutex      // guards the following
	store   *store.Cell     // nil until the cell was reached once
	away    error           // the reason why the cell cannot be reached; nil if it can
	since   time.Time       // when it was not reached first
	probing bool            // one try to reach it is in flight
	final   bool            // the process does not try to reach it again
	damaged map[int64]error // rows of its outbox that cannot be read, by their numbers
}

// The reasons why a part is away that are no answers of a database.
var (
	errNotOpen = errors.New("it has not been reached yet")
	errRemoved = errors.New("it was removed from the inbox")
)

// cell returns the store of a cell that can be reached.
func (p *part) cell() (*store.Cell, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away != nil {
		return nil, fmt.Errorf("%w: cell %s: %w", store.ErrAway, p.name, p.away)
	}
	return p.store, nil
}

// use does something with a cell. If the cell cannot be reached, the error is [store.ErrAway].
func use[T any](ctx context.Context, p *part, do func(*store.Cell) (T, error)) (out T, err error) {
	db, err := p.cell()
	if err == nil {
		out, err = do(db)
	}
	return out, p.heed(ctx, err)
}

// use is the function use without a result.
func (p *part) use(ctx context.Context, do func(*store.Cell) error) error {
	_, err := use(ctx, p, func(db *store.Cell) (any, error) { return nil, do(db) })
	return err
}

// heed looks whether an error says that the cell cannot be reached, and then returns [store.ErrAway]. The first call that finds
// a cell away makes the next ones fail at once. Otherwise each of them would wait for a timeout. An error because the caller gave
// up says nothing about the cell.
func (p *part) heed(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, store.ErrAway) || errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.store == nil || !p.store.Enrolment.IsAway(err) && !errors.Is(err, store.ErrLost) {
		return err
	}
	if p.number != 0 && p.away == nil { // everything needs the home, so each call asks it
		p.away, p.since = err, time.Now()
	}
	return fmt.Errorf("%w: cell %s: %w", store.ErrAway, p.name, err)
}

// leave stops the use of a cell for as long as this process lives.
func (p *part) leave(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away, p.since, p.final = why, time.Now(), true
}

// isRemoved reports whether the cell was removed from the inbox.
func (p *part) isRemoved() bool {
	away, _ := p.state()
	return away == errRemoved //nolint:errorlint // it is this very value
}

// state returns why and since when a cell is away.
func (p *part) state() (away error, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.away, p.since
}

// reached notes what came of a try to reach the cell.
func (p *part) reached(db *store.Cell, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probing = false
	if err == nil {
		p.store = db
	}
	if p.final {
		return
	}
	p.away = err
	if err != nil && p.since.IsZero() {
		p.since = time.Now()
	}
}

// probeLong bounds one try to reach a cell that is away.
const probeLong = 5 * time.Second

// probe tries to reach a cell that is away, in the background, one try at a time.
func (s *directory) probe(p *part) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away == nil || p.probing || p.final || s.ctx.Err() != nil {
		return
	}
	p.probing = true
	known := p.store
	s.helpers.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, probeLong)
		defer cancel()
		db, err := s.reach(ctx, p, known)
		if p.reached(db, err); err == nil {
			s.log.Info("cell of the inbox is there", "cell", p.name)
			s.hint()
		}
	})
}

// reach opens a cell unless it is open, and makes sure that it is the right one.
func (s *directory) reach(ctx context.Context, p *part, db *store.Cell) (*store.Cell, error) {
	if db != nil {
		return db, s.check(ctx, p, db)
	}
	db, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.check(ctx, p, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// check enrols a database as the cell, or finds that it is another one.
func (s *directory) check(ctx context.Context, p *part, db *store.Cell) error {
	enrolled, err := db.Enrolment.EnrolledAs(ctx)
	if err != nil {
		return err
	}
	want := store.CellID{Inbox: s.chart.Load().Inbox, Name: p.name, Number: p.number}
	if enrolled == want {
		return nil
	}
	if want.After, err = s.home.Enrolment.Last(ctx); err != nil {
		return err
	}
	return db.Enrolment.Enroll(ctx, want, false)
}
