package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"procaas/engine/model"
	"procaas/engine/sqlstore"
	"procaas/engine/store"
)

// common is the part of the store that it shares with the SQLite store.
type common = sqlstore.Store

// Queue implements [sqlstore.Statements].
func (t *tx) Queue(sql string, args []any, into ...any) *sqlstore.Result {
	return enqueue(&t.batch, sql, args, into)
}

func enqueue(b *pgx.Batch, sql string, args, into []any) *sqlstore.Result {
	var r sqlstore.Result
	q := b.Queue(words.Replace(sql), args...)
	if len(into) == 0 {
		q.Exec(func(c pgconn.CommandTag) error { r.Rows = c.RowsAffected(); return nil })
		return &r
	}
	q.QueryRow(func(row pgx.Row) error {
		err := row.Scan(into...)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		r.Rows = 1
		return err
	})
	return &r
}

// Query implements [sqlstore.Reader].
func (t *tx) Query(sql string, args []any, scan func(sqlstore.Row) error) {
	t.queue(words.Replace(sql), args...).Query(func(rows pgx.Rows) error { return scanAll(rows, scan) })
}

// Send implements [sqlstore.Statements].
func (t *tx) Send(ctx context.Context) error { return t.send(ctx) }

// AsNode implements [sqlstore.Tx].
func (t *tx) AsNode(node int64) *bool { return &t.asNode(node).live }

// Alone implements [sqlstore.Tx].
func (t *tx) Alone(ctx context.Context) (bool, error) { return t.tryLock(ctx, trimLock) }

const findKeyOf = "select flow, key, ordered from runs where id = $1"

// LockKeyOf implements [sqlstore.Tx].
func (t *tx) LockKeyOf(ctx context.Context, run string) error {
	var r sqlstore.Steered
	t.Queue(findKeyOf, []any{run}, &r.Flow, &r.Key, &r.Ordered)
	err := t.send(ctx)
	t.queueLock(keyOf(&r))
	return err
}

// keyOf returns the key of a run, if it has one.
func keyOf(r *sqlstore.Steered) *keySet {
	k := &keySet{}
	k.add(r.Ordered, r.Flow, r.Key)
	return k
}

// Prepare implements [sqlstore.Tx]. The lock of the slots comes before all others.
func (t *tx) Prepare(ctx context.Context, events []model.Intake) (func(*sqlstore.Steered) error, error) {
	in, err := intakes(events)
	if err != nil {
		return nil, err
	}
	here, elsewhere, err := t.fenceEmits(ctx, in)
	return func(from *sqlstore.Steered) error {
		for _, r := range in {
			r.from, r.place = &step{key: from.Key}, ready
		}
		if t.queueInsert(insertRuns, here, 0, nil) != nil {
			t.HasReady()
		}
		return t.queueOutbox(elsewhere)
	}, err
}

// HasReady implements [sqlstore.Tx].
func (t *tx) HasReady() { t.readyAt(headOfQueue) }

// Reorder implements [sqlstore.Tx].
func (t *tx) Reorder(r *sqlstore.Steered) { t.queueReorder(keyOf(r)) }

// End implements [sqlstore.Tx].
func (t *tx) End(r *sqlstore.Steered, status model.Status, reason string) {
	t.queueEnds([]ending{{id: r.ID, status: status, reason: reason}})
	t.queuePromote(keyOf(r))
}

// A guest is a transaction of another package.
type guest struct {
	tx    pgx.Tx
	batch pgx.Batch
}

func (g *guest) Queue(sql string, args []any, into ...any) *sqlstore.Result {
	return enqueue(&g.batch, sql, args, into)
}

func (g *guest) Send(ctx context.Context) error {
	batch := g.batch
	g.batch = pgx.Batch{}
	return g.tx.SendBatch(ctx, &batch).Close()
}

// WriteAudit writes an audit record in a caller's transaction. It is for callers with tables of
// their own in the database of the store. It takes the lock of all settings, so only the commit may
// follow.
func WriteAudit(ctx context.Context, t pgx.Tx, a store.Audited) error {
	g := guest{tx: t}
	err := sqlstore.Audit(ctx, &g, a)
	if err == nil {
		err = g.Send(ctx)
	}
	if err != nil {
		return fmt.Errorf("write the audit: %w", err)
	}
	return nil
}

// release makes runs ready that are parked for a cause. It skips locked runs. Each beat reports
// their cause again until none is left.
var release = readying(`update runs r set place = 'ready', due = clock_timestamp() where seq = any (array (
	select seq from runs where place = 'parked' and cause <> '' and cause = $1 order by seq limit $2
	for no key update skip locked))`)

// Release implements [store.Runs].
func (s *Store) Release(ctx context.Context, cause string, limit int) (n int, err error) {
	err = s.db.tx(ctx, func(t *tx) error {
		t.queue(release, cause, limit).QueryRow(func(row pgx.Row) (err error) {
			n, err = t.countReady(row)
			return err
		})
		return t.commit(ctx)
	})
	if err != nil {
		return 0, fmt.Errorf("release runs parked for %s: %w", cause, err)
	}
	return n, nil
}

// WakeRun implements [store.Runs].
func (s *Store) WakeRun(ctx context.Context, run string) error {
	err := s.db.tx(ctx, func(t *tx) error {
		t.queue(wakeParked, []string{run}).QueryRow(t.noteReady)
		return t.commit(ctx)
	})
	if err != nil {
		return fmt.Errorf("wake run %s: %w", run, err)
	}
	return nil
}

// ListMarked implements [store.MarkedRuns].
func (s *Store) ListMarked(ctx context.Context, f store.RunFilter) (runs []store.RunRecord, cursors []string, more bool, err error) {
	all, more, err := s.Records(ctx, f)
	for i, r := range all {
		if i == 0 {
			before := sqlstore.Record{Seq: r.Seq + 1}
			if f.Oldest {
				before.Seq = r.Seq - 1
			}
			cursors = append(cursors, before.Cursor())
		}
		runs, cursors = append(runs, r.RunRecord), append(cursors, r.Cursor())
	}
	return runs, cursors, more, err
}
