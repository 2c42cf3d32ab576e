// Package sqlstore is the part of a store that both databases share: settings, access, the audit,
// documents, lists of runs, and the state of fallbacks.
//
// Statements are written once, with arguments $1, $2, …. Where PostgreSQL and SQLite differ, they
// have words in braces such as {now}, which each database replaces.
package sqlstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// A Row is one row of a query.
type Row interface{ Scan(into ...any) error }

// Statements run in the order in which they were queued.
type Statements interface {
	// Queue runs a statement before the next Send returns. It scans the statement's row into the
	// given destinations, or leaves them unchanged if there is no row. Rows of the result is valid
	// after Send: how many rows were changed or scanned.
	Queue(sql string, args []any, into ...any) *Result

	// Send runs the queued statements.
	Send(ctx context.Context) error
}

// A Result is the result of a statement.
type Result struct{ Rows int64 }

// A Reader reads from the database.
type Reader interface {
	// Query queues a statement that returns any number of rows.
	Query(sql string, args []any, scan func(Row) error)

	// Send runs the queued statements.
	Send(ctx context.Context) error
}

// A Tx is a transaction. It may run again from the start.
type Tx interface {
	Statements
	Reader

	// AsNode queues the start of a transaction that writes for a node. live is valid after Send.
	AsNode(node int64) (live *bool)

	// LockKeyOf locks the key of a run, if it has one. Later reads see what other transactions have
	// committed.
	LockKeyOf(ctx context.Context, run string) error

	// Prepare returns a function that accepts events which a run emits. It comes before all locks of the transaction. The
	// function may be called once, when the run is locked.
	Prepare(ctx context.Context, events []model.Intake) (accept func(from *Steered) error, err error)

	// LockToErase locks a key until the end of the transaction. Nothing accepts an event of the key or steers one of its runs
	// meanwhile, also if the key has no entity.
	LockToErase(ctx context.Context, flow, key string) error

	// HasReady notes that a run becomes ready, so that nodes look for it after the commit. Reorder
	// queues a statement that gives the turn of a run's key to the first run that may have it. End
	// queues a statement that moves a run to the history and gives its turn to the next run.
	HasReady()
	Reorder(r *Steered)
	End(r *Steered, status model.Status, reason string)

	// Alone reports whether no other process deletes old data now.
	Alone(ctx context.Context) (bool, error)
}

// A DB is a database with the tables of a store.
type DB interface {
	// Write runs a transaction and commits it. It writes either everything or nothing.
	Write(ctx context.Context, do func(Tx) error) error

	// Snapshot reads in a transaction whose statements all see the same state. Browse is for a
	// query whose best plan depends on its arguments. Both may run again from the start, like
	// Write.
	Snapshot(ctx context.Context, do func(Reader) error) error
	Browse(ctx context.Context, do func(Reader) error) error

	// Read runs one query.
	Read(ctx context.Context, sql string, args []any, scan func(Row) error) error

	// At converts a time to an argument.
	At(t time.Time) any

	// Listed returns an SQL condition for the rows of runs that lists show. It is empty if lists
	// show all.
	Listed() string
}

// A Store implements the common part of [store.Store]. The store of each database embeds it.
type Store struct {
	*Documents
	Degradation
	db DB

	// OnSettings is called after this process has changed controls or tokens.
	OnSettings func()
}

// New makes the common part of a store.
func New(db DB) *Store {
	return &Store{Documents: &Documents{db: db, OnDocuments: func() {}}, Degradation: Degradation{db}, db: db, OnSettings: func() {}}
}

// find reads the single row of a query. The error is [store.ErrNotFound] if there is none.
func find(ctx context.Context, db DB, sql string, args []any, into ...any) error {
	found := false
	err := db.Read(ctx, sql, args, func(r Row) error {
		found = true
		return r.Scan(into...)
	})
	if err == nil && !found {
		err = store.ErrNotFound
	}
	return err
}

// A stamp scans a time in the form of either database: a time, or microseconds. Null becomes the
// zero time.
type stamp time.Time

// at returns a scan destination for a time.
func at(t *time.Time) *stamp { return (*stamp)(t) }

// Scan implements [database/sql.Scanner].
func (s *stamp) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*s = stamp{}
	case time.Time:
		*s = stamp(v.UTC())
	case int64:
		*s = stamp(time.UnixMicro(v).UTC())
	default:
		return fmt.Errorf("want a time, have %T", v)
	}
	return nil
}

// Blob returns null for an empty value.
func Blob(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// Text makes a message that can be stored. A message may quote anything, and must never prevent a
// write.
func Text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
