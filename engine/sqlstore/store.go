// Package sqlstore is the part of a store that both databases have in common: settings,
// access, the audit, documents, lists of runs, and what is known of failing handlers.
//
// Statements are written once, with arguments $1, $2, …. Where PostgreSQL and SQLite
// differ they have words in braces, which each database replaces by its own, such as {now}.
package sqlstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// A Row is one of those that a query finds.
type Row interface{ Scan(into ...any) error }

// Statements go to the database in the order in which they were queued.
type Statements interface {
	// Queue runs a statement before the next Send returns. It scans the row that the
	// statement gives into what is given for that, or leaves it as it is when there is none.
	// Rows, of what it returns, is valid after Send: how many were changed or scanned.
	Queue(sql string, args []any, into ...any) *Result

	// Send runs what is queued.
	Send(ctx context.Context) error
}

// A Result tells what became of a statement.
type Result struct{ Rows int64 }

// A Reader reads.
type Reader interface {
	// Query queues a statement that gives any number of rows.
	Query(sql string, args []any, scan func(Row) error)

	// Send runs what is queued.
	Send(ctx context.Context) error
}

// A Tx is a transaction. What it does may be done again from the start.
type Tx interface {
	Statements
	Reader

	// AsNode queues what begins a transaction that writes for a node. Live is valid after
	// Send.
	AsNode(node int64) (live *bool)

	// LockKeyOf locks the key of a run, if it has one. What is read after that is as others left it.
	LockKeyOf(ctx context.Context, run string) error

	// HasReady notes that a run becomes ready, so that nodes look once this is written. Reorder
	// queues what gives the turn of a run's key to the first that may have it. End queues what
	// moves a run to the history, and gives its turn to the next one.
	HasReady()
	Reorder(r *Steered)
	End(r *Steered, status model.Status, reason string)

	// Alone reports whether no other process removes what is old.
	Alone(ctx context.Context) (bool, error)
}

// A DB is a database with the tables of a store.
type DB interface {
	// Write runs a transaction and commits it, or writes nothing at all.
	Write(ctx context.Context, do func(Tx) error) error

	// Snapshot reads in a transaction whose statements all see the same; Browse asks what has its
	// best plan by its arguments. Both may do it again from the start, as Write.
	Snapshot(ctx context.Context, do func(Reader) error) error
	Browse(ctx context.Context, do func(Reader) error) error

	// Read runs one query.
	Read(ctx context.Context, sql string, args []any, scan func(Row) error) error

	// At makes a time an argument.
	At(t time.Time) any

	// Listed is a condition of SQL for the rows of runs that lists show; empty for all.
	Listed() string
}

// A Store implements its part of [store.Store] over a database. A store of a database
// embeds it.
type Store struct {
	*Documents
	db DB

	// OnSettings is called after controls or tokens have changed by this process.
	OnSettings func()
}

// New makes the common part of a store over db.
func New(db DB) *Store {
	return &Store{Documents: &Documents{db: db, OnDocuments: func() {}}, db: db, OnSettings: func() {}}
}

// find reads the one row of a query; [store.ErrNotFound] when there is none.
func (s *Store) find(ctx context.Context, sql string, args []any, into ...any) error {
	found := false
	err := s.db.Read(ctx, sql, args, func(r Row) error {
		found = true
		return r.Scan(into...)
	})
	if err == nil && !found {
		err = store.ErrNotFound
	}
	return err
}

// A stamp scans a time as any of the databases keeps it: as one, or in microseconds. Null is
// the zero time.
type stamp time.Time

// at makes a time something to scan into.
func at(t *time.Time) *stamp { return (*stamp)(t) }

// Scan implements [sql.Scanner].
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

// Blob stores an empty value as null.
func Blob(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// Text makes a message storable: it may quote anything, and must never be why something
// cannot be written.
func Text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
