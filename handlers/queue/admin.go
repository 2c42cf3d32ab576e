package queue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"procaas/engine/store"

	"github.com/jackc/pgx/v5"
)

// Operators' statements may touch many rows, and their best plan depends on the arguments. A
// comment marks them in the server's statistics, and for the test of plans.
const planned = "/* planned anew each time */"

const planFreely = `select set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_seqscan', 'on', true),
	set_config('enable_bitmapscan', 'on', true)`

func (s *Store) freely(ctx context.Context, do func(pgx.Tx) error) error {
	return s.tx(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, planFreely); err != nil {
			return err
		}
		return do(tx)
	})
}

// atOnce is freely for reads. All of them see one state, so that no task is missed that moves
// between tables meanwhile.
func (s *Store) atOnce(ctx context.Context, do func(pgx.Tx) error) error {
	return s.again(ctx, func() error {
		return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, planFreely); err != nil {
				return err
			}
			return do(tx)
		})
	})
}

// The condition of a filter for a table called t. Its arguments are the first six.
const chosen = `(cardinality($1::bigint[]) = 0 or t.id = any($1)) and ($2 = '' or t.type = $2) and ($3 = '' or t.key = $3)
	and ($4 = '' or t.uid = $4) and ($6 = '' or position($6 in t.error) > 0)`

func filterArgs(f *Filter) []any {
	limit := f.Limit
	if limit <= 0 {
		limit = 1 << 30
	}
	ids := f.IDs
	if ids == nil {
		ids = []int64{}
	}
	return []any{ids, f.Type, f.Key, f.Unique, limit, f.Error}
}

const (
	// Types are found one at a time, because there are few types and many tasks.
	findFree = planned + `
select id from (
	(select t.id from tasks t where t.state = any($7::smallint[]) and ` + chosen + ` limit $5)
	union all
	(select t.id from task_schedule t where $8 and ` + chosen + ` limit $5)
) f order by id limit $5`

	cancelTasks = `
with free as (
	delete from tasks t where t.id = any($1::bigint[]) and t.state in (0, 3) returning t.id, t.due, t.deadline, t.epoch, t.type, t.key
), later as (
	delete from task_schedule t where t.id = any($1::bigint[]) returning t.id, t.due, t.deadline, t.epoch, t.type, t.key
), gone as (select * from free union all select * from later),
alone as (update task_keys k set again = false from gone g where k.id = any (array[g.id]) and k.again), -- what follows is cancelled too
kept as (
	insert into task_history (id, due, deadline, epoch, cancelled, type, key, worker)
	select id, due, deadline, epoch, true, type, key, '' from gone
)
select count(*) from gone`

	moveTasks = `
with free as (
	update tasks t set type = $2, state = 0, listed = 0 where t.id = any($1::bigint[]) and t.state in (0, 3) and t.uid = '' returning t.id
), later as (
	update task_schedule t set type = $2 where t.id = any($1::bigint[]) and t.uid = '' returning t.id
)
select (select count(*) from free) + (select count(*) from later)`
)

// maxCancel bounds one transaction of a cancellation. It locks what it ends, and prevents the
// clean-up of tasks that others have ended.
const maxCancel = 20_000

// CancelTasks implements [store.TaskQueue]. It cancels many tasks in several transactions.
func (s *Store) CancelTasks(ctx context.Context, f Filter) (int, error) {
	return inParts(f, maxCancel, func(part Filter) (n int, err error) {
		err = s.change(ctx, part, func(tx pgx.Tx, ids []int64) error { return tx.QueryRow(ctx, cancelTasks, ids).Scan(&n) })
		return n, err
	})
}

// inParts changes the tasks of a filter in parts, until a part is smaller than allowed.
func inParts(f Filter, most int, do func(part Filter) (int, error)) (all int, err error) {
	for rest := f.Limit; ; {
		part := f
		part.Limit = most
		if f.Limit > 0 {
			part.Limit = min(rest, most)
		}
		n, err := do(part)
		all, rest = all+n, rest-n
		if err != nil || n < part.Limit || f.Limit > 0 && rest == 0 {
			return all, err
		}
	}
}

// MoveTasks implements [store.TaskAdmin]. It leaves tasks with a unique key alone, because they are
// unique within their type.
func (s *Store) MoveTasks(ctx context.Context, f Filter, to string) (n int, err error) {
	spec := Spec{Type: to}
	if err := spec.Check(); err != nil {
		return 0, err
	}
	err = s.change(ctx, f, func(tx pgx.Tx, ids []int64) error { return tx.QueryRow(ctx, moveTasks, ids, to).Scan(&n) })
	s.hint(to)
	return n, err
}

// change changes tasks that no worker holds.
func (s *Store) change(ctx context.Context, f Filter, do func(pgx.Tx, []int64) error) error {
	free, scheduled := []int16{0, 3}, true
	switch f.State {
	case "":
	case store.TaskReady:
		free, scheduled = []int16{0}, false
	case store.TaskWaiting:
		free, scheduled = []int16{3}, false
	case store.TaskScheduled:
		free = []int16{}
	default:
		return fmt.Errorf("%w: want tasks that are ready, waiting or scheduled, have %s", store.ErrConflict, f.State)
	}
	var follow []string
	err := s.freely(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, findFree, append(filterArgs(&f), free, scheduled)...)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, lockKeysOf, ids); err != nil {
			return err
		}
		if err := do(tx, ids); err != nil {
			return err
		}
		if rows, err = tx.Query(ctx, endKeys, ids); err != nil {
			return err
		}
		follow, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	s.hint(follow...)
	return err
}

const (
	lockDead = planned + `
select t.id, t.type, t.key, t.uid, t.payload, t.rank, (extract(epoch from t.tolerance) * 1000000)::bigint, t.timeout
from task_dead t where ` + chosen + ` and t.id > $7 order by t.id limit $5 for update skip locked`

	dropDead = "delete from task_dead where id = any($1::bigint[])"

	maxRetry = 1000
)

// RetryTasks implements [store.TaskAdmin].
func (s *Store) RetryTasks(ctx context.Context, f Filter) (all []store.TaskRetry, err error) {
	if f.State != "" && f.State != store.TaskFailed {
		return nil, fmt.Errorf("%w: want tasks that have failed, have %s", store.ErrConflict, f.State)
	}
	return store.RetryTasksInParts(f, maxRetry, func(part Filter, after int64) ([]store.TaskRetry, error) { return s.retry(ctx, part, after) })
}

// retry retries tasks with a number over after.
func (s *Store) retry(ctx context.Context, f Filter, after int64) (done []store.TaskRetry, err error) {
	var put *putting
	err = s.freely(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, lockDead, append(filterArgs(&f), after)...)
		if err != nil {
			return err
		}
		done = nil
		specs, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (Spec, error) {
			var (
				one             Spec
				id, micros, out int64
				payload         []byte
			)
			err := r.Scan(&id, &one.Type, &one.Key, &one.Unique, &payload, &one.Priority, &micros, &out)
			done = append(done, store.TaskRetry{Task: id})
			one.Payload, one.Priority = payload, -one.Priority
			one.Tolerance, one.Timeout = time.Duration(micros)*time.Microsecond, time.Duration(out)*time.Millisecond
			return one, err
		})
		if err != nil || len(specs) == 0 {
			return err
		}
		if put, err = s.prepare(ctx, tx, specs); err != nil {
			return err
		}
		if err := put.run(ctx, tx); err != nil {
			return err
		}
		var gone []int64
		for i, one := range put.out {
			if one.Err != nil {
				return one.Err
			}
			done[i].As, done[i].Blocked = one.ID, one.Outcome != store.PutAdded
			if !done[i].Blocked {
				gone = append(gone, done[i].Task)
			}
		}
		_, err = tx.Exec(ctx, dropDead, gone)
		return err
	})
	if err != nil {
		return nil, err
	}
	if put != nil {
		s.hint(put.types...)
	}
	return done, nil
}

const putMode = `
insert into task_types (type, mode, reason) values ($1, $2, $3)
on conflict (type) do update set mode = excluded.mode, reason = excluded.reason, changed = now()`

// SetTaskMode implements [store.TaskAdmin].
func (s *Store) SetTaskMode(ctx context.Context, taskType string, mode Mode, reason string) error {
	if !slices.Contains([]Mode{store.TasksOpen, store.TasksPaused, store.TasksDraining}, mode) {
		return fmt.Errorf("%w: want mode open, paused or draining, have %q", store.ErrTask, mode)
	}
	spec := Spec{Type: taskType}
	if err := spec.Check(); err != nil {
		return err
	}
	if _, err := s.pool.Exec(ctx, putMode, taskType, string(mode), store.CutTaskText(reason)); err != nil {
		return readable(err)
	}
	s.hint(taskType)
	return nil
}

const (
	peekLive = planned + `
select ` + taskColumns + ` from tasks t where t.state = any($7::smallint[]) and ` + chosen + `
order by t.rank, t.deadline, t.id limit $5`

	peekScheduled = planned + `
select t.id, t.type, t.key, t.uid, t.payload, t.rank, 0::smallint, t.slot, t.created, t.due, t.deadline, null::timestamptz,
	null::timestamptz, t.timeout, t.epoch, t.failures, t.lost, '', t.error
from task_schedule t where ` + chosen + ` order by t.due, t.id limit $5`

	peekDead = planned + `
select t.id, t.type, t.key, t.uid, t.payload, t.rank, 0::smallint, t.slot, t.created, t.due, t.due + t.tolerance, null::timestamptz,
	null::timestamptz, t.timeout, t.epoch, t.failures, t.lost, t.worker, t.error, t.ended
from task_dead t where ` + chosen + ` order by t.ended desc, t.id desc limit $5`

	peekEnded = planned + `
select t.id, t.type, t.key, '', t.result, 0, 0::smallint, 0::smallint, t.due, t.due, t.deadline, t.begun,
	null::timestamptz, 0, t.epoch, 0, 0, t.worker, '', t.ended
from task_history t where t.cancelled = $7 and $4 = '' and $6 = '' and (cardinality($1::bigint[]) = 0 or t.id = any($1))
	and ($2 = '' or t.type = $2)
	and ($3 = '' or t.key = $3)
order by t.ended desc, t.id desc limit $5`
)

// PeekTasks implements [store.TaskAdmin]. Without a state it lists unfinished tasks: taken and
// ready ones before scheduled ones.
func (s *Store) PeekTasks(ctx context.Context, f Filter) ([]Task, error) {
	var out []Task
	args := filterArgs(&f)
	err := s.atOnce(ctx, func(tx pgx.Tx) (err error) {
		out = nil
		read := func(sql string, state store.TaskState, args []any) (err error) {
			rows, err := tx.Query(ctx, sql, args...)
			if err == nil {
				out, err = peek(rows, &f, out, state)
			}
			return err
		}
		switch f.State {
		case store.TaskScheduled:
			err = read(peekScheduled, f.State, args)
		case store.TaskFailed:
			err = read(peekDead, f.State, args)
		case store.TaskCompleted, store.TaskCancelled:
			err = read(peekEnded, f.State, append(args, f.State == store.TaskCancelled))
		case "":
			if err = read(peekLive, "", append(args, []int16{0, 1, 2, 3})); err == nil {
				err = read(peekScheduled, store.TaskScheduled, args)
			}
		default:
			state := slices.Index(states, f.State)
			if state < 0 {
				return fmt.Errorf("%w: there is no state %q", store.ErrTask, f.State)
			}
			err = read(peekLive, "", append(args, []int16{int16(state)}))
		}
		return err
	})
	if f.Limit > 0 && len(out) > f.Limit {
		out = out[:f.Limit]
	}
	return out, err
}

// peek reads tasks. state is the state of all of them if the rows do not have it.
func peek(rows pgx.Rows, f *Filter, out []Task, state store.TaskState) ([]Task, error) {
	var ended []any
	var when time.Time
	if state != "" && state != store.TaskScheduled {
		ended = append(ended, &when)
	}
	scan := newTaskScan(ended...)
	return pgx.AppendRows(out, rows, func(r pgx.CollectableRow) (Task, error) {
		t, err := scan.row(r)
		if state != "" {
			t.State, t.Ended = state, when.UTC()
		}
		if state == store.TaskCompleted {
			t.Result, t.Payload = t.Payload, nil
		}
		f.Trim(&t)
		return t, err
	})
}
