// Package sqlite keeps runs in one SQLite file. It is the embedded store.
//
// One goroutine owns the connection that writes. Concurrent writes share a transaction, so that
// many changes cost one flush to disk. Readers have their own connections and never wait for the
// writer.
//
// A file belongs to one process, which holds locks beside the file and on it. When a store opens, it
// takes over the runs of earlier processes, because no other process can own them.
//
// Nothing but SQLite may open and close the file while the process has it open, since that would
// drop SQLite's locks.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"sync"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the driver

	"procaas/engine/sqlstore"
	"procaas/engine/store"
	"procaas/schemas"
)

// Options configures how to open a store.
type Options struct {
	// Migrate updates the file's schema, and creates the file if there is none. Without it, Open
	// refuses an outdated file.
	Migrate bool

	// Addons are the tables of add-ons, which Migrate updates, too.
	Addons []store.Tables

	// Fast lets the operating system decide when to flush. Acknowledged data then survives the
	// death of the process, but not a power failure.
	Fast bool

	// Restored allows a file that was restored from a backup. Without it, Open refuses one.
	Restored bool
}

// A Store implements the ports of a [store.Store] in one file.
type Store struct {
	*common

	owner  *ownership // while open
	seen   *seen
	db     *sql.DB // the writer's connection
	read   *sql.DB
	writer *writer
	wake   chan struct{}
	watch  taskWatch
	asked  taskAsked

	closing sync.Once
	closed  error
}

// Ports returns the ports of the store.
func (s *Store) Ports() store.Store {
	return store.Store{
		Inbox: s, Ledger: s, Runs: s, Bundles: s, Settings: s, Tokens: s, Audits: s, Degradation: s, Documents: s, Usage: s, Limits: s,
		Waker: s, Trimmer: s, Eraser: s, Tasks: s.Tasks(), Close: s.Close,
	}
}

// Open opens the store in the file at path. It returns an error if another process has the file
// open, or if the program does not know the schema's version.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	s := &Store{wake: make(chan struct{}, 1)}
	s.common = sqlstore.New(database{s})
	if err := s.open(ctx, path, o); err != nil {
		return nil, errors.Join(fmt.Errorf("store %s: %w", path, err), s.Close())
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, path string, o Options) (err error) {
	if s.owner, err = own(ctx, path); err != nil {
		return err
	}
	level := "full"
	if o.Fast {
		level = "normal"
	}
	// The hot pages stay in memory, and the log may grow to some megabytes before it is copied into
	// the file. A long reader delays the copy. After that, the extra disk space is freed.
	if s.db, err = openDB(path, 1, "journal_mode(wal)", "synchronous("+level+")", "busy_timeout(5000)",
		"cache_size(-65536)", "wal_autocheckpoint(4000)", "journal_size_limit(67108864)", "secure_delete(on)"); err != nil {
		return err
	}
	known, err := histories(o.Addons)
	if err == nil && o.Migrate {
		_, err = migrateAll(ctx, s.db, known)
	}
	if err == nil {
		err = checkSchema(ctx, s.db, known)
	}
	if err != nil {
		return err
	}
	if s.read, err = openReaders(ctx, path); err != nil {
		return err
	}
	if s.seen, err = openSeen(path); err != nil {
		return err
	}
	if !o.Restored && !o.Fast {
		if err := s.recognize(ctx); err != nil {
			return err
		}
	}
	if s.writer, err = newWriter(ctx, s.db, path, s.signal); err != nil {
		return err
	}
	if s.writer.files, err = watch(path); err != nil {
		return err
	}
	if err := s.owner.hold.share(); err != nil {
		return err
	}
	if o.Restored {
		return nil // the runs in flight are still to be listed
	}
	return s.writer.do(ctx, releaseAll)
}

// readers bounds the connections that read. SQLite reads inside the process, so more than a few
// only compete with each other.
const readers = 4

// openReaders opens all connections that read, and reads with each. A connection that is opened
// while the file or its log is missing would create another log, and ignore the real one even when
// it is back.
func openReaders(ctx context.Context, path string) (*sql.DB, error) {
	db, err := openDB(path, readers, "query_only(1)", "busy_timeout(5000)")
	if err != nil {
		return nil, err
	}
	var open []*sql.Conn
	for range readers {
		c, failed := db.Conn(ctx)
		if err = failed; err != nil {
			break
		}
		open = append(open, c)
		var tables int
		if err = c.QueryRowContext(ctx, "select count(*) from sqlite_schema").Scan(&tables); err != nil {
			break
		}
	}
	for _, c := range open {
		err = errors.Join(err, c.Close()) // returns it to the pool
	}
	return db, err
}

// Close waits for writes in flight and closes the file.
func (s *Store) Close() error {
	s.closing.Do(func() {
		if s.writer != nil {
			s.closed = s.writer.close()
		}
		if s.owner == nil {
			return
		}
		s.closed = errors.Join(s.closed, s.owner.hold.unshare())
		for _, db := range []*sql.DB{s.read, s.db} {
			if db != nil {
				s.closed = errors.Join(s.closed, db.Close())
			}
		}
		if s.seen != nil {
			s.closed = errors.Join(s.closed, s.seen.Close())
		}
		// It goes last: no process may open the file before it is closed.
		s.closed = errors.Join(s.closed, s.owner.Close())
	})
	return s.closed
}

// Wake returns a channel that receives when runs have become ready that no node owns. It holds at
// most one signal.
func (s *Store) Wake() <-chan struct{} { return s.wake }

func (s *Store) signal() {
	select {
	case s.wake <- struct{}{}:
	default: // a signal is pending already
	}
}

// Migrate updates the schema of the file at path, then the tables of add-ons, and creates the file if needed. It returns the
// versions before and after, the schema's first.
func Migrate(ctx context.Context, path string, addons ...store.Tables) (done []store.Migration, err error) {
	known, err := histories(addons)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", path, err)
	}
	owner, err := own(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, owner.Close()) }()
	db, err := openDB(path, 1, "journal_mode(wal)", "synchronous(full)")
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if done, err = migrateAll(ctx, db, known); err != nil {
		return nil, fmt.Errorf("store %s: %w", path, err)
	}
	return done, nil
}

func migrateAll(ctx context.Context, db *sql.DB, known []sqlstore.History) (done []store.Migration, err error) {
	for i := range known {
		if known[i].Latest == 0 {
			continue
		}
		m, err := migrate(ctx, db, known, i)
		if err != nil {
			return nil, err
		}
		done = append(done, m)
	}
	return done, nil
}

// migrate makes the migrations of one history. Until it is done, and if it fails in the middle, the tables are those of this program
// only.
func migrate(ctx context.Context, db *sql.DB, known []sqlstore.History, i int) (m store.Migration, err error) {
	h := &known[i]
	have, err := versions(ctx, db, known)
	if err != nil {
		return m, err
	}
	floor, err := h.Floor(have[i])
	if err != nil {
		return m, err
	}
	options := []goose.ProviderOption{goose.WithTableName(h.Table), goose.WithDisableGlobalRegistry(true)}
	if h.Of == "" {
		options = append(options, goose.WithGoMigrations(
			goose.NewGoMigration(sqlstore.HorizonVersion, &goose.GoFunc{RunTx: adoptHorizon}, nil)))
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, h.Files, options...)
	if err != nil {
		return m, err
	}
	m.Of = h.Of
	if m.From, err = p.GetDBVersion(ctx); err != nil {
		return m, err
	}
	results, err := p.Up(ctx)
	if err == nil && len(results) > 0 {
		_, err = db.ExecContext(ctx, sqlstore.SetFloor, h.Of, h.Latest, floor)
	}
	if err != nil {
		return m, fmt.Errorf("migrate: %w", err)
	}
	m.To, err = p.GetDBVersion(ctx)
	return m, err
}

// histories lists the migrations of the store and of add-ons.
func histories(addons []store.Tables) ([]sqlstore.History, error) {
	own, err := fs.Sub(schemas.SQLite, "sqlite")
	if err != nil {
		return nil, err
	}
	return sqlstore.Histories(own, addons, func(t store.Tables) fs.FS { return t.SQLite })
}

// adoptHorizon is the migration that is no file; see [sqlstore.AdoptHorizon].
func adoptHorizon(ctx context.Context, t *sql.Tx) error {
	return sqlstore.AdoptHorizon(ctx, t, sqlstore.Horizon{
		Read: `select base, base_hash, coalesce((select seq from sqlite_sequence where name = 'audit'), 0),
			cast((julianday('now') - 2440587.5) * 86400000000 as integer) from audit_horizon`,
	})
}

// existing is a statement for [sqlstore.Versions].
const existing = "select coalesce(group_concat(name, ','), '') from sqlite_master where type = 'table' and name in (%s)"

// versions reads the versions of the tables.
func versions(ctx context.Context, db *sql.DB, known []sqlstore.History) ([]sqlstore.Version, error) {
	return sqlstore.Versions(known, existing, func(sql string) interface{ Scan(...any) error } { return db.QueryRowContext(ctx, sql) })
}

func checkSchema(ctx context.Context, db *sql.DB, known []sqlstore.History) error {
	have, err := versions(ctx, db, known)
	if err != nil {
		return err
	}
	return sqlstore.Check(known, have)
}

func openDB(path string, connections int, pragmas ...string) (*sql.DB, error) {
	if err := keepPrivate(path); err != nil {
		return nil, err
	}
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath()}
	// The file exists now. If it is missing later, a reader must not create it, because SQLite
	// would discard its log, with all data that is only there.
	u.RawQuery = url.Values{"_pragma": pragmas, "mode": {"rw"}}.Encode()
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// micros returns the stored form of a time.
func micros(t time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: t.UnixMicro(), Valid: !t.IsZero()}
}

func fromMicros(n sql.NullInt64) time.Time {
	if !n.Valid {
		return time.Time{}
	}
	return time.UnixMicro(n.Int64).UTC()
}
