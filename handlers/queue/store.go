package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"procaas/engine/clock"
	"procaas/engine/pgkit"
	"procaas/engine/store"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The types of the queue are those of the engine, so that other stores can implement them.
type (
	Spec      = store.TaskSpec
	Put       = store.TaskPut
	Task      = store.QueuedTask
	Ref       = store.TaskRef
	Want      = store.TaskWant
	Claim     = store.TaskClaim
	Failure   = store.TaskFailure
	Snooze    = store.TaskSnooze
	Report    = store.TaskReport
	Beat      = store.TaskBeat
	Filter    = store.TaskFilter
	TypeStats = store.TaskTypeStats
	Mode      = store.TaskMode
)

// Options configures how to open a store.
type Options struct {
	// MaxConns bounds the connections. 0 means 8. A pool_max_conns in the dsn takes precedence.
	MaxConns int

	// Direct is the address of the server itself, if dsn is that of a transaction pooler. The store
	// listens for hints there. Without it, workers poll.
	Direct string

	// Log logs lost connections. Nil logs nothing.
	Log *slog.Logger
}

// A Store keeps tasks in a schema of a PostgreSQL database. It is a [store.TaskStore]. Any number
// of processes share a schema.
type Store struct {
	*db
	*hints
	owned bool // Close closes the pool

	leases leases
	asked  asked

	countedPages int64 // most pages of a table to count; tests lower it

	stop    context.CancelFunc
	helpers sync.WaitGroup
}

// Tasks returns the interfaces of the queue.
func (s *Store) Tasks() *store.TaskStore {
	return &store.TaskStore{Queue: s, Work: s, Maintenance: s, Admin: s, Eraser: s, Enqueued: s}
}

// A db runs transactions, and hands out ids.
type db struct {
	pool   *pgxpool.Pool
	pooled bool // there is a pooler in front of the server, so nothing is kept between transactions
	ids    ids
}

const defaultConns = 8

// These are the timeouts of a statement, of a wait for a lock, and of an idle transaction. Every
// statement finds its few rows by an index, so the planner need not plan each call, and must not be
// misled by tables that were empty when they were analyzed. The settings are those of a session, or
// of one transaction.
const (
	statementTimeout = "15s"
	settings         = `select set_config('statement_timeout', '` + statementTimeout + `', $1), set_config('lock_timeout', '5s', $1),
	set_config('idle_in_transaction_session_timeout', '3s', $1), set_config('plan_cache_mode', 'force_generic_plan', $1),
	set_config('enable_seqscan', 'off', $1), set_config('enable_bitmapscan', 'off', $1), set_config('jit', 'off', $1)`
)

// Open connects to the database at dsn. Its schema must be current: see procaas store migrate.
func Open(ctx context.Context, dsn string, o Options) (*Store, error) {
	config, err := pgkit.ParseOperators(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	pgkit.NoticeLoss(config.ConnConfig, pgkit.LostAfter)
	pgkit.OnlyPrimary(config.ConnConfig)
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "procaas-queue"
	}
	if !strings.Contains(dsn, "pool_max_conns") {
		config.MaxConns = defaultConns
		if o.MaxConns > 0 {
			config.MaxConns = int32(o.MaxConns)
		}
	}
	pooled, err := pgkit.Pooled(ctx, config.ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	if pooled {
		// Cache the types of statements, not the statements.
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	} else {
		config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, settings, false)
			return err
		}
	}
	return openPool(ctx, config, pooled, o)
}

func openPool(ctx context.Context, config *pgxpool.Config, pooled bool, o Options) (*Store, error) {
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	s, err := start(ctx, pool, pooled, o)
	if err != nil {
		pool.Close()
		return nil, err
	}
	s.owned = true
	return s, nil
}

// New makes a store from a pool. The caller closes the pool after the store. If the pool's pgx mode
// prepares no statements, New assumes a pooler.
func New(ctx context.Context, pool *pgxpool.Pool, o Options) (*Store, error) {
	mode := pool.Config().ConnConfig.DefaultQueryExecMode
	return start(ctx, pool, mode != pgx.QueryExecModeCacheStatement, o)
}

const findTables = "select to_regclass('tasks') is not null and to_regclass('task_leases') is not null"

func start(ctx context.Context, pool *pgxpool.Pool, pooled bool, o Options) (*Store, error) {
	d := &db{pool: pool, pooled: pooled}
	s := &Store{
		db: d, hints: &hints{db: d, direct: o.Direct, log: o.Log, tell: make(chan struct{}, 1)},
		countedPages: countedPages,
	}
	s.asked = asked{told: map[string]time.Time{}, fresh: map[string]string{}, news: make(chan struct{}, 1)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var there bool
	if err := pool.QueryRow(ctx, findTables).Scan(&there); err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	if !there {
		return nil, errors.New("queue: the schema has no tables for tasks: run procaas store migrate")
	}
	if err := s.makePartitions(ctx); err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	helping, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.helpers.Go(func() { s.listen(helping) })
	s.helpers.Go(func() { s.notify(helping) })
	s.helpers.Go(func() { s.tellAsked(helping) })
	return s, nil
}

// Close ends the store's own goroutines, and its connections if Open made them.
func (s *Store) Close() error {
	s.stop()
	s.helpers.Wait()
	if s.owned {
		s.pool.Close()
	}
	return nil
}

// These bound the retries of a transaction that failed for a temporary reason and certainly wrote
// nothing.
const (
	maxTries   = 6
	firstPause = 5 * time.Millisecond
)

// tx runs a transaction, and retries it if it certainly wrote nothing.
func (d *db) tx(ctx context.Context, do func(pgx.Tx) error) error {
	return d.again(ctx, func() error {
		return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
			if d.pooled {
				if _, err := tx.Exec(ctx, settings, true); err != nil {
					return err
				}
			}
			return do(tx)
		})
	})
}

// send runs the statements of a batch in one round trip and one transaction.
func (d *db) send(ctx context.Context, fill func(*pgx.Batch)) error {
	return d.again(ctx, func() error {
		var b pgx.Batch
		if d.pooled {
			b.Queue(settings, true)
		}
		fill(&b)
		return d.pool.SendBatch(ctx, &b).Close()
	})
}

func (d *db) again(ctx context.Context, do func() error) error {
	for try, wait := 1, firstPause; ; try, wait = try+1, wait*3 {
		err := do()
		d.ids.heed(err)
		if err == nil || try == maxTries || !mayPass(err) || !clock.Pause(ctx, wait/2+rand.N(wait)) {
			return readable(err)
		}
	}
}

// mayPass reports whether certainly nothing was written, and a retry may succeed.
func mayPass(err error) bool {
	if errors.Is(err, errDrains) {
		return true
	}
	var code *pgconn.PgError
	if !errors.As(err, &code) {
		return false
	}
	switch code.Code {
	// serialization, deadlock, lock, unique, starting, too many clients
	case "40001", "40P01", "55P03", "23505", "57P03", "53300":
		return true
	}
	return false
}

// readable explains errors that a caller's data causes.
func readable(err error) error {
	var code *pgconn.PgError
	if errors.As(err, &code) && code.Code[:2] == "22" {
		return fmt.Errorf("%w, as when a text holds U+0000 or is not UTF-8: %w", store.ErrTask, err)
	}
	return err
}

// ids hands out ids of tasks. The database provides them by the thousand.
type ids struct {
	mu         sync.Mutex // guards the following
	next, last int64
}

// heed draws new ids after an id was taken already, because a server that was set back issues
// numbers again.
func (i *ids) heed(err error) {
	var code *pgconn.PgError
	if errors.As(err, &code) && code.Code == "23505" {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.next = i.last
	}
}

const (
	drawIDs   = "select nextval('task_ids')"
	idsAtOnce = 1000 // the increment of the sequence
)

// A drawer runs one query: the pool, or a transaction.
type drawer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// takeIDs returns n increasing ids, with possible gaps. In a transaction it uses the transaction's
// connection, because there may be no other one until the transaction ends.
func (d *db) takeIDs(ctx context.Context, from drawer, n int) ([]int64, error) {
	d.ids.mu.Lock()
	defer d.ids.mu.Unlock()
	out := make([]int64, n)
	for i := range out {
		if d.ids.next == d.ids.last {
			if err := from.QueryRow(ctx, drawIDs).Scan(&d.ids.next); err != nil {
				return nil, err
			}
			d.ids.last = d.ids.next + idsAtOnce
		}
		out[i] = d.ids.next
		d.ids.next++
	}
	return out, nil
}
