package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"procaas/engine/pgkit"
)

// A tx is a transaction. Statements are collected in its batch. send sends the batch, and commit
// sends the last one. A transaction that sends everything with commit needs no begin and commit
// statements, because the server treats a batch as a transaction. If the answer to a commit is
// lost, the outcome is unknown. After any other error, nothing was written.
type tx struct {
	conn       *pgxpool.Conn
	pooled     bool // each transaction may use another connection
	cell       bool // the store has only some slots
	acked      *acknowledged
	mark       mark // of the transaction, once commit has sent it
	before     mark // what was acknowledged when it was sent
	batch      pgx.Batch
	snapshot   bool // read-only, and all statements see the same state
	begun      bool // a statement has begun it
	committing bool // commit was sent
	committed  bool
	ready      bool     // runs become ready that no node owns
	first      position // a position before all of those
}

// queue adds a statement to the batch.
func (t *tx) queue(sql string, args ...any) *pgx.QueuedQuery { return t.batch.Queue(sql, args...) }

// send runs the statements of the batch in one round trip. The transaction continues.
func (t *tx) send(ctx context.Context) error {
	if t.batch.Len() == 0 {
		return nil
	}
	t.begin()
	return t.flush(ctx)
}

// begin puts the start of the transaction before its first statements.
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
	pgkit.MakeRoom(t.conn.Conn(), &batch)
	return t.conn.SendBatch(ctx, &batch).Close()
}

// commit runs the rest of the batch and commits.
func (t *tx) commit(ctx context.Context) error {
	if !t.begun && t.batch.Len() == 0 {
		return nil
	}
	t.committing = true
	t.acked.queueMark(t)
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
	t.committed = tag.String() == "COMMIT"
	if !t.committed {
		return fmt.Errorf("want the transaction committed, have %s", tag)
	}
	return nil
}

// rollback cleans the connection. If that fails, the pool drops it.
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

// rows returns a callback of a queued query that collects all rows.
func rows[T any](into *[]T, scan func(pgx.CollectableRow) (T, error)) func(pgx.Rows) error {
	return func(r pgx.Rows) (err error) {
		*into, err = pgx.CollectRows(r, scan)
		return err
	}
}

// value returns a callback of a queued query that scans its row.
func value(into ...any) func(pgx.Row) error {
	return func(r pgx.Row) error { return r.Scan(into...) }
}

// These are the advisory locks. They are named by a table of the schema, so that schemas do not
// share them, and a number. That of a node is the random part of its number. Two nodes with the
// same part only wait for each other.
const (
	lockNode      = "select pg_advisory_xact_lock_shared(('nodes'::regclass::oid::bigint - 2147483648)::int, ($1::bigint & 2147483647)::int)"
	tryLockNode   = "select pg_try_advisory_xact_lock(('nodes'::regclass::oid::bigint - 2147483648)::int, ($1::bigint & 2147483647)::int)"
	tryLockSingle = "select pg_try_advisory_xact_lock(('runs'::regclass::oid::bigint - 2147483648)::int, $1::bigint::int)"
)

// A singleLock lets one process at a time do something.
type singleLock int64

const (
	partitionLock singleLock = iota
	sweepLock
	trimLock
)

// alone runs a transaction, unless another process holds the lock.
func (d *database) alone(ctx context.Context, l singleLock, do func(*tx) error) error {
	return d.tx(ctx, func(t *tx) error {
		if mine, err := t.tryLock(ctx, l); err != nil || !mine {
			return err
		}
		return do(t)
	})
}

func (t *tx) tryLock(ctx context.Context, l singleLock) (mine bool, err error) {
	t.queue(tryLockSingle, int64(l)).QueryRow(value(&mine))
	return mine, t.send(ctx)
}

// readNode returns the time and whether a node may write. It is a separate statement after the
// lock, so that it sees what a takeover has committed.
const (
	readNode = "select clock_timestamp(), exists (select from nodes where node = $1 and gone is null), serving from settings"
	isLive   = "select exists (select from nodes where node = $1 and gone is null)"
)

// An instant is the database's time and the state of the node at the start of a transaction.
type instant struct {
	now     time.Time
	live    bool
	serving string // the versions that runs begin with; empty for that of the node
}

// asNode begins a transaction that writes for a node. Read the instant after send.
func (t *tx) asNode(node int64) *instant {
	t.lockNode(node)
	return t.readNode(node)
}

// readNode reads the clock, and the state of a locked node.
func (t *tx) readNode(node int64) *instant {
	var c instant
	t.queue(readNode, node).QueryRow(value(&c.now, &c.live, &c.serving))
	return &c
}

// lockNode begins a transaction whose statements themselves check whether the node may write.
func (t *tx) lockNode(node int64) {
	if node != 0 {
		t.queue(lockNode, node)
	}
}
