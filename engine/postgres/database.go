package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"procaas/engine/pgkit"
	"procaas/engine/sqlstore"
	"procaas/engine/store"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// words has the words of PostgreSQL for those of the common statements.
var words = strings.NewReplacer(
	"{now}", "clock_timestamp()",
	"{micro}", "interval '1 microsecond'",
	"{time}", "timestamptz",
	"{no checkpoint}", "null::bytea",
	"{position}", "strpos",
	"{any of}", "= any (array",
	"{walk}", "",
	"{find bytes}", `pg_catalog."position"`,
	"{bytes}", "octet_length",
	"{bytewise}", `collate "C"`,
	"{share}", "for share",
	"{lock}", "for no key update",
	"{lock past}", "for update",
	"{with seq}", "overriding system value",
	"{priority}", "(convert_from(event, 'UTF8')::json ->> 'priority')::bigint",
	"{listens}", "listens",
	// These allow an index that omits rows without a value.
	"{aside}", "place in ('parked', 'held', 'blocked', 'deferred', 'failed')",
	"{and any due}", "and due > '-infinity'", "{and any since}", "and since > '-infinity'",
	"{place}", "coalesce(was, place)",
	"{signs}", "leases", "{taken}", "state in (1, 2)",
	"{current}", "select bundle from settings",
	"{current, locked}", "select bundle from settings for no key update",
	"{write current}", "update settings set bundle = $1, serving = $1, served = greatest(served, revision) + 1",
	"{write serving}", "update settings set serving = $2, served = greatest(served, revision) + 1 where bundle = $1",
	"{revision}", "settings",
	"{take revisions}", "update settings set revision = revision + $1 returning revision, clock_timestamp()",
	"{last revision}", "s.revision",
	"{horizon}", "settings", "{base}", "audit_base", "{base hash}", "audit_base_hash",
	"{set horizon}", "select set_config('procaas.forget_before', (clock_timestamp() - $1 * interval '1 microsecond')::text, true)",
	"{end horizon}", "select 1", // it ends with the transaction
)

// A database runs transactions. All ports of a store share it.
type database struct {
	pool   *pgxpool.Pool
	pooled bool        // there is a pooler in front of the server
	cell   atomic.Bool // it is a cell, which may have any number of slots; see [store.Cell]
	hints  *hints      // notified when runs become ready
	acked  *acknowledged
	inc    incarnation
	known  []sqlstore.History // the versions of the tables that this program knows
	tables atomic.Value       // string: which of those of known the last beat has found, as [sqlstore.ListTables] lists them
}

var _ sqlstore.DB = (*database)(nil)

// Write implements [sqlstore.DB].
func (d *database) Write(ctx context.Context, do func(sqlstore.Tx) error) error {
	return d.tx(ctx, func(t *tx) error { return do(t) })
}

func (d *database) Snapshot(ctx context.Context, do func(sqlstore.Reader) error) error {
	return d.tx(ctx, func(t *tx) error {
		t.snapshot = true
		return do(t)
	})
}

func (d *database) Browse(ctx context.Context, do func(sqlstore.Reader) error) error {
	return d.tx(ctx, func(t *tx) error {
		t.queue(planFreely)
		return do(freeTx{t})
	})
}

const planFreely = `select set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_seqscan', 'on', true)`

const plannedAnew = "/* planned anew each time */ "

// freely runs a query whose best plan depends on its arguments. A comment marks it in the server's
// statistics of statements.
func (d *database) freely(ctx context.Context, sql string, args []any, read func(pgx.Rows) error) error {
	return d.tx(ctx, func(t *tx) error {
		t.queue(planFreely)
		t.queue(plannedAnew+sql, args...).Query(read)
		return t.commit(ctx)
	})
}

func (d *database) Read(ctx context.Context, sql string, args []any, scan func(sqlstore.Row) error) error {
	rows, err := d.pool.Query(ctx, words.Replace(sql), args...)
	if err != nil {
		return err
	}
	return scanAll(rows, scan)
}

func (d *database) At(t time.Time) any { return t }

// notGone excludes runs of a cell that are leaving it or not there yet.
const notGone = "(place <> 'away' or inbox_slot(key) in (select slot from inbox_slots where state = 'frozen'))"

func (d *database) Listed() string {
	if d.cell.Load() {
		return notGone
	}
	return ""
}

// These bound the retries of a transaction that failed for a temporary reason and certainly wrote
// nothing.
//
// The pauses of six tries are about 0.6 s together, which is short compared with a lease. Callers
// that can wait for a restart of the server retry above this level.
const (
	maxTries   = 6
	firstPause = 5 * time.Millisecond
)

// tx runs a transaction. It retries a transaction that certainly wrote nothing. Do may run several times, so it must not build on results
// of an earlier try. A transaction whose outcome is unknown is never run again here: its caller knows by ids and versions what is written.
func (d *database) tx(ctx context.Context, do func(*tx) error) error {
	pause := firstPause
	for try := 1; ; try++ {
		err := d.once(ctx, do)
		if err == nil || try == maxTries || !d.mayPass(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause *= 3
	}
}

// An unwritten error guarantees that nothing was written.
type unwritten struct{ error }

func (e unwritten) Unwrap() error { return e.error }

func (d *database) once(ctx context.Context, do func(*tx) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return unwritten{err}
	}
	defer conn.Release()
	defer func() {
		if pgkit.IsLoss(err) {
			d.pool.Reset() // so that not each of the others is tried first
		}
	}()
	t := &tx{conn: conn, pooled: d.pooled, cell: d.cell.Load(), acked: d.acked}
	err = do(t)
	if err == nil && !t.committed {
		err = t.commit(ctx)
	}
	if err != nil {
		t.rollback()
		code := (*pgconn.PgError)(nil)
		answered := errors.As(err, &code)
		switch loss, _ := conn.Conn().PgConn().CustomData()[ofLoss].(error); {
		case loss != nil && answered && code.Code == pgkit.ReadOnly:
			err = unwritten{loss}
		case !t.committing || answered && rolledBack(code):
			err = unwritten{readable(err)}
		default:
			d.hints.horizon.lower(headOfQueue) // it may have been written
		}
		return err
	}
	if err := d.acked.note(t.mark, t.before); err != nil {
		d.hints.horizon.lower(headOfQueue) // it was written, to a server that was set back
		return err
	}
	if t.ready {
		d.hints.hint(t.first) // not before the commit, because a node that looks sooner finds nothing
	}
	return nil
}

// rolledBack reports whether an error of the server, even of the commit, means that nothing was
// written. A shutdown is not such an error, because it may come after the commit.
func rolledBack(e *pgconn.PgError) bool {
	if e.Code == "25P03" {
		return true // the server ended an idle transaction, so the commit came too late
	}
	if e.Code == dataCorrupted || e.Code == indexCorrupted {
		return e.Severity == "ERROR"
	}
	switch e.Code[:2] {
	case "08", "57", "58", "XX":
		return false
	}
	return e.Severity == "ERROR"
}

// mayPass reports whether a retry may help and does no harm.
func (d *database) mayPass(err error) bool {
	if _, ok := errors.AsType[unwritten](err); !ok {
		return false
	}
	var code *pgconn.PgError
	if !errors.As(err, &code) {
		// The connection failed, or there was none.
		return !isAnswer(err)
	}
	switch code.Code {
	case "40001", "40P01", // serialization failure, deadlock
		"55P03",          // lock timeout
		"57P01", "57P02", // the server is stopping
		"57P03",          // the server is starting
		"25P03", "25P04", // this process was idle inside the transaction for too long
		"23505": // another transaction was faster; the next try sees it
		return true
	case pgkit.ReadOnly: // the server is no longer the primary
		d.pool.Reset()
		return true
	}
	return code.Code[:2] == "08" || code.Code[:2] == "53"
}

// isAnswer reports whether an error is the store's own answer, which a retry would not change.
func isAnswer(err error) bool {
	for _, answer := range []error{
		store.ErrFenced, store.ErrConflict, store.ErrNotFound, store.ErrStale, store.ErrMoving, store.ErrRefused,
		store.ErrLost, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}

// readable explains errors that a caller's data causes, which a retry would not change.
func readable(err error) error {
	var code *pgconn.PgError
	if !errors.As(err, &code) || code.Code == "23505" { // another transaction was faster
		return err
	}
	if isDamage(err) {
		return fmt.Errorf("%w: the server reports damaged data: %w. Check its log and its disk, and restore the database from a backup",
			store.ErrDamaged, err)
	}
	switch code.Code[:2] {
	case "22":
		return fmt.Errorf("%w, as when a text holds U+0000 or is not UTF-8: %w", store.ErrRefused, err)
	case "21", "23", "54": // a constraint or a limit. Somebody can mend a missing permission or table
		return fmt.Errorf("%w: %w", store.ErrRefused, err)
	}
	return err
}

// A freeTx plans each query anew.
type freeTx struct{ *tx }

func (t freeTx) Query(sql string, args []any, scan func(sqlstore.Row) error) {
	t.tx.Query(plannedAnew+sql, args, scan)
}

func scanAll(rows pgx.Rows, scan func(sqlstore.Row) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
