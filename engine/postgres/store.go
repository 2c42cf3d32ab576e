// Package postgres keeps runs in PostgreSQL. It is the store for production.
//
// Any number of processes share a schema. These locks isolate them. They are always taken in this
// order:
//
//   - the lock of the slots, in a store that is a cell: see cell.go.
//   - the lock of the node: a transaction that writes for a node holds it shared, and one that
//     takes over the node's runs holds it exclusively. So a node that is considered dead commits
//     either before the takeover or never.
//   - events: if two processes accept the same event, one waits for the other.
//   - keys, in their order: they protect which run of a key is in flight.
//   - runs.
//
// A transaction is one or two round trips, however many events or changes it has. Statements are
// sent together and work on arrays.
//
// Statements must not depend on statistics. The tables of unfinished work are empty in quiet hours.
// A plan made then scans a whole table to find one row, and is still used for the backlog of the
// next morning. So rows are joined by "= any (array[x])", which only an index lookup can serve, not
// by "=", for which the planner may merge whole tables. Or they are read in a lateral query that
// locks its rows, or in a subquery with "offset 0", which the planner does not reorder. Where the
// order of locks matters, it is the order of an expression, for which no index scan exists. A
// partial index has a condition that only the statements for its whole set use. [enginetest.Plans]
// checks all statements.
package postgres

import (
	"context"
	"errors"
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

// Options configures how to open a store.
type Options struct {
	// Migrate updates the schema. Without it, Open refuses an outdated schema.
	Migrate bool

	// Addons are the tables of add-ons, which Migrate updates, too.
	Addons []store.Tables

	// Unsafe allows a server that may lose acknowledged data: one with fsync, full_page_writes or
	// synchronous_commit off.
	Unsafe bool

	// Restored allows a database that was restored from a backup. Without it, Open refuses one. Only what
	// [Store.Adopt] needs works then.
	Restored bool

	// Cell allows a database that is one of several of an inbox. Its store has only some of the keys.
	// Without it, Open refuses such a database, because a node would take it for the whole store.
	Cell bool

	// Log logs lost connections. Nil logs nothing.
	Log *slog.Logger
}

// A Store implements the ports of a [store.Store] in a schema of a PostgreSQL database.
type Store struct {
	*common

	db    *database
	hints *hints
	log   *slog.Logger

	timers timers
	heavy  heavy

	process  string // name of this process, see nameProcess
	presence presence

	neighbours neighbours

	tellChanged chan struct{}

	days trimmedDays

	stop    context.CancelFunc
	helpers sync.WaitGroup
}

// Ports returns the ports of the store.
func (s *Store) Ports() store.Store {
	return store.Store{
		Inbox: s, Ledger: s, Runs: s, Bundles: s, Settings: s, Tokens: s, Audits: s, Degradation: s, Documents: s, Usage: s, Limits: s,
		Waker: s, Gauge: s, Trimmer: s, Eraser: s, Close: s.Close,
	}
}

// Cell returns the store as a cell of an inbox.
func (s *Store) Cell() *store.Cell {
	c := cell{s.db}
	return &store.Cell{Store: s.Ports(), Enrolment: c, Moves: c, Outbox: c, Marked: s}
}

// Open connects to the database at dsn, a URL or the key-value form of libpq. Several hosts and
// target_session_attrs are supported. Open detects a pooler. It returns an error if the program
// does not know the schema's version, or if the server may lose acknowledged data.
func Open(ctx context.Context, dsn string, o Options) (*Store, error) {
	config, pooled, err := prepareConfig(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	acked := &acknowledged{log: log, off: o.Unsafe} // an unsafe server may forget the last moment when it crashes
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error { return prepareSession(ctx, c, acked, pooled, o.Unsafe) }
	if !strings.Contains(dsn, "pool_max_conns") {
		config.MaxConns = maxConns
	}
	known, err := histories(o.Addons)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	h := &hints{wake: make(chan struct{}, 1), tell: make(chan struct{}, 1)}
	s := &Store{
		db: &database{pool: pool, pooled: pooled, hints: h, acked: acked, known: known}, hints: h, log: log, tellChanged: make(chan struct{}, 1),
		process: nameProcess(os.Getpid()), presence: presence{told: map[int64]*session{}},
		neighbours: neighbours{ended: make(chan struct{}, 1), handles: map[string]*os.File{}},
	}
	s.common = sqlstore.New(s.db)
	s.OnSettings = func() { h.hint(endOfQueue) } // makes nodes look at once
	s.OnDocuments = func() { pgkit.Signal(s.tellChanged) }
	if err = checkSchema(ctx, pool, known); o.Migrate && errors.Is(err, store.ErrOutdated) {
		_, err = Migrate(ctx, dsn, o.Addons...)
	}
	if err == nil {
		err = s.start(ctx, o)
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("store: %w", err)
	}
	return s, nil
}

// maxConns bounds the connections of a process. A node writes a few shared transactions at a time.
// The API uses the rest.
const maxConns = 12

func (s *Store) start(ctx context.Context, o Options) error {
	if o.Restored {
		s.stop = func() {}
		return nil
	}
	enrolled, err := (cell{s.db}).EnrolledAs(ctx)
	if err == nil && !o.Cell {
		err = refuseCell(enrolled)
	}
	if err == nil {
		err = s.recognize(ctx)
	}
	if err != nil {
		return err
	}
	s.db.cell.Store(enrolled.Name != "")
	if err := makePartitions(ctx, s.db); err != nil {
		return err
	}
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.helpers.Go(func() { keepPartitions(ctx, s.db, s.log) })
	if !s.db.pooled { // behind a pooler, nodes poll
		s.helpers.Go(func() { s.listen(ctx) })
	}
	s.helpers.Go(func() { s.notify(ctx) })
	s.helpers.Go(func() { s.notifyChanged(ctx) })
	return nil
}

// Close closes the connections. It waits for calls in flight.
func (s *Store) Close() error {
	s.stop()
	s.neighbours.close()
	s.helpers.Wait()
	s.db.pool.Close()
	return nil
}
