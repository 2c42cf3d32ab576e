package cells

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"procaas/engine/store"
	"procaas/handlers/inbox"
)

// Options say which cells a store consists of.
type Options struct {
	// Home is the cell with the map. Close closes it.
	Home *store.Cell

	// Cells open the other cells, by name. If one cannot be opened, the store tries again, and the keys of the others work.
	Cells map[string]func(context.Context) (*store.Cell, error)

	// TakeOver is when another process takes over a move whose process is silent; 0 for 15 seconds.
	TakeOver time.Duration

	// Log gets messages about moves, and about cells that are away. It may be nil.
	Log *slog.Logger
}

// A Store is one store of several databases.
type Store struct {
	*directory
	*members
	runs
	*moves
}

var _ inbox.Cells = (*Store)(nil)

// Ports returns the ports that nodes need. The home has everything that belongs to no run.
func (s *Store) Ports() store.Store {
	home := s.directory.home
	ports := store.Store{
		Inbox: s.members, Ledger: s.members, Runs: s.runs, Bundles: bundles{home.Bundles, s.members}, Settings: home.Settings,
		Tokens: home.Tokens, Audits: s.runs,
		Degradation: degradation{home.Degradation, s.members}, Documents: home.Documents, Usage: home.Usage, Limits: home.Limits,
		Waker: s.directory, Gauge: s.members, Trimmer: s.runs, Eraser: s.runs, Scattered: s, Close: s.Close,
	}
	if s.queues() {
		t := Tasks{s.directory}
		ports.Tasks = &store.TaskStore{Queue: t, Work: t, Maintenance: t, Admin: t, Eraser: t}
	}
	return ports
}

// Open makes a store of cells. A cell that is not in the map gets a number and no slots. A cell of the map without an address is
// an error.
func Open(ctx context.Context, o Options) (*Store, error) {
	d := &directory{home: o.Home, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), named: map[string]*part{}}
	if err := d.begin(ctx, o); err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	d.ctx, d.stop = context.WithCancel(context.WithoutCancel(ctx))
	for _, p := range d.live()[1:] {
		db, err := d.reach(ctx, p, nil)
		if errors.Is(err, store.ErrConflict) {
			d.stop()
			return nil, errors.Join(fmt.Errorf("inbox: cell %s: %w", p.name, err), d.closeCells())
		}
		if p.reached(db, err); err != nil {
			d.log.Warn("cell of the inbox cannot be reached, its keys wait", "cell", p.name, "error", err)
		}
	}
	m := &members{directory: d, nodes: map[int64]*node{}, homes: map[seat]int64{}, emitted: make(chan struct{}, 1)}
	s := &Store{d, m, runs{m}, &moves{
		directory: d, takeOver: cmp.Or(o.TakeOver, takeOver), partRows: partRows, movers: map[string]*mover{},
	}}
	d.helpers.Go(m.relay)
	d.helpers.Go(func() { d.follow(s.recover) })
	return s, nil
}

// Close ends the work in the background, and closes all cells.
func (s *Store) Close() error {
	s.directory.stop()
	s.directory.helpers.Wait()
	return errors.Join(s.closeCells(), s.directory.home.Close())
}

func (s *directory) closeCells() (err error) {
	for _, p := range s.parts[1:] {
		p.mu.Lock()
		if p.store != nil {
			err = errors.Join(err, p.store.Close())
		}
		p.mu.Unlock()
	}
	return err
}
