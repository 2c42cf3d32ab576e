package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"procaas/engine/model"
	"procaas/engine/sqlstore"
)

// common is the part of the store that it shares with the PostgreSQL store.
type common = sqlstore.Store

// words has the words of SQLite for those of the common statements. The time is a named argument.
var words = strings.NewReplacer(
	"{now}", ":now",
	"{micro}", "1",
	"{time}", "integer",
	"{no checkpoint}", "null",
	"{position}", "instr",
	"{any of}", "in (select * from",
	"{walk}", "+", // its index would have all runs of a flow sorted for a page of them
	"{find bytes}", "instr",
	"{bytes}", "length",
	"{bytewise}", "",
	"{share}", "",
	"{lock}", "",
	"{lock past}", "",
	"{with seq}", "",
	"{priority}", "event ->> 'priority'",
	"{listens}", "awaits is not null",
	"{and any due}", "", "{and any since}", "",
	"{aside}", "(place = 'parked' or place = 'held' or place = 'blocked' or place = 'deferred' or place = 'failed')", // as in runs_aside
	"{place}", "place",
	"{signs}", "nodes", "{taken}", "place in ('starting', 'running')",
	"{current}", "select hash from definition",
	"{current, locked}", "select hash from definition",
	"{write current}", `insert into definition (one, hash, serving) values (1, $1, $1)
	on conflict (one) do update set hash = excluded.hash, serving = excluded.serving`,
	"{write serving}", "update definition set serving = $2 where hash = $1",
	"{revision}", "(select coalesce(max(revision), 0) as revision from audit)",
	"{take revisions}", "select coalesce((select seq from sqlite_sequence where name = 'audit'), 0) + $1, :now",
	"{last revision}", "coalesce((select seq from sqlite_sequence where name = 'audit'), 0)",
	"{horizon}", "audit_horizon", "{base}", "base", "{base hash}", "base_hash",
	"{set horizon}", "update audit_horizon set forget_before = :now - $1",
	"{end horizon}", "update audit_horizon set forget_before = 0",
)

// A database adapts the store for its common part.
type database struct{ *Store }

var _ sqlstore.DB = database{}

func (d database) Write(ctx context.Context, do func(sqlstore.Tx) error) error {
	return d.writer.do(ctx, func(t *tx) error { return t.share(do) })
}

func (d database) Snapshot(ctx context.Context, do func(sqlstore.Reader) error) error {
	t, err := d.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer t.Rollback()
	return do(&reader{ctx: ctx, from: t})
}

func (d database) Browse(ctx context.Context, do func(sqlstore.Reader) error) error {
	return do(&reader{ctx: ctx, from: d.read})
}

func (d database) Read(ctx context.Context, query string, args []any, scan func(sqlstore.Row) error) error {
	r := reader{ctx: ctx, from: d.read}
	r.Query(query, args, scan)
	return r.Send(ctx)
}

func (d database) At(t time.Time) any { return t.UnixMicro() }

func (d database) Listed() string { return "" }

// A reader runs each query at once.
type reader struct {
	ctx  context.Context
	from interface {
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	}
	err error
}

// Query implements [sqlstore.Reader].
func (r *reader) Query(query string, args []any, scan func(sqlstore.Row) error) {
	if r.err != nil {
		return
	}
	found, err := r.from.QueryContext(r.ctx, words.Replace(query), args...)
	if r.err = err; err == nil {
		r.err = scanAll(found, scan)
	}
}

// Send implements [sqlstore.Reader].
func (r *reader) Send(context.Context) error { return r.err }

func scanAll(r *sql.Rows, scan func(sqlstore.Row) error) error {
	_, err := collect(r, func(r *sql.Rows) (struct{}, error) { return struct{}{}, scan(r) })
	return err
}

// A sharedTx runs each statement at once, in the writer's transaction.
type sharedTx struct {
	*tx
	err error
}

// share writes with the common statements.
func (t *tx) share(do func(sqlstore.Tx) error) error {
	s := &sharedTx{tx: t}
	if err := do(s); err != nil {
		return err
	}
	return s.err
}

// prepare translates a common statement for this database.
func (t *sharedTx) prepare(query string, args []any) (string, []any) {
	query = words.Replace(query)
	if strings.Contains(query, ":now") {
		args = append(slices.Clip(args), sql.Named("now", t.now.UnixMicro()))
	}
	return query, args
}

// Queue implements [sqlstore.Statements].
func (t *sharedTx) Queue(query string, args []any, into ...any) *sqlstore.Result {
	r := &sqlstore.Result{}
	if t.err != nil {
		return r
	}
	query, args = t.prepare(query, args)
	if len(into) == 0 {
		r.Rows, t.err = t.count(query, args...)
		return r
	}
	found, err := t.row(query, args, into...)
	if t.err = err; found {
		r.Rows = 1
	}
	return r
}

// Query implements [sqlstore.Reader].
func (t *sharedTx) Query(query string, args []any, scan func(sqlstore.Row) error) {
	if t.err == nil {
		query, args = t.prepare(query, args)
		_, t.err = rows(t.tx, query, args, func(r *sql.Rows) (struct{}, error) { return struct{}{}, scan(r) })
	}
}

// Send implements [sqlstore.Statements].
func (t *sharedTx) Send(context.Context) error { return t.err }

// AsNode implements [sqlstore.Tx].
func (t *sharedTx) AsNode(node int64) *bool {
	live := false
	if t.err == nil {
		live, t.err = t.row(findNode, []any{node}, new(int64))
	}
	return &live
}

// Alone implements [sqlstore.Tx]. A file has one process.
func (t *sharedTx) Alone(context.Context) (bool, error) { return true, t.err }

// LockKeyOf implements [sqlstore.Tx]. There is only one writer.
func (t *sharedTx) LockKeyOf(context.Context, string) error { return t.err }

// Prepare implements [sqlstore.Tx].
func (t *sharedTx) Prepare(_ context.Context, events []model.Intake) (func(*sqlstore.Steered) error, error) {
	rows, err := encodeEvents(events)
	return func(*sqlstore.Steered) error { return cmp.Or(t.err, t.emit(events, rows)) }, err
}

// HasReady implements [sqlstore.Tx].
func (t *sharedTx) HasReady() { t.ready = true }

// Reorder implements [sqlstore.Tx].
func (t *sharedTx) Reorder(r *sqlstore.Steered) {
	if t.err == nil && r.Ordered {
		t.err = t.promote(r.Flow, r.Key)
	}
}

// End implements [sqlstore.Tx].
func (t *sharedTx) End(r *sqlstore.Steered, status model.Status, reason string) {
	if t.err == nil {
		t.err = t.end(row{seq: r.Seq, flow: r.Flow, key: r.Key, ordered: r.Ordered}, status, reason, nil)
	}
}

const release = `update runs set place = 'ready', due = ? where seq in (
	select seq from runs where place = 'parked' and cause <> '' and cause = ? order by seq limit ?)`

// Release implements [store.Runs].
func (s *Store) Release(ctx context.Context, cause string, limit int) (n int, err error) {
	err = s.writer.do(ctx, func(t *tx) error {
		count, err := t.count(release, t.now.UnixMicro(), cause, limit)
		n, t.ready = int(count), t.ready || count > 0
		return err
	})
	return n, err
}

// WakeRun implements [store.Runs].
func (s *Store) WakeRun(ctx context.Context, run string) error {
	return s.writer.do(ctx, func(t *tx) error { return t.wake(run) })
}
