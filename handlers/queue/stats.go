package queue

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Counts cost as much as there are types, not as there are tasks: of tables that are
// large, a sample is counted. What matters most is exact all the same: which types have
// ready tasks, by how much the most urgent of them is late, few ready tasks, and what
// is taken.

const (
	tableSizes = `
select n, pg_relation_size(n::regclass) / current_setting('block_size')::bigint from unnest($1::text[]) as t (n)`

	countTasks = "select type, state, count(*), min(due), min(deadline), now() from tasks tablesample system ($1) group by type, state"

	countApart = `
select 'task_schedule', type, count(*) from task_schedule tablesample system ($1) group by type
union all select 'task_dead', type, count(*) from task_dead tablesample system ($2) group by type`

	countTaken = "select type, state, count(*), min(due), min(deadline), now() from tasks where until is not null group by type, state"

	// The first of each type and priority.
	countReady = `
with recursive heads as (
	(select type, rank, deadline, due from tasks where state = 0 order by type, rank, deadline, id limit 1)
	union all
	select n.* from heads h, lateral (
		select type, rank, deadline, due from tasks t where t.state = 0 and (t.type, t.rank) > (h.type, h.rank)
		order by type, rank, deadline, id limit 1) n
), types as (
	select type, min(due) as oldest, min(deadline) as urgent from (select * from heads limit 10000) h group by type
)
select y.type, 0::smallint, (select count(*) from (
		select from tasks t where t.type = y.type and t.state = 0 order by t.rank, t.deadline, t.id limit $1) c),
	oldest, urgent, now()
from types y`

	readModes = "select type, mode, reason from task_types"
)

// How many pages of a table are counted, and how many ready tasks of a type at least.
const (
	countedPages = 2048
	countedReady = 1000
)

// TaskStats implements [engine.TaskOffice]. What is in more than 16 MB of tasks is
// estimated: by a few hundredths for types that have many.
func (s *Store) TaskStats(ctx context.Context) (out []TypeStats, err error) {
	err = s.freely(ctx, func(tx pgx.Tx) error {
		c := counting{types: map[string]*TypeStats{}, urgent: map[string]time.Time{}}
		if err := c.count(ctx, tx, s.countedPages); err != nil {
			return err
		}
		out = c.result()
		return nil
	})
	return out, err
}

// A counting counts tasks.
type counting struct {
	types  map[string]*TypeStats
	urgent map[string]time.Time // the first deadlines
	now    time.Time            // of the store
}

func (c *counting) of(kind string) *TypeStats {
	if c.types[kind] == nil {
		c.types[kind] = &TypeStats{Type: kind, Mode: "open"}
	}
	return c.types[kind]
}

func (c *counting) count(ctx context.Context, tx pgx.Tx, most int64) error {
	share := map[string]float64{}
	var (
		name  string
		pages int64
	)
	rows, err := tx.Query(ctx, tableSizes, []string{"tasks", "task_schedule", "task_dead"})
	if err != nil {
		return err
	}
	if _, err := pgx.ForEachRow(rows, []any{&name, &pages}, func() error {
		share[name] = min(1, float64(most)/float64(max(pages, 1)))
		return nil
	}); err != nil {
		return err
	}
	if err := c.live(ctx, tx, share["tasks"], countTasks, 100*share["tasks"]); err != nil {
		return err
	}
	if share["tasks"] < 1 {
		for _, t := range c.types {
			t.Starting, t.Running = 0, 0
		}
		clear(c.urgent)
		if err := c.live(ctx, tx, 1, countTaken); err != nil {
			return err
		}
		if err := c.live(ctx, tx, 1, countReady, countedReady); err != nil {
			return err
		}
	}
	var (
		kind string
		n    int64
	)
	if rows, err = tx.Query(ctx, countApart, 100*share["task_schedule"], 100*share["task_dead"]); err != nil {
		return err
	}
	if _, err := pgx.ForEachRow(rows, []any{&name, &kind, &n}, func() error {
		n = scaled(n, share[name])
		if name == "task_dead" {
			c.of(kind).Failed = n
		} else {
			c.of(kind).Scheduled = n
		}
		return nil
	}); err != nil {
		return err
	}
	var mode Mode
	var reason string
	if rows, err = tx.Query(ctx, readModes); err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, []any{&kind, &mode, &reason}, func() error {
		t := c.of(kind)
		t.Mode, t.Reason = mode, reason
		return nil
	})
	return err
}

// scaled makes a count of all of one of a share.
func scaled(n int64, share float64) int64 { return int64(math.Round(float64(n) / share)) }

// live counts tasks that have not ended, of which the statement sees a share. A count
// of ready ones that was cut is the least there are.
func (c *counting) live(ctx context.Context, tx pgx.Tx, share float64, sql string, args ...any) error {
	rows, err := tx.Query(ctx, sql, args...)
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
		n = scaled(n, share)
		switch state {
		case stateStarting:
			t.Starting = n
		case stateRunning:
			t.Running = n
		case stateWaiting:
			t.Waiting = n
		default:
			if sql == countReady && n == countedReady {
				n = max(n, t.Ready)
			}
			t.Ready, t.Oldest, c.urgent[kind] = n, oldest.UTC(), urgent
		}
		return nil
	})
	return err
}

func (c *counting) result() []TypeStats {
	out := make([]TypeStats, 0, len(c.types))
	for t := range maps.Values(c.types) {
		if urgent, ok := c.urgent[t.Type]; ok {
			t.Lag = max(0, c.now.Sub(urgent))
		} else {
			t.Ready, t.Oldest = 0, time.Time{} // of a sample, and gone meanwhile
		}
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b TypeStats) int { return cmp.Compare(a.Type, b.Type) })
	return out
}
