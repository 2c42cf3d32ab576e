// Package postgres keeps runs in PostgreSQL: the store of production.
//
// Any number of processes share a schema. These locks, always taken in this
// order, keep them apart:
//
//   - that of the slots, in a store that is a cell: see cell.go;
//   - the node's: whoever writes for a node holds it shared, whoever takes the
//     node's runs over holds it alone. So a node that was thought dead either
//     commits before the takeover or not at all;
//   - events: of two processes that accept the same event, one waits for the
//     other;
//   - keys, in their order: they guard which run of a key is under way;
//   - runs.
//
// A transaction is one or two round trips, however many events or changes it
// carries: statements are sent together and work on arrays.
//
// Statements must not depend on statistics. The tables of work in progress are empty
// in quiet hours, and whoever plans by that reads them from end to end, since one row
// is found that way too; the plan then meets the backlog of the next morning. So rows
// are joined by "= any (array[x])", which only an index lookup can serve, not by "=",
// for which the planner may merge whole tables; or they are looked up in a lateral query
// that locks its rows, or in a subquery with "offset 0", which are never turned round.
// Where the order of locks matters, it is that of an expression, for which no index is
// walked. The index of a partial set has a condition that only those have who want
// all of the set. [enginetest.Plans] holds all statements to it.
package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"procaas/engine/pgkit"
	"procaas/engine/sqlstore"
	"procaas/engine/store"
)

// Options says how to open a store.
type Options struct {
	// Migrate brings the schema up to date. Without it, Open refuses a schema
	// that needs it.
	Migrate bool

	// Unsafe allows a server that may lose what it has acknowledged: one with
	// fsync, full_page_writes or synchronous_commit off.
	Unsafe bool

	// Log hears of connections that were lost; nothing is logged when nil.
	Log *slog.Logger
}

// A Store keeps the ports of a [store.Store] in a schema of a PostgreSQL database.
type Store struct {
	*common

	db    *database
	hints *hints
	log   *slog.Logger

	timers timers
	heavy  heavy

	process  string // of this machine, see nameProcess
	presence presence

	tellChanged chan struct{}

	stop    context.CancelFunc
	helpers sync.WaitGroup
}

// Ports returns what nodes need of the store.
func (s *Store) Ports() store.Store {
	return store.Store{
		Inbox: s, Ledger: s, Runs: s, Bundles: s, Settings: s, Tokens: s, Audits: s, Degradation: s, Documents: s,
		Waker: s, Gauge: s, Trimmer: s, Close: s.Close,
	}
}

// Cell returns the store as one of several that share an inbox.
func (s *Store) Cell() *store.Cell {
	c := cell{s.db}
	return &store.Cell{Store: s.Ports(), Enrolment: c, Moves: c, Outbox: c, Marked: s}
}

// Open connects to the database at dsn, a URL or the key-value form of libpq;
// several hosts and target_session_attrs work, and so does a pooler in between,
// which is found out. It fails when the schema is not
// the one that this program knows, or when the server does not keep what it
// acknowledges.
func Open(ctx context.Context, dsn string, o Options) (*Store, error) {
	if o.Migrate {
		if _, _, err := Migrate(ctx, dsn); err != nil {
			return nil, err
		}
	}
	config, pooled, err := prepareConfig(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error { return prepareSession(ctx, c, pooled, o.Unsafe) }
	if !strings.Contains(dsn, "pool_max_conns") {
		config.MaxConns = maxConns
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	h := &hints{wake: make(chan struct{}, 1), tell: make(chan struct{}, 1)}
	s := &Store{
		db: &database{pool: pool, pooled: pooled, hints: h}, hints: h, log: o.Log, tellChanged: make(chan struct{}, 1),
		process: nameProcess(os.Getpid()), presence: presence{told: map[int64]*session{}},
	}
	s.common = sqlstore.New(s.db)
	s.OnSettings = func() { h.hint(endOfQueue) } // so that nodes look at once
	s.OnDocuments = func() { pgkit.Signal(s.tellChanged) }
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := s.start(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("store: %w", err)
	}
	return s, nil
}

// maxConns bounds the connections of a process. A node writes in a few shared
// transactions at a time; the rest is for the API.
const maxConns = 12

func (s *Store) start(ctx context.Context) error {
	if err := checkSchema(ctx, s.db.pool); err != nil {
		return err
	}
	enrolled, err := (cell{s.db}).EnrolledAs(ctx)
	if err != nil {
		return err
	}
	s.db.cell.Store(enrolled.Name != "")
	if err := makePartitions(ctx, s.db); err != nil {
		return err
	}
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.helpers.Go(func() { keepPartitions(ctx, s.db, s.log) })
	if !s.db.pooled { // otherwise nodes find out by polling
		s.helpers.Go(func() { s.listen(ctx) })
	}
	s.helpers.Go(func() { s.notify(ctx) })
	s.helpers.Go(func() { s.notifyChanged(ctx) })
	return nil
}

// Close ends the connections. It waits for calls in flight.
func (s *Store) Close() error {
	s.stop()
	s.helpers.Wait()
	s.db.pool.Close()
	return nil
}
