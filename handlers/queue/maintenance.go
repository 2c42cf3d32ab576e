package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/pgkit"
	"procaas/engine/store"
)

const (
	promoteTasks = `
with moved as (
	delete from task_schedule where id = any(array(
		select id from task_schedule where due <= now() order by due, id limit $1 for update skip locked))
	returning *
), added as (
	insert into tasks (id, created, due, deadline, rank, epoch, failures, lost, timeout, slot, type, key, uid, error, payload)
	select id, created, due, deadline, rank, epoch, failures, lost, timeout, slot, type, key, uid, error, payload from moved
)
select type, count(*) from moved group by type`

	// A key may have room without notice, if its last task ended while another one was being set
	// aside.
	freeWaiting = `
with freed as (
	update tasks w set state = 0, listed = 0 where w.id = any(array(
		select a.id from (
			select distinct on (w.type, w.key) w.id from tasks w
			where w.listed = 1 and not exists (select from tasks h where h.type = w.type and h.key = w.key and h.listed = 2)
			order by w.type, w.key, w.rank, w.deadline, w.id limit $1) f
		join tasks a on a.id = any (array[f.id]) and a.listed = 1 order by f.id for update of a skip locked))
	returning w.type
)
select distinct type from freed`

	findNext = "select (extract(epoch from due - clock_timestamp()) * 1000000)::bigint from task_schedule order by due, id limit 1"
)

// PromoteTasks implements [store.TaskMaintenance].
func (s *Store) PromoteTasks(ctx context.Context, limit int) (int, time.Duration, error) {
	var (
		types []string
		n     int
		next  time.Duration
	)
	err := s.send(ctx, func(b *pgx.Batch) {
		types, n, next = nil, 0, 0
		b.Queue(promoteTasks, limit).Query(addUp(&types, &n))
		b.Queue(freeWaiting, limit).Query(func(rows pgx.Rows) (err error) {
			types, err = pgx.AppendRows(types, rows, pgx.RowTo[string])
			return err
		})
		b.Queue(findNext).Query(func(rows pgx.Rows) error {
			micros, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			for _, m := range micros {
				next = max(time.Microsecond, time.Duration(m)*time.Microsecond)
			}
			return err
		})
	})
	if err != nil {
		return 0, 0, err
	}
	s.hint(types...)
	return n, next, nil
}

// addUp returns a callback that reads numbers of tasks by type: it appends the types, and adds up
// the numbers.
func addUp(types *[]string, n *int) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		kind, some := "", 0
		_, err := pgx.ForEachRow(rows, []any{&kind, &some}, func() error {
			*types, *n = append(*types, kind), *n+some
			return nil
		})
		return err
	}
}

const (
	// Tasks that must wait for a while go to the table of scheduled tasks.
	reclaimTasks = `
with said as (select * from unnest($1::bigint[], $2::int[], $3::bigint[]) as d (id, epoch, delay)),
given as materialized (
	select t.id, t.type, t.state, d.delay from said d join tasks t on t.id = any (array[d.id]) and t.epoch = d.epoch
	where t.state in (1, 2) and t.until < now() order by d.id for update of t skip locked
), freed as (
	update tasks t set state = 0, listed = 0, until = null, lost = t.lost + (t.state = 2)::int,
		error = case when t.state = 2 then format('worker %s was not heard of', t.worker) else t.error end, worker = ''
	from given g where t.id = any (array[g.id]) and g.delay = 0
), moved as (
	delete from tasks t using given g where t.id = any (array[g.id]) and g.delay > 0
	returning t.*, now() + g.delay * interval '1 microsecond' as again
), later as (
	insert into task_schedule (id, created, due, deadline, rank, epoch, failures, lost, timeout, slot, type, key, uid, error, payload)
	select id, created, again, again + (deadline - due), rank, epoch, failures, lost + (state = 2)::int, timeout, slot, type, key, uid,
		format('worker %s was not heard of', worker), payload
	from moved
)
select type, count(*) from given group by type`
)

// takeBack frees tasks, unless their workers are back or another process does so.
func (s *Store) takeBack(ctx context.Context, late *lateTasks) (n int, err error) {
	if len(late.ids) == 0 {
		return 0, nil
	}
	var types []string
	err = s.send(ctx, func(b *pgx.Batch) {
		types, n = nil, 0
		b.Queue(lockKeysOf, late.ids) // as for every move of a task between tables
		b.Queue(reclaimTasks, late.ids, late.epochs, late.delays).Query(addUp(&types, &n))
	})
	if err != nil {
		return 0, err
	}
	s.hint(types...)
	return n, nil
}

// These bound a clean-up. Dead letters are deleted by the thousand.
const expireAtOnce = 1000

const (
	findHistory = `
select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = 'task_history'::regclass and c.relname ~ '^task_history_\d{8}$' order by 1`

	expireRest = "delete from task_history_rest where ended < now() - $1::bigint * interval '1 microsecond'"

	expireDead = `
delete from task_dead where id = any(array(
	select id from task_dead where ended < now() - $1::bigint * interval '1 microsecond' order by id limit $2 for update skip locked))`

	expireFacts = `
delete from task_facts where coalesce(greatest(asked, raised_at), '-infinity') < now() - $1::bigint * interval '1 microsecond'`

	databaseTime = "select now()"
)

// ExpireTasks implements [store.TaskMaintenance]. It drops whole days of the history. An error in
// one step does not prevent the others. It also creates the partitions of the next days, because
// tasks that end on a day without one must be deleted one by one.
func (s *Store) ExpireTasks(ctx context.Context, ended, failed time.Duration) (int, error) {
	var now time.Time
	if err := s.pool.QueryRow(ctx, databaseTime).Scan(&now); err != nil {
		return 0, err
	}
	made := s.makePartitions(ctx)
	gone, err := s.dropPartitions(ctx, now.Add(-ended))
	err = errors.Join(made, err)
	if _, other := s.pool.Exec(ctx, expireFacts, store.TaskFactsKept.Microseconds()); other != nil {
		err = errors.Join(err, other)
	}
	tag, other := s.pool.Exec(ctx, expireRest, ended.Microseconds())
	gone, err = gone+int(tag.RowsAffected()), errors.Join(err, other)
	for failed > 0 {
		tag, other := s.pool.Exec(ctx, expireDead, failed.Microseconds(), expireAtOnce)
		gone, err = gone+int(tag.RowsAffected()), errors.Join(err, other)
		if other != nil || tag.RowsAffected() < expireAtOnce {
			break
		}
	}
	return gone, err
}

// dropPartitions drops those that end before a time, and returns roughly how many tasks they had.
func (s *Store) dropPartitions(ctx context.Context, before time.Time) (int, error) {
	rows, err := s.pool.Query(ctx, findHistory)
	if err != nil {
		return 0, err
	}
	var names []string
	var name string
	if _, err := pgx.ForEachRow(rows, []any{&name}, func() error {
		day, err := time.Parse("20060102", strings.TrimPrefix(name, "task_history_"))
		if err == nil && !day.AddDate(0, 0, 1).After(before) {
			names = append(names, name)
		}
		return nil
	}); err != nil {
		return 0, err
	}
	gone := 0
	for _, name := range names {
		n, err := s.dropPartition(ctx, pgx.Identifier{name}.Sanitize())
		gone += n
		if err != nil {
			return gone, fmt.Errorf("drop %s: %w", name, err)
		}
	}
	return gone, nil
}

const (
	// A transaction that waits for this lock blocks all later ones, and so every completion of a
	// task. So it gives up soon, in favor of readers and copies of the history.
	shortLocks = "set local lock_timeout = '200ms'"

	// A day may have so many tasks that counting them exceeds the statement timeout.
	sizePartition = `
select pg_relation_size(c.oid) / current_setting('block_size')::bigint, greatest(c.reltuples, 0)::bigint
from pg_class c where c.oid = to_regclass($1)`
)

// dropPartition drops a partition, unless another process has, and returns how many tasks it had.
// For a large one it returns the server's estimate.
func (s *Store) dropPartition(ctx context.Context, table string) (n int, err error) {
	err = s.tx(ctx, func(tx pgx.Tx) error {
		var pages int64
		err := tx.QueryRow(ctx, sizePartition, table).Scan(&pages, &n)
		if errors.Is(err, pgx.ErrNoRows) {
			n = 0
			return nil
		}
		if err == nil {
			_, err = tx.Exec(ctx, shortLocks)
		}
		if err == nil && pages <= countedPages {
			err = tx.QueryRow(ctx, "select count(*) from "+table).Scan(&n)
		}
		if err == nil {
			_, err = tx.Exec(ctx, "drop table if exists "+table)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

const vacuumTime = "select set_config('statement_timeout', $1, false)"

// vacuumed are the tables whose rows change all the time.
var vacuumed = []string{"tasks", "task_leases", "task_schedule", "task_keys"}

// VacuumTasks implements [store.TaskMaintenance]. The server also vacuums on its own. This is for
// vacuuming more often. It also creates the partitions of the next days.
func (s *Store) VacuumTasks(ctx context.Context) error {
	if err := s.makePartitions(ctx); err != nil {
		return err
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if !s.pooled { // it may take minutes, and blocks nothing
		if _, err := conn.Exec(ctx, vacuumTime, "0"); err != nil {
			return err
		}
		defer func() { _, _ = conn.Exec(context.WithoutCancel(ctx), vacuumTime, statementTimeout) }()
	}
	for _, table := range vacuumed {
		if _, err := conn.Exec(ctx, "vacuum (analyze, skip_locked) "+table); err != nil {
			return fmt.Errorf("vacuum %s: %w", table, err)
		}
	}
	return nil
}

const (
	historyDays    pgkit.Days = "task_history"
	lockPartitions            = "select pg_advisory_xact_lock(('task_history'::regclass::oid::bigint - 2147483648)::int, 0)"
)

// makePartitions creates the history's partitions of the coming days.
func (s *Store) makePartitions(ctx context.Context) error {
	return historyDays.Ahead(ctx, s.pool, func(day time.Time) error {
		return s.tx(ctx, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, lockPartitions); err != nil {
				return err
			}
			return historyDays.Make(ctx, tx, day)
		})
	})
}
