package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A tx is a transaction. Statements gather in its batch and go together with
// send; commit sends the last of them. One that sends all it has with commit needs
// no statements that begin and end it: what is sent together is a transaction for
// the server. What became of a commit whose answer is lost is unknown; of all other
// failures it is certain that nothing was written.
type tx struct {
	conn       *pgxpool.Conn
	pooled     bool // the connection is another one after each transaction
	cell       bool // the store has some slots only
	batch      pgx.Batch
	snapshot   bool // all statements see the same, and write nothing
	begun      bool // by a statement
	committing bool // commit was sent
	committed  bool
	ready      bool     // runs become ready that no node owns
	first      position // none of those is before
}

// queue adds a statement to the batch.
func (t *tx) queue(sql string, args ...any) *pgx.QueuedQuery { return t.batch.Queue(sql, args...) }

// send runs the statements of the batch in one round trip, and lets the transaction
// go on.
func (t *tx) send(ctx context.Context) error {
	if t.batch.Len() == 0 {
		return nil
	}
	t.begin()
	return t.flush(ctx)
}

// begin puts what begins the transaction before its first statements.
func (t *tx) begin() {
	if t.begun {
		return
	}
	var b pgx.Batch
	if t.snapshot {
		b.Queue("begin isolation level repeatable read, read only")
	} else {
		b.Queue("begin")
	}
	if t.pooled {
		b.Queue(localSettings, timeouts()...)
	}
	b.QueuedQueries = append(b.QueuedQueries, t.batch.QueuedQueries...)
	t.batch, t.begun = b, true
}

func (t *tx) flush(ctx context.Context) error {
	batch := t.batch
	t.batch = pgx.Batch{}
	return t.conn.SendBatch(ctx, &batch).Close()
}

// commit runs the rest of the batch and commits.
func (t *tx) commit(ctx context.Context) error {
	if !t.begun && t.batch.Len() == 0 {
		return nil
	}
	t.committing = true
	if !t.begun && !t.pooled {
		err := t.flush(ctx)
		t.committed = err == nil
		return err
	}
	t.begin()
	var tag pgconn.CommandTag
	t.queue("commit").Exec(func(c pgconn.CommandTag) error { tag = c; return nil })
	if err := t.flush(ctx); err != nil {
		return err
	}
	if t.committed = tag.String() == "COMMIT"; !t.committed {
		return fmt.Errorf("want the transaction committed, have %s", tag)
	}
	return nil
}

// rollback leaves the connection clean; the pool drops it when that fails.
func (t *tx) rollback() {
	if t.committed || t.conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := t.conn.Exec(ctx, "rollback"); err != nil {
		_ = t.conn.Conn().Close(ctx)
	}
}

// rows makes a callback of a queued query that keeps all rows.
func rows[T any](into *[]T, scan func(pgx.CollectableRow) (T, error)) func(pgx.Rows) error {
	return func(r pgx.Rows) (err error) {
		*into, err = pgx.CollectRows(r, scan)
		return err
	}
}

// value makes a callback of a queued query that keeps the values of its row.
func value(into ...any) func(pgx.Row) error {
	return func(r pgx.Row) error { return r.Scan(into...) }
}

// The locks that are not of rows. They are named by a table of the schema, so
// that schemas do not share them, and by a number. That of a node is the part of its
// number that is drawn by lot: two nodes that share it only wait for each other.
const (
	lockNode      = "select pg_advisory_xact_lock_shared(('nodes'::regclass::oid::bigint - 2147483648)::int, ($1::bigint & 2147483647)::int)"
	tryLockNode   = "select pg_try_advisory_xact_lock(('nodes'::regclass::oid::bigint - 2147483648)::int, ($1::bigint & 2147483647)::int)"
	tryLockSingle = "select pg_try_advisory_xact_lock(('runs'::regclass::oid::bigint - 2147483648)::int, $1::bigint::int)"
)

// A singleLock makes something the work of one process at a time.
type singleLock int64

const (
	partitionLock singleLock = iota
	sweepLock
	trimLock
)

func (t *tx) tryLock(ctx context.Context, l singleLock) (mine bool, err error) {
	t.queue(tryLockSingle, int64(l)).QueryRow(value(&mine))
	return mine, t.send(ctx)
}

// readNode tells the time and whether a node may write. It is a statement of its
// own after the lock, so that it sees what a takeover has committed.
const (
	readNode = "select clock_timestamp(), exists (select from nodes where node = $1 and gone is null)"
	isLive   = "select exists (select from nodes where node = $1 and gone is null)"
)

// An instant is the database's time and the state of the node at the beginning of a
// transaction.
type instant struct {
	now  time.Time
	live bool
}

// asNode begins a transaction that writes for a node. Look at the instant after send.
func (t *tx) asNode(node int64) *instant {
	t.lockNode(node)
	return t.readNode(node)
}

// readNode reads the clock, and the state of a node that has been locked.
func (t *tx) readNode(node int64) *instant {
	var c instant
	t.queue(readNode, node).QueryRow(value(&c.now, &c.live))
	return &c
}

// lockNode begins a transaction whose statements see for themselves whether the node
// may write.
func (t *tx) lockNode(node int64) {
	if node != 0 {
		t.queue(lockNode, node)
	}
}
