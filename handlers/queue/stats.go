package queue

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"procaas/engine/store"

	"github.com/jackc/pgx/v5"
)

// The cost of counting depends on the number of types, not of tasks: of large tables, a sample is
// counted. The most important numbers are still exact: which types have ready tasks, how late the
// most urgent one is, taken tasks, and small numbers that an index can find: ready tasks, those
// that wait for their keys, and dead letters. Estimates are marked.

const (
	tableSizes = `
select n, pg_relation_size(n::regclass) / current_setting('block_size')::bigint from unnest($1::text[]) as t (n)`

	countTasks = planned + " select type, state, count(*), min(due), min(deadline), now() from tasks group by type, state"

	sampleTasks     = "select type, state, count(*) from tasks tablesample system ($1) where state in (0, 3) group by type, state"
	sampleScheduled = "select type, count(*) from task_schedule tablesample system ($1) group by type"
	sampleDead      = "select type, count(*) from task_dead tablesample system ($1) group by type"

	countTaken = "select t.type, t.state, count(*), min(t.due), min(t.deadline), now() from " + taken + " group by t.type, t.state"

	// The first task of each type and priority.
	countReady = `
with recursive heads as (
	(select type, rank, deadline, due from tasks where listed = 0 and state = 0 order by type, rank, deadline, id limit 1)
	union all
	select n.* from heads h, lateral (
		select type, rank, deadline, due from tasks t where t.listed = 0 and t.state = 0 and (t.type, t.rank) > (h.type, h.rank)
		order by type, rank, deadline, id limit 1) n
), types as (
	select type, min(due) as oldest, min(deadline) as urgent from (select * from heads limit 10000) h group by type
)
select y.type, 0::smallint, (select count(*) from (
		select from tasks t where t.type = y.type and t.listed = 0 and t.state = 0 order by t.rank, t.deadline, t.id limit $1) c),
	oldest, urgent, now()
from types y`

	// The index finds types one at a time.
	countWaiting = `
with recursive types as (
	(select type from tasks where listed = 1 order by type limit 1)
	union all
	select n.type from types y, lateral (select type from tasks t where t.listed = 1 and t.type > y.type order by type limit 1) n
)
select y.type, (select count(*) from (
		select from tasks t where t.type = y.type and t.listed = 1 order by t.rank, t.deadline, t.id limit $1) c)
from (select type from types limit 10000) y`

	countDead = `
with recursive types as (
	(select type from task_dead order by type limit 1)
	union all
	select n.type from types y, lateral (select type from task_dead t where t.type > y.type order by type limit 1) n
)
select y.type, (select count(*) from (select from task_dead t where t.type = y.type order by t.ended limit $1) c)
from (select type from types limit 10000) y`

	readModes = "select type, mode, reason from task_types"

	readFacts = `
select type, asked, worker, raised, raised_at from task_facts order by greatest(asked, raised_at) desc nulls last limit $1`
)

// These are how many pages of a table are counted, and up to which number of tasks of a type larger
// tables are exact.
const (
	countedPages   = 2048
	countedExactly = 1000
)

// TaskStats implements [store.TaskAdmin]. Above 16 MB of tasks, numbers are estimates. For types
// with many tasks they are accurate to a few percent.
func (s *Store) TaskStats(ctx context.Context) (out []TypeStats, err error) {
	err = s.atOnce(ctx, func(tx pgx.Tx) error {
		c := counting{types: map[string]*TypeStats{}, urgent: map[string]time.Time{}}
		c.query = func(sql string, args ...any) (pgx.Rows, error) { return tx.Query(ctx, sql, args...) }
		if err := c.count(s.countedPages); err != nil {
			return err
		}
		out = c.result()
		return nil
	})
	return out, err
}

// readTables reads what vacuum is responsible for, without looking into the tables.
const readTables = `select t.n, pg_total_relation_size(s.relid), s.n_live_tup, s.n_dead_tup
	from unnest($1::text[]) t (n) join pg_stat_user_tables s on s.relid = t.n::regclass`

// TaskTables implements [store.TaskAdmin].
func (s *Store) TaskTables(ctx context.Context) ([]store.TaskTable, error) {
	rows, err := s.pool.Query(ctx, readTables, vacuumed)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[store.TaskTable])
}

// A counting counts tasks in a transaction that sees one state of all tables, so that no moving
// task is counted twice.
type counting struct {
	query  func(sql string, args ...any) (pgx.Rows, error)
	types  map[string]*TypeStats
	urgent map[string]time.Time // the first deadline of each type
	now    time.Time            // by the store's clock
	guess  bool                 // scheduled tasks are estimates for all types
}

func (c *counting) of(kind string) *TypeStats {
	if c.types[kind] == nil {
		c.types[kind] = &TypeStats{Type: kind, Mode: "open"}
	}
	return c.types[kind]
}

// shares returns which part of each table to count.
func (c *counting) shares(most int64) (map[string]float64, error) {
	rows, err := c.query(tableSizes, []string{"tasks", "task_schedule", "task_dead"})
	if err != nil {
		return nil, err
	}
	share := map[string]float64{}
	var (
		name  string
		pages int64
	)
	_, err = pgx.ForEachRow(rows, []any{&name, &pages}, func() error {
		share[name] = min(1, float64(most)/float64(max(pages, 1)))
		return nil
	})
	return share, err
}

func (c *counting) count(most int64) error {
	share, err := c.shares(most)
	if err != nil {
		return err
	}
	if share["tasks"] == 1 {
		err = c.live(countTasks)
	} else {
		err = c.sampled(share["tasks"])
	}
	if err != nil {
		return err
	}
	if err := c.scheduled(share["task_schedule"]); err != nil {
		return err
	}
	if err := c.dead(share["task_dead"]); err != nil {
		return err
	}
	if err := c.modes(); err != nil {
		return err
	}
	return c.facts()
}

// live counts unfinished tasks.
func (c *counting) live(sql string, args ...any) error {
	rows, err := c.query(sql, args...)
	if err != nil {
		return err
	}
	var (
		kind           string
		state          int
		n              int64
		oldest, urgent time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&kind, &state, &n, &oldest, &urgent, &c.now}, func() error {
		t := c.of(kind)
		switch state {
		case stateStarting:
			t.Starting = n
		case stateRunning:
			t.Running = n
		case stateWaiting:
			t.Waiting = n
		default:
			t.Ready, t.Oldest, c.urgent[kind] = n, oldest.UTC(), urgent
		}
		return nil
	})
	return err
}

// sampled counts a sample of the unfinished tasks.
func (c *counting) sampled(share float64) error {
	rows, err := c.query(sampleTasks, 100*share)
	if err != nil {
		return err
	}
	ready, waiting := map[string]int64{}, map[string]int64{}
	var (
		kind  string
		state int
		n     int64
	)
	if _, err := pgx.ForEachRow(rows, []any{&kind, &state, &n}, func() error {
		if state == stateWaiting {
			waiting[kind] = scaled(n, share)
		} else {
			ready[kind] = scaled(n, share)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := c.live(countTaken); err != nil {
		return err
	}
	if err := c.live(countReady, countedExactly+1); err != nil {
		return err
	}
	for _, t := range c.types {
		t.Ready = c.corrected(t, store.TaskReady, t.Ready, ready[t.Type])
	}
	few, err := c.each(countWaiting, countedExactly+1)
	for kind, n := range few {
		t := c.of(kind)
		t.Waiting = c.corrected(t, store.TaskWaiting, n, waiting[kind])
	}
	return err
}

// corrected returns the number of tasks in a state. n were counted, which may be one more than is
// exact. guess is the estimate of a sample.
func (c *counting) corrected(t *TypeStats, state store.TaskState, n, guess int64) int64 {
	if n <= countedExactly {
		return n
	}
	t.Estimated = append(t.Estimated, state)
	return max(n, guess)
}

// each reads a number for each of some types.
func (c *counting) each(sql string, args ...any) (map[string]int64, error) {
	rows, err := c.query(sql, args...)
	if err != nil {
		return nil, err
	}
	numbers := map[string]int64{}
	var (
		kind string
		n    int64
	)
	_, err = pgx.ForEachRow(rows, []any{&kind, &n}, func() error {
		numbers[kind] = n
		return nil
	})
	return numbers, err
}

// scheduled counts a sample of the scheduled tasks. There is no index by type, because each task
// would have to write an entry.
func (c *counting) scheduled(share float64) error {
	numbers, err := c.each(sampleScheduled, 100*share)
	for kind, n := range numbers {
		c.of(kind).Scheduled = scaled(n, share)
	}
	c.guess = share < 1
	return err
}

// dead counts a sample of the dead letters.
func (c *counting) dead(share float64) error {
	guess, err := c.each(sampleDead, 100*share)
	if err != nil {
		return err
	}
	if share == 1 {
		for kind, n := range guess {
			c.of(kind).Failed = n
		}
		return nil
	}
	few, err := c.each(countDead, countedExactly+1)
	for kind, n := range few {
		t := c.of(kind)
		t.Failed = c.corrected(t, store.TaskFailed, n, scaled(guess[kind], share))
	}
	return err
}

func (c *counting) modes() error {
	rows, err := c.query(readModes)
	if err != nil {
		return err
	}
	var (
		kind   string
		mode   Mode
		reason string
	)
	_, err = pgx.ForEachRow(rows, []any{&kind, &mode, &reason}, func() error {
		t := c.of(kind)
		t.Mode, t.Reason = mode, reason
		return nil
	})
	return err
}

// facts reads what is known about types other than their tasks, also for types that a sample may
// have missed.
func (c *counting) facts() error {
	rows, err := c.query(readFacts, askedMost)
	if err != nil {
		return err
	}
	var (
		one            TypeStats
		asked, raising *time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&one.Type, &asked, &one.AskedBy, &one.Raised, &raising}, func() error {
		if c.types[one.Type] == nil && !c.guess {
			return nil
		}
		t := c.of(one.Type)
		t.Asked = timeOf(asked)
		t.AskedBy = one.AskedBy
		t.Raised = one.Raised
		t.RaisedLast = timeOf(raising)
		return nil
	})
	return err
}

// scaled scales the count of a sample.
func scaled(n int64, share float64) int64 { return int64(math.Round(float64(n) / share)) }

func (c *counting) result() []TypeStats {
	out := make([]TypeStats, 0, len(c.types))
	for t := range maps.Values(c.types) {
		if urgent, ok := c.urgent[t.Type]; ok {
			t.Lag = max(0, c.now.Sub(urgent))
		}
		if c.guess {
			t.Estimated = append(t.Estimated, store.TaskScheduled)
		}
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b TypeStats) int { return cmp.Compare(a.Type, b.Type) })
	return out
}
