package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// manyTransactions of the source are combined into one of the target, if they are available.
	manyTransactions = 200

	// manyChanges are sent to the target at once.
	manyChanges = 500

	// saveEvery is how often a position without changes is saved.
	saveEvery = time.Second
)

// An applier applies the changes of a stream to the other shard.
type applier struct {
	id      string    // of its position and its echoes
	barrier string    // id of its barriers
	against string    // id of the echoes of the other direction
	commits func()    // called after each commit
	conn    *pgx.Conn // its own, because it holds a transaction open while it waits for more
	stream  *stream
	tables  map[string]*shape // by schema and name

	position pglogrepl.LSN // everything before it is durable on the target
	saved    time.Time     // when the position was last saved

	held     *event // read, but not processed yet
	open     bool   // a transaction on the target is open
	reached  pglogrepl.LSN
	txs      int
	changes  []change
	skip     bool // the current transaction of the source is an echo, or was applied before
	token    string
	prepared map[string]string              // names of prepared statements, by statement
	touched  map[string]map[string][]string // by table, then primary key
	applied  int64                          // rows
}

// A change is a statement for the target that must affect one row.
type change struct {
	statement string // name of a prepared statement
	verb      string
	params    [][]byte
	table     *shape
	row       string
}

// A goal says where to stop.
type goal struct {
	before pglogrepl.LSN                   // before transactions that commit at or after this; 0 for none
	token  string                          // after the transaction with this barrier
	join   func(ctx context.Context) error // extra work for the target's transaction that reaches the token
}

// newApplier makes an applier that continues where the target has got to.
func (m *Mover) newApplier(s *stream, from pglogrepl.LSN) *applier {
	a := &applier{
		id: m.direction(), barrier: m.spec.ID, against: m.against(), commits: func() { m.report(m.streamed("stream"), false) },
		conn: m.target, stream: s, position: from, reached: from, saved: time.Now(),
		tables: map[string]*shape{}, prepared: m.prepared, touched: map[string]map[string][]string{},
	}
	for _, t := range m.tables {
		a.tables[t.title()] = t
	}
	return a
}

// until applies the stream up to a goal. After an error the applier is unusable.
func (a *applier) until(ctx context.Context, g goal) error {
	// While a transaction on the target is open, it takes only available events. Waiting inside it
	// would keep rows locked and delay durability.
	for {
		e, ok, err := a.take(ctx, !a.open)
		if err != nil {
			return a.abandon(err)
		}
		if !ok { // nothing more is available, so commit
			if err := a.commit(ctx, nil); err != nil {
				return a.abandon(err)
			}
			continue
		}
		done, err := a.step(ctx, e, g)
		if err != nil {
			return a.abandon(err)
		}
		if done {
			return nil
		}
	}
}

func (a *applier) take(ctx context.Context, wait bool) (event, bool, error) {
	if a.held != nil {
		e := *a.held
		a.held = nil
		return e, true, nil
	}
	return a.stream.next(ctx, wait)
}

// abandon rolls back the open transaction.
func (a *applier) abandon(err error) error {
	if a.open {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = a.conn.Exec(ctx, "rollback") // an ended connection has done so already
		a.open = false
	}
	return err
}

func (a *applier) step(ctx context.Context, e event, g goal) (done bool, err error) {
	switch e.kind {
	case atBegin:
		if g.before > 0 && e.lsn >= g.before {
			a.held = &e
			return true, a.commit(ctx, nil)
		}
		// A slot that was confirmed late repeats what the target already has.
		a.skip, a.token = e.lsn < a.position, ""
	case atChange:
		return false, a.change(ctx, e)
	case atTruncate:
		if e.rel != nil && a.tables[e.rel.Namespace+"."+e.rel.RelationName] != nil {
			return false, &RestartError{fmt.Sprintf("table %s.%s was truncated while its rows moved", e.rel.Namespace, e.rel.RelationName)}
		}
	case atCommit:
		a.reached = max(a.reached, e.lsn)
		a.txs++
		if a.token != "" && a.token == g.token {
			return true, a.commit(ctx, g.join)
		}
		if a.txs >= manyTransactions {
			return false, a.commit(ctx, nil)
		}
	case atIdle:
		a.reached = max(a.reached, e.lsn)
		if g.before > 0 && e.lsn >= g.before {
			return true, a.commit(ctx, nil)
		}
		if !a.open && time.Since(a.saved) > saveEvery {
			return false, a.save(ctx)
		}
	}
	return false, nil
}

// change queues a change of the source for the target.
func (a *applier) change(ctx context.Context, e event) error {
	if a.skip || e.rel == nil {
		return nil
	}
	if e.rel.Namespace == "procaas" {
		a.control(e)
		return nil
	}
	t := a.tables[e.rel.Namespace+"."+e.rel.RelationName]
	if t == nil {
		return nil
	}
	// An update may move a row into the key or out of it. The server's filter turns it into an
	// insert or a delete.
	var err error
	switch e.op {
	case 'I':
		err = a.insert(ctx, t, e)
	case 'U':
		err = a.update(ctx, t, e)
	default:
		err = a.remove(ctx, t, e)
	}
	if err != nil {
		return err
	}
	if len(a.changes) >= manyChanges {
		return a.flush(ctx)
	}
	return nil
}

// control processes a row of our own tables.
func (a *applier) control(e event) {
	if e.new == nil {
		return
	}
	id := textOf(e.rel, e.new, "id")
	switch e.rel.RelationName {
	case "transfer_echo":
		// The echo is the first change of a transaction, so nothing of it was queued yet.
		a.skip = a.skip || id == a.against
	case "transfer_barrier":
		if id == a.barrier {
			a.token = textOf(e.rel, e.new, "token")
		}
	}
}

// cmpTuple returns the old row. It is missing if no identifying column has changed.
func cmpTuple(old, now *pglogrepl.TupleData) *pglogrepl.TupleData {
	if old != nil {
		return old
	}
	return now
}

func valueOf(rel *pglogrepl.RelationMessage, row *pglogrepl.TupleData, name string) *pglogrepl.TupleDataColumn {
	for i, c := range rel.Columns {
		if c.Name == name && i < len(row.Columns) {
			return row.Columns[i]
		}
	}
	return nil
}

func textOf(rel *pglogrepl.RelationMessage, row *pglogrepl.TupleData, name string) string {
	if v := valueOf(rel, row, name); v != nil {
		return string(v.Data)
	}
	return ""
}

func (a *applier) insert(ctx context.Context, t *shape, e event) error {
	var names []string
	var params [][]byte
	for i, v := range e.new.Columns {
		// An unchanged out-of-line value is not in the log, and the target has no row that has it.
		if v.DataType == 'u' {
			return &RestartError{fmt.Sprintf("a row of table %s came to the key with a large value that the stream does not carry", t.title())}
		}
		names = append(names, e.rel.Columns[i].Name)
		params = append(params, param(v))
	}
	sql := "insert into " + t.quoted() + " (" + quoteAll(names) + ") overriding system value values (" + places(1, len(names)) + ")"
	return a.queue(ctx, e, e.new, sql, change{table: t, params: params})
}

func (a *applier) update(ctx context.Context, t *shape, e event) error {
	var sets []string
	var params [][]byte
	for i, v := range e.new.Columns {
		name := e.rel.Columns[i].Name
		if c := t.column(name); v.DataType == 'u' || c != nil && c.always {
			continue // unchanged
		}
		params = append(params, param(v))
		sets = append(sets, quote(name)+" = $"+strconv.Itoa(len(params)))
	}
	if len(sets) == 0 {
		return nil
	}
	// The old row identifies it, because the update may change the primary key. Both are compared
	// during the freeze.
	old := cmpTuple(e.old, e.new)
	where, params, err := a.named(t, e.rel, old, params)
	if err != nil {
		return err
	}
	a.touch(t, e.rel, e.new)
	sql := "update " + t.quoted() + " set " + strings.Join(sets, ", ") + " where " + where
	return a.queue(ctx, e, old, sql, change{table: t, params: params})
}

func (a *applier) remove(ctx context.Context, t *shape, e event) error {
	old := cmpTuple(e.old, e.new)
	where, params, err := a.named(t, e.rel, old, nil)
	if err != nil {
		return err
	}
	return a.queue(ctx, e, old, "delete from "+t.quoted()+" where "+where, change{table: t, params: params})
}

// named identifies a row by its primary key, or by its replica identity.
func (a *applier) named(t *shape, rel *pglogrepl.RelationMessage, row *pglogrepl.TupleData, params [][]byte) (string, [][]byte, error) {
	names := t.identity
	if !slices.ContainsFunc(t.primary, func(p string) bool { return !slices.Contains(names, p) }) {
		names = t.primary
	}
	parts := make([]string, len(names))
	for i, name := range names {
		v := valueOf(rel, row, name)
		if v == nil || v.DataType != 't' {
			return "", nil, &RestartError{fmt.Sprintf("the stream does not name a row of table %s: column %s is missing", t.title(), name)}
		}
		params = append(params, v.Data)
		parts[i] = quote(name) + " = $" + strconv.Itoa(len(params))
	}
	return strings.Join(parts, " and "), params, nil
}

func param(v *pglogrepl.TupleDataColumn) []byte {
	if v.DataType == 'n' {
		return nil
	}
	if v.Data == nil {
		return []byte{} // empty text is not null
	}
	return v.Data
}

func places(from, n int) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = "$" + strconv.Itoa(from+i)
	}
	return strings.Join(parts, ", ")
}

// touch remembers a row, to compare it during the freeze.
func (a *applier) touch(t *shape, rel *pglogrepl.RelationMessage, row *pglogrepl.TupleData) {
	values := make([]string, len(t.primary))
	for i, name := range t.primary {
		v := valueOf(rel, row, name)
		if v == nil || v.DataType != 't' {
			return // the identity has other columns; counts and digests cover it
		}
		values[i] = string(v.Data)
	}
	title := t.title()
	if a.touched[title] == nil {
		a.touched[title] = map[string][]string{}
	}
	a.touched[title][strings.Join(values, "\x00")] = values
}

func (a *applier) manyTouched() (n int) {
	for _, rows := range a.touched {
		n += len(rows)
	}
	return n
}

// queue completes and queues a change, which a statement makes from a row.
func (a *applier) queue(ctx context.Context, e event, row *pglogrepl.TupleData, sql string, c change) error {
	a.touch(c.table, e.rel, row)
	var ok bool
	c.statement, ok = a.prepared[sql]
	if !ok {
		// A statement is prepared once per set of columns.
		c.statement = "apply_" + strconv.Itoa(len(a.prepared))
		if _, err := a.conn.PgConn().Prepare(ctx, c.statement, sql, nil); err != nil {
			return fmt.Errorf("apply to table %s: %w", c.table.title(), err)
		}
		a.prepared[sql] = c.statement
	}
	c.verb, _, _ = strings.Cut(sql, " ")
	names := make([]string, len(c.table.primary))
	for i, name := range c.table.primary {
		names[i] = textOf(e.rel, row, name)
	}
	c.row = strings.Join(names, ", ")
	a.changes = append(a.changes, c)
	return nil
}

// flush sends queued changes, and checks that each affects one row.
func (a *applier) flush(ctx context.Context) error {
	if len(a.changes) == 0 {
		return nil
	}
	batch := &pgconn.Batch{}
	first := 0
	if !a.open {
		// All in one round trip, because round trips determine the freeze time.
		batch.ExecParams("begin", nil, nil, nil, nil)
		batch.ExecParams(putEcho, [][]byte{[]byte(a.id)}, nil, nil, nil)
		first = 2
		a.open = true
	}
	for _, c := range a.changes {
		batch.ExecPrepared(c.statement, c.params, nil, nil)
	}
	results := a.conn.PgConn().ExecBatch(ctx, batch)
	n := -first
	for results.NextResult() {
		tag, err := results.ResultReader().Close()
		if err != nil {
			break // Close reports the error again
		}
		// Otherwise an update of a missing row would go unnoticed, and the sides would diverge.
		if n >= 0 && tag.RowsAffected() != 1 {
			c := a.changes[n]
			_ = results.Close()
			return &DivergedError{c.table.title(), fmt.Sprintf("%s of row (%s) met %d rows in the target", c.verb, c.row, tag.RowsAffected())}
		}
		n++
	}
	if err := results.Close(); err != nil {
		return a.applyError(err, n)
	}
	a.applied += int64(len(a.changes))
	a.changes = a.changes[:0]
	return nil
}

func (a *applier) applyError(err error, n int) error {
	title, row := "", ""
	if n >= 0 && n < len(a.changes) {
		title, row = a.changes[n].table.title(), a.changes[n].row
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "23505" {
		return &DivergedError{title, fmt.Sprintf("insert of row (%s): the target has it already", row)}
	}
	return fmt.Errorf("apply to table %s: %w", title, err)
}

// commit commits the applied changes with the position.
func (a *applier) commit(ctx context.Context, join func(context.Context) error) error {
	if err := a.flush(ctx); err != nil {
		return err
	}
	if join != nil && !a.open {
		if _, err := a.conn.Exec(ctx, "begin"); err != nil {
			return err
		}
		a.open = true
		if _, err := a.conn.Exec(ctx, putEcho, a.id); err != nil {
			return err
		}
	}
	if !a.open {
		// No changes: the position may wait for the next save.
		a.txs = 0
		return nil
	}
	if _, err := a.conn.Exec(ctx, movePosition, a.id, a.reached.String()); err != nil {
		return fmt.Errorf("keep the position: %w", err)
	}
	if join != nil {
		if err := join(ctx); err != nil {
			return err
		}
	}
	if _, err := a.conn.Exec(ctx, "commit"); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	a.open, a.txs = false, 0
	a.kept()
	a.commits()
	return nil
}

// save saves a position without changes.
func (a *applier) save(ctx context.Context) error {
	if _, err := a.conn.Exec(ctx, movePosition, a.id, a.reached.String()); err != nil {
		return fmt.Errorf("keep the position: %w", err)
	}
	a.kept()
	return nil
}

func (a *applier) kept() {
	a.position, a.saved = a.reached, time.Now()
	a.stream.durable.Store(uint64(a.position))
}
