package cells

import (
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

	"procaas/engine/pgkit"
	"procaas/engine/store"
)

// A directory knows the map and the cells.
type directory struct {
	home  *store.Cell
	parts []*part // by number; the home is the first
	named map[string]*part
	log   *slog.Logger

	chart    atomic.Pointer[Chart] // must not be changed
	read     sync.Mutex            // lets one caller at a time read the map
	learning sync.Mutex            // keeps an older map from replacing a newer one

	mu   sync.Mutex // guards the following
	wake []chan struct{}

	ctx     context.Context
	stop    context.CancelFunc
	helpers sync.WaitGroup
}

// queues reports whether this program has the queue. Without it, slots of tasks stay where they are: their tasks could not go with
// them, and a unique name must never be free in the cell that has its slot while its task is in another one.
func (s *directory) queues() bool { return s.home.Shared != nil }

// begin reads the map, or makes it.
func (s *directory) begin(ctx context.Context, o Options) error {
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
			// The home may be enrolled without a map, if the process died that made it.
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
func (s *directory) name(c *Chart, o Options) error {
	s.parts = make([]*part, c.numbers())
	for name, number := range c.Gone {
		s.parts[number] = &part{name: name, number: number, away: errRemoved, final: true}
	}
	for name, number := range c.Cells {
		p := &part{name: name, number: number, open: o.Cells[name], away: errNotOpen}
		if name == Home {
			p.store, p.away = s.home, nil
		} else if p.open == nil {
			return fmt.Errorf("the inbox has a cell %s, of which the address is missing: name it, also when it has no slots", name)
		}
		s.parts[number], s.named[name] = p, p
	}
	s.chart.Store(c)
	return nil
}

// live returns the parts whose cells the inbox has, by number.
func (s *directory) live() []*part {
	return slices.DeleteFunc(slices.Clone(s.parts), (*part).isRemoved)
}

// partOf returns the cell that has a key.
func (s *directory) partOf(key string) *part {
	return s.named[s.chart.Load().Owner(store.InboxSlot(key))]
}

// Chart returns the map as this process knows it. It must not be changed.
func (s *directory) Chart() *Chart { return s.chart.Load() }

// readMap reads the map from the home.
func (s *directory) readMap(ctx context.Context) (*Chart, error) {
	d, err := s.home.Documents.Document(ctx, mapKind, mapName)
	if err != nil {
		return nil, err
	}
	return readChart(d)
}

// writeMap writes a map in place of the version that was read.
func (s *directory) writeMap(ctx context.Context, c *Chart, audits []store.Audited) error {
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

// change changes the map. Do may run several times, each time with a newer map. If it returns an error, nothing changes.
func (s *directory) change(ctx context.Context, do func(*Chart) ([]store.Audited, error)) error {
	for {
		c, err := s.readMap(ctx)
		if err != nil {
			return err
		}
		audits, err := do(c)
		if err != nil {
			return err
		}
		if err := s.writeMap(ctx, c, audits); errors.Is(err, store.ErrConflict) {
			continue
		} else if err != nil {
			return err
		}
		if _, err := s.learn(c); err != nil {
			s.log.Warn("map of the inbox cannot be used, trying again", "error", err)
		}
		return nil
	}
}

// refresh reads the map again, and returns the newest one.
func (s *directory) refresh(ctx context.Context) (*Chart, error) {
	s.read.Lock()
	defer s.read.Unlock()
	c, err := s.readMap(ctx)
	if err != nil {
		return nil, err
	}
	return s.learn(c)
}

// learn takes a map over unless a newer one is known, and returns the newest.
func (s *directory) learn(c *Chart) (*Chart, error) {
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
	for _, p := range s.live() {
		if _, ok := c.Cells[p.name]; !ok {
			p.leave(errRemoved)
			s.log.Info("cell was removed from the inbox; start the node anew without it when there is time", "cell", p.name)
		}
	}
	s.hint()
	return c, nil
}

// now returns the time of the home.
func (s *directory) now(ctx context.Context) (time.Time, error) {
	micros, err := s.home.Enrolment.Now(ctx)
	return time.UnixMicro(micros).UTC(), err
}

// followEvery is how often a lost hint is made up for.
const followEvery = time.Second

// follow keeps the map up to date, and tries to reach cells that are away. Each tells what else to do with a map.
func (s *directory) follow(each func(*Chart)) {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		changed := s.home.Documents.Changed()
		ctx, cancel := context.WithTimeout(s.ctx, probeLong)
		c, err := s.refresh(ctx)
		cancel()
		if err == nil {
			each(c)
		} else if s.ctx.Err() == nil {
			s.log.Warn("map of the inbox cannot be read, trying again", "error", err)
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
func (s *directory) hint() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.wake {
		pgkit.Signal(c)
	}
}

// Wake implements [store.Waker].
func (s *directory) Wake() <-chan struct{} {
	out := make(chan struct{}, 1)
	s.mu.Lock()
	s.wake = append(s.wake, out)
	first := len(s.wake) == 1
	s.mu.Unlock()
	if first {
		s.pass(s.ctx, s.hint, func(db *store.Cell) (<-chan struct{}, func()) { return db.Waker.Wake(), func() {} })
	}
	return out
}

// pass passes on the hints of each cell as soon as the cell can be reached, until ctx ends.
func (s *directory) pass(ctx context.Context, hint func(), of func(*store.Cell) (hints <-chan struct{}, stop func())) {
	for _, p := range s.parts {
		s.helpers.Go(func() {
			tick := time.NewTicker(followEvery)
			defer tick.Stop()
			var hints <-chan struct{} // nil until the cell can be reached
			for {
				if hints == nil {
					if db, err := p.cell(); err == nil {
						var stop func()
						hints, stop = of(db)
						defer stop()
						tick.Stop()
					}
				}
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				case <-hints:
					hint()
				}
			}
		})
	}
}

// Unreachable implements [store.Scattered].
func (s *directory) Unreachable() error {
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
