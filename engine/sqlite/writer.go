package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"procaas/engine/store"
)

// A writer runs writes one after another. Waiting writes share a transaction.
type writer struct {
	conn  *sql.Conn
	tx    *tx
	files presence
	ops   chan *op
	wake  func()        // called after a commit that made runs ready
	done  chan struct{} // closed when the goroutine has ended

	mu     sync.RWMutex // guards closed, and protects ops from being closed in use
	closed bool
}

// An op is one write and its reply. Its error belongs to the writer until reply is closed, and to the caller after that.
type op struct {
	ctx   context.Context
	write func(*tx) error
	err   error
	reply chan struct{}

	careful bool // see [tx]
	alone   bool // in no transaction
}

// maxGroup bounds the writes of one transaction, so that the first does not wait long for the last.
const maxGroup = 256

var errClosed = errors.New("store is closed")

func newWriter(ctx context.Context, db *sql.DB, path string, wake func()) (*writer, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	w := &writer{
		conn: conn, tx: &tx{conn: conn, file: path, stmts: map[string]*sql.Stmt{}},
		ops: make(chan *op, maxGroup), wake: wake, done: make(chan struct{}),
	}
	go w.loop()
	return w, nil
}

// do runs a write, and returns when it is durable or has failed. A failed write changes nothing. It
// may run again from the start, so it must not add to results of an earlier try. It returns only
// when the outcome is known, even if ctx ends. A write that meets data that cannot be read runs
// again carefully, see [tx].
func (w *writer) do(ctx context.Context, write func(*tx) error) error {
	err := w.once(&op{ctx: ctx, write: write, reply: make(chan struct{})})
	if errors.Is(err, store.ErrDamaged) {
		err = w.once(&op{ctx: ctx, write: write, reply: make(chan struct{}), careful: true})
	}
	return err
}

// alone runs a statement that may be in no transaction. Writes wait for it.
func (w *writer) alone(ctx context.Context, write func(*tx) error) error {
	return w.once(&op{ctx: ctx, write: write, reply: make(chan struct{}), alone: true})
}

func (w *writer) once(o *op) error {
	w.mu.RLock()
	if w.closed {
		w.mu.RUnlock()
		return errClosed
	}
	w.ops <- o
	w.mu.RUnlock()
	<-o.reply
	return o.err
}

// close ends the writer after the waiting writes.
func (w *writer) close() error {
	w.mu.Lock()
	w.closed = true
	close(w.ops)
	w.mu.Unlock()
	<-w.done
	return errors.Join(w.tx.close(), w.conn.Close())
}

func (w *writer) loop() {
	defer close(w.done)
	for first := range w.ops {
		group := []*op{first}
	gather:
		for len(group) < maxGroup {
			select {
			case o, ok := <-w.ops:
				if !ok {
					break gather
				}
				group = append(group, o)
			default:
				break gather
			}
		}
		w.commit(slices.DeleteFunc(slices.Clone(group), func(o *op) bool { return o.alone }))
		for _, o := range group {
			if o.alone {
				o.err = cmp.Or(o.ctx.Err(), o.write(w.tx))
			}
			close(o.reply)
		}
	}
}

// errUndo reports that a write has failed, so that the transaction must be undone.
var errUndo = errors.New("another write of the same transaction has failed")

// commit writes a group and records each error. Savepoints, which can undo a single write, cost a
// copy of each changed page. They are rarely needed. So a group uses them only if one of its writes
// has failed, and then starts again.
func (w *writer) commit(group []*op) {
	if len(group) == 0 {
		return
	}
	err := w.run(group, w.attempt)
	if errors.Is(err, errUndo) && len(group) > 1 {
		err = w.run(group, w.savepoint)
	}
	if err == nil {
		if w.tx.ready {
			w.wake()
		}
		return
	}
	for _, o := range group {
		if o.err == nil {
			o.err = fmt.Errorf("store: %w", err)
		}
		o.err = full(o.err)
	}
}

// run runs a group in one transaction. Each write may have run before, in a transaction that was
// undone.
func (w *writer) run(group []*op, write func(*op) (broken error)) error {
	w.tx.ready = false
	err := w.tx.exec("begin immediate")
	for i := 0; i < len(group) && err == nil; i++ {
		o := group[i]
		o.err = o.ctx.Err()
		if o.err == nil {
			err = write(o)
		}
	}
	if err == nil {
		err = w.tx.exec("commit")
	}
	if err == nil {
		return w.files.check() // last, so that durable data is certain to be found again
	}
	_ = w.tx.exec("rollback") // SQLite has ended the transaction itself after some errors
	return err
}

// attempt runs one write that cannot be undone alone.
func (w *writer) attempt(o *op) (broken error) {
	w.tx.now = time.Now().UTC()
	w.tx.careful = o.careful
	o.err = w.tx.explain(o.write(w.tx))
	if o.err != nil {
		return errUndo
	}
	return nil
}

// savepoint runs one write so that it leaves nothing if it fails. broken says why the transaction
// cannot continue: SQLite ends it if the disk is full or fails, or memory runs out. A savepoint
// would then begin another transaction, and its release would commit it.
func (w *writer) savepoint(o *op) (broken error) {
	o.err = w.tx.exec("savepoint op")
	if o.err != nil {
		return o.err
	}
	if w.attempt(o) != nil {
		if back := w.tx.exec("rollback to op"); back != nil {
			o.err = errors.Join(o.err, back)
			return o.err
		}
	}
	broken = w.tx.exec("release op")
	if broken != nil {
		o.err = errors.Join(o.err, broken)
	}
	return broken
}

// A tx is the writer's transaction. Its statements run without a context, because an interrupted
// one would undo the other writes of the group.
type tx struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt // prepared statements by text
	now   time.Time
	ready bool // a write has made runs ready that no node owns

	file string // for messages
	// careful says that the write has met data that cannot be read. It reads each row before it
	// touches the row, and leaves out those that it cannot read.
	careful bool
	damaged map[int64]error // rows of runs that were left out, by number
	told    map[int64]bool  // those that a node knows of
}

func (t *tx) stmt(query string) (*sql.Stmt, error) {
	if s, ok := t.stmts[query]; ok {
		return s, nil
	}
	// SQLite looks at a bound limit when it plans a statement, so it compiles the statement anew each time. It cannot see a sum.
	s, err := t.conn.PrepareContext(context.Background(), strings.ReplaceAll(query, " limit ?", " limit 0 + ?"))
	if err != nil {
		return nil, err
	}
	t.stmts[query] = s
	return s, nil
}

func (t *tx) exec(query string, args ...any) error {
	_, err := t.count(query, args...)
	return err
}

// count executes a statement and returns how many rows it has changed.
func (t *tx) count(query string, args ...any) (int64, error) {
	s, err := t.stmt(query)
	if err != nil {
		return 0, err
	}
	r, err := s.Exec(args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// row reads one row. found is false if there is none.
func (t *tx) row(query string, args []any, into ...any) (found bool, err error) {
	s, err := t.stmt(query)
	if err != nil {
		return false, err
	}
	err = s.QueryRow(args...).Scan(into...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// rows reads all rows of a query.
func rows[T any](t *tx, query string, args []any, scan func(*sql.Rows) (T, error)) ([]T, error) {
	s, err := t.stmt(query)
	if err != nil {
		return nil, err
	}
	r, err := s.Query(args...)
	if err != nil {
		return nil, err
	}
	return collect(r, scan)
}

// collect reads all rows and closes them.
func collect[T any](r *sql.Rows, scan func(*sql.Rows) (T, error)) ([]T, error) {
	defer r.Close()
	var all []T
	for r.Next() {
		v, err := scan(r)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, errors.Join(r.Err(), r.Close())
}

func (t *tx) close() error {
	var all error
	for _, s := range t.stmts {
		all = errors.Join(all, s.Close())
	}
	return all
}
