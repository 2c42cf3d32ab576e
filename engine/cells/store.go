package cells

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"procaas/engine/store"
)

// Options says of which cells a store is made.
type Options struct {
	// Home is the store that knows the map. Close closes it.
	Home *store.Cell

	// Cells open the others, by name. One that cannot be opened is tried again, and
	// the keys of the others work meanwhile.
	Cells map[string]func(context.Context) (*store.Cell, error)

	// TakeOver is after how long another node takes the move of a silent one over; 15
	// seconds when it is 0.
	TakeOver time.Duration

	// Log hears of cells that are away, and of moves; nothing is logged when nil.
	Log *slog.Logger
}

// A Store keeps the ports of a [store.Store] over several databases.
type Store struct {
	home  *store.Cell
	parts []*part // by number; the home is the first
	named map[string]*part
	log   *slog.Logger

	takeOver time.Duration
	partRows int

	chart    atomic.Pointer[Chart]
	read     sync.Mutex // one reads the map at a time
	learning sync.Mutex // guards chart against older ones
	owned    sync.Map   // run → *part, of the runs that nodes of this process own
	turn     atomic.Uint32

	looked atomic.Int64 // the revision of the settings by which serve has looked

	mu      sync.Mutex                // guards the following
	members map[int64]map[*part]int64 // the numbers of nodes in the cells
	homes   map[*part]map[int64]int64 // and back
	leases  map[int64]membership
	wake    []chan struct{}
	movers  map[string]*mover

	relays  chan struct{} // there may be something in an outbox
	ctx     context.Context
	stop    context.CancelFunc
	helpers sync.WaitGroup
}

// A membership is by what a node joins cells later.
type membership struct {
	name  string
	lease time.Duration
}

// Ports returns what nodes need of the store. What is not of runs is the home's.
func (s *Store) Ports() store.Store {
	home := s.home
	return store.Store{
		Inbox: s, Ledger: s, Runs: s, Bundles: home.Bundles, Settings: home.Settings, Tokens: home.Tokens, Audits: s,
		Degradation: home.Degradation, Documents: home.Documents,
		Waker: s, Gauge: s, Trimmer: s, Scattered: s, Close: s.Close, Tasks: s.tasks(),
	}
}

// Open makes a store of cells. Cells that the map does not know get a number, and none
// of the slots; one that the map knows and nobody names is an error.
func Open(ctx context.Context, o Options) (*Store, error) {
	s := &Store{
		home: o.Home, log: o.Log, takeOver: cmp.Or(o.TakeOver, takeOver), partRows: partRows, named: map[string]*part{},
		members: map[int64]map[*part]int64{}, homes: map[*part]map[int64]int64{}, leases: map[int64]membership{},
		movers: map[string]*mover{}, relays: make(chan struct{}, 1),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := s.begin(ctx, o); err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	for _, p := range s.live()[1:] {
		db, err := s.reach(ctx, p, nil)
		if errors.Is(err, store.ErrConflict) {
			s.stop()
			return nil, errors.Join(fmt.Errorf("inbox: cell %s: %w", p.name, err), s.closeCells())
		}
		if err != nil {
			s.log.Warn("cell of the inbox cannot be reached, its keys wait", "cell", p.name, "error", err)
			p.away, p.since = err, time.Now()
			continue
		}
		p.back(db)
	}
	s.helpers.Go(s.relay)
	s.helpers.Go(s.follow)
	return s, nil
}

// begin reads the map, or makes it.
func (s *Store) begin(ctx context.Context, o Options) error {
	for {
		c, err := s.readMap(ctx)
		if errors.Is(err, store.ErrNotFound) {
			c, err = newChart(uuid.NewString()), nil
		}
		if err != nil {
			return err
		}
		if err := s.home.Enrolment.Enroll(ctx, store.CellID{Inbox: c.Inbox, Name: Home}, true); err != nil && c.Version > 0 {
			return fmt.Errorf("home: %w", err)
		} else if err != nil {
			// The enrolment may have come before the map, and its maker have died.
			b, again := s.home.Enrolment.EnrolledAs(ctx)
			if again != nil || b.Name != Home {
				return fmt.Errorf("home: %w", err)
			}
			c.Inbox = b.Inbox
		}
		fresh := c.Version == 0
		for _, name := range slices.Sorted(maps.Keys(o.Cells)) {
			if _, gone := c.Gone[name]; gone {
				s.log.Warn("cell was removed from the inbox: leave it out, or give a new one another name", "cell", name)
				continue
			}
			if _, known := c.Cells[name]; known {
				continue
			}
			if c.numbers() == store.MaxCells {
				return fmt.Errorf("cell %s: an inbox has at most %d cells, those counted that were removed", name, store.MaxCells)
			}
			c.Cells[name], fresh = c.numbers(), true
		}
		if fresh {
			if err := s.writeMap(ctx, c, nil); errors.Is(err, store.ErrConflict) {
				continue // another node was faster
			} else if err != nil {
				return err
			}
		}
		return s.name(c, o)
	}
}

// name makes the parts.
func (s *Store) name(c *Chart, o Options) error {
	s.parts = make([]*part, c.numbers())
	for name, number := range c.Gone {
		p := &part{name: name, number: number, away: errRemoved, retired: true}
		s.parts[number], s.homes[p] = p, map[int64]int64{}
	}
	for name, number := range c.Cells {
		p := &part{name: name, number: number, open: o.Cells[name], away: errNotOpen}
		if name == Home {
			p.store, p.away = s.home, nil
		} else if p.open == nil {
			return fmt.Errorf("the inbox has a cell %s, of which the address is missing: name it, also when it has no slots", name)
		}
		s.parts[number], s.named[name] = p, p
		s.homes[p] = map[int64]int64{}
	}
	s.chart.Store(c)
	return nil
}

// Close ends the work in the background, and closes all cells.
func (s *Store) Close() error {
	s.stop()
	s.helpers.Wait()
	return errors.Join(s.closeCells(), s.home.Close())
}

func (s *Store) closeCells() (err error) {
	for _, p := range s.parts[1:] {
		p.mu.Lock()
		if p.store != nil {
			err = errors.Join(err, p.store.Close())
		}
		p.mu.Unlock()
	}
	return err
}

// readMap reads the map from the home.
func (s *Store) readMap(ctx context.Context) (*Chart, error) {
	d, err := s.home.Documents.Document(ctx, mapKind, mapName)
	if err != nil {
		return nil, err
	}
	return readChart(d)
}

// writeMap writes a map that builds on the version it was read with.
func (s *Store) writeMap(ctx context.Context, c *Chart, audits []store.Audited) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	versions, err := s.home.Documents.WriteDocuments(ctx, 0,
		[]store.DocumentWrite{{Kind: mapKind, Name: mapName, Version: c.Version, Value: text}}, audits)
	if err != nil {
		return err
	}
	c.Version = versions[0]
	return nil
}

// refresh reads the map again, and returns the newest that is known.
func (s *Store) refresh(ctx context.Context) (*Chart, error) {
	s.read.Lock()
	defer s.read.Unlock()
	c, err := s.readMap(ctx)
	if err != nil {
		return nil, err
	}
	return s.learn(c)
}

// learn takes a map over, unless a newer one is known, and returns the newest.
func (s *Store) learn(c *Chart) (*Chart, error) {
	s.learning.Lock()
	defer s.learning.Unlock()
	if have := s.chart.Load(); have.Version >= c.Version {
		return have, nil
	}
	for name := range c.Cells {
		if s.named[name] == nil {
			return nil, fmt.Errorf("the inbox has a cell %s, of which this node has no address: start it anew with one", name)
		}
	}
	s.chart.Store(c)
	s.retireGone(c)
	s.hint()
	return c, nil
}

// Chart returns the map as this process knows it. It must not be changed.
func (s *Store) Chart() *Chart { return s.chart.Load() }

// partOf returns the cell that has a key.
func (s *Store) partOf(key string) *part {
	return s.named[s.chart.Load().Owner(store.InboxSlot(key))]
}

// followEvery is how often a lost hint is made up for.
const followEvery = time.Second

// follow keeps the map up to date, tries to reach cells that are away, and ends the
// moves of those who have died.
func (s *Store) follow() {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		changed := s.home.Documents.Changed()
		ctx, cancel := context.WithTimeout(s.ctx, probeLong)
		c, err := s.refresh(ctx)
		cancel()
		if err != nil && s.ctx.Err() == nil {
			s.log.Warn("map of the inbox cannot be read, trying again", "error", err)
		}
		if err == nil {
			s.recover(c)
		}
		for _, p := range s.parts[1:] {
			s.probe(p)
		}
		select {
		case <-s.ctx.Done():
			return
		case <-changed:
		case <-tick.C:
		}
	}
}

// hint tells nodes that there may be something to claim.
func (s *Store) hint() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.wake {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Wake implements [store.Waker].
func (s *Store) Wake() <-chan struct{} {
	out := make(chan struct{}, 1)
	s.mu.Lock()
	s.wake = append(s.wake, out)
	first := len(s.wake) == 1
	s.mu.Unlock()
	if first {
		for _, p := range s.parts {
			s.helpers.Go(func() { s.listen(p) })
		}
	}
	return out
}

// listen passes on the hints of a cell.
func (s *Store) listen(p *part) {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	var hints <-chan struct{}
	for {
		if hints == nil {
			if db, err := p.cell(); err == nil {
				if db.Waker != nil {
					hints = db.Waker.Wake()
				}
			}
		}
		select {
		case <-s.ctx.Done():
			return
		case <-hints:
			s.hint()
		case <-tick.C:
		}
	}
}

// Unreachable implements [store.Scattered].
func (s *Store) Unreachable() error {
	c := s.chart.Load()
	var all []error
	for _, p := range s.live() {
		if away, since := p.state(); away != nil {
			all = append(all, fmt.Errorf("cell %s of the inbox, which has %d of %d slots of keys, cannot be reached for %s: %w",
				p.name, len(c.SlotsOf(p.name)), store.InboxSlots, time.Since(since).Truncate(time.Second), away))
		}
	}
	return errors.Join(all...)
}
