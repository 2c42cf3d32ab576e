package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/pgkit"
	"procaas/engine/store"
)

// This file is the part of a queue whose database is a cell of an inbox. See [store.SharedTasks].

// Attach opens the queue in the database of a cell, as a part of the cell. After an error, both are closed.
func Attach(ctx context.Context, c *store.Cell, dsn string, o Options) error {
	s, err := Open(ctx, dsn, o)
	if err != nil {
		return errors.Join(err, c.Close())
	}
	conns := int(s.pool.Config().MaxConns)
	if conns < 2 {
		return errors.Join(errors.New("queue: pool_max_conns is 1, want 2 or more in an inbox of several databases"), s.Close(), c.Close())
	}
	runs := c.Close
	c.Tasks, c.Shared = s.Tasks(), &sharedTasks{Store: s, holding: make(chan struct{}, conns/2)}
	c.Close = func() error { return errors.Join(s.Close(), runs()) }
	return nil
}

// sharedTasks implements [store.SharedTasks].
type sharedTasks struct {
	*Store
	holding chan struct{} // has a place for each call of HoldTypes that may use a connection
}

// chartSlot returns the number of a task slot in the map of the inbox.
func chartSlot(slot int) int { return store.InboxSlots + slot }

// A database that is not a cell has all slots. The transaction reads this, because the database may
// have become a cell since it was opened.
const (
	lockOpenSlots = pgkit.LockSlots + " from inbox_cell"
	readElsewhere = `select w.slot from unnest($1::int[]) as w (slot) where exists (select from inbox_cell)
	and not exists (select from inbox_slots s where s.slot = w.slot and s.state = 'open')`
)

// elsewhere returns the slots of unique names that are not open here. It keeps the others open
// until the end of the transaction.
func (p *putting) elsewhere(b *pgx.Batch) map[int]bool {
	out := map[int]bool{}
	wanted := make([]int32, len(p.unique))
	for n, i := range p.unique {
		wanted[n] = int32(chartSlot(p.specs[i].Slot()))
	}
	b.Queue(lockOpenSlots)
	b.Queue(readElsewhere, wanted).Query(func(rows pgx.Rows) error {
		slot := 0
		_, err := pgx.ForEachRow(rows, []any{&slot}, func() error { out[slot] = true; return nil })
		return err
	})
	return out
}

// frozenSlots are the slots of tasks that are leaving. Claims that count by key skip their tasks,
// but read no more of them than this.
const (
	frozenSlots = "select m.slot - 4096 as slot from inbox_slots m where m.slot >= 4096 and m.state = 'frozen'"
	lookPast    = "1000"
)

const firstTasks = `
with frozen as materialized (` + frozenSlots + `)
select r.type, - r.rank, r.deadline
from unnest($1::text[], $2::bigint[], $4::int[], $5::timestamptz[], $6::bool[]) as w (type, lim, rank, since, keyed),
	lateral (
		select f.* from (
			select t.type, t.rank, t.deadline, t.id, t.slot from tasks t
			where t.type = w.type and t.listed = 0 and t.state = 0 and (t.rank, t.deadline) >= (w.rank, w.since)
			order by t.rank, t.deadline, t.id
			limit w.lim + case when w.keyed and exists (select from frozen) then ` + lookPast + ` else 0 end) f
		where not w.keyed or f.slot <> all (array(select slot from frozen)) order by f.rank, f.deadline, f.id limit w.lim) r
where not exists (select from task_types m where m.type = w.type and m.mode = 'paused')
order by r.rank, r.deadline, r.id limit $3`

// FirstTasks implements [store.SharedTasks].
func (s *sharedTasks) FirstTasks(ctx context.Context, types []Want, limit int) (out []store.TaskPlace, err error) {
	var (
		names  []string
		limits []int64
		ranks  []int32
		since  []time.Time
		keyed  []bool
	)
	for _, w := range types {
		if w.Limit > 0 {
			from := s.horizon.peek(w.Type)
			names, limits = append(names, w.Type), append(limits, int64(w.Limit))
			ranks, since = append(ranks, int32(from.rank)), append(since, from.at)
			keyed = append(keyed, w.MaxPerKey > 0)
		}
	}
	err = s.send(ctx, func(b *pgx.Batch) {
		b.Queue(firstTasks, names, limits, limit, ranks, since, keyed).Query(func(rows pgx.Rows) (err error) {
			out, err = pgx.CollectRows(rows, pgx.RowToStructByPos[store.TaskPlace])
			return err
		})
	})
	return out, err
}

const takenTasks = "select type, count(*) from tasks where listed = 2 and type = any ($1::text[]) group by type"

// TakenTasks implements [store.SharedTasks].
func (s *sharedTasks) TakenTasks(ctx context.Context, types []string) (map[string]int, error) {
	taken := map[string]int{}
	err := s.send(ctx, func(b *pgx.Batch) {
		b.Queue(takenTasks, types).Query(func(rows pgx.Rows) error {
			kind, n := "", 0
			_, err := pgx.ForEachRow(rows, []any{&kind, &n}, func() error { taken[kind] = n; return nil })
			return err
		})
	})
	return taken, err
}

const (
	holdTypes = `
select pg_advisory_xact_lock(('task_types'::regclass::oid::bigint - 2147483648)::int, hashtext(w.type))
from (select type from unnest($1::text[]) as u (type) order by hashtext(type)) w`
	// The server must not end the transaction that holds the locks while the cells are asked.
	holdWhileIdle = "select set_config('idle_in_transaction_session_timeout', '" + statementTimeout + "', true)"
)

// HoldTypes implements [store.SharedTasks]. The locks keep a connection while do needs others of the
// same pool. So only half of the pool's connections may keep locks, or wait for them: if all did,
// none of the calls could go on.
func (s *sharedTasks) HoldTypes(ctx context.Context, types []string, do func() error) error {
	select {
	case s.holding <- struct{}{}:
		defer func() { <-s.holding }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var locks pgx.Tx
	err := s.again(ctx, func() (err error) { // a wait for a lock may take too long
		if locks, err = s.pool.Begin(ctx); err != nil {
			return err
		}
		if s.pooled {
			_, err = locks.Exec(ctx, settings, true)
		}
		if err == nil {
			_, err = locks.Exec(ctx, holdWhileIdle)
		}
		if err == nil {
			_, err = locks.Exec(ctx, holdTypes, types)
		}
		if err != nil {
			_ = locks.Rollback(ctx)
		}
		return err
	})
	if err != nil {
		return err
	}
	defer func() { _ = locks.Rollback(context.WithoutCancel(ctx)) }() // it wrote nothing
	return do()
}

// These bound a parcel, except for taken tasks: all of those move at once, because taken tasks per
// key are counted where they are. Claims wait for the first parcel.
const (
	parcelTasks = 1000
	parcelFirst = 100
	parcelBytes = 4 << 20
	soughtTasks = 200_000 // at once
)

const (
	seekTasks = planned + `
select id, size from (
	select id, octet_length(payload) as size, 0 as turn, rank, deadline from tasks where until is null and slot = any ($1::smallint[])
	union all
	select id, octet_length(payload), 1, rank, due from task_schedule where slot = any ($1::smallint[])
	union all
	select id, octet_length(payload), 2, 0, now() from task_dead where slot = any ($1::smallint[])) f
order by turn, rank, deadline, id limit $2`

	findTaken = "select t.id from " + taken + " where t.slot = any ($1::smallint[])"

	// If a task moves between tables meanwhile, it keeps its unique name.
	packTasks = `
with here as materialized (select count(*) = cardinality($4::int[]) as frozen from inbox_slots
	where move = $3 and state = 'frozen' and slot = any ($4::int[])),
t as (delete from tasks where id = any ($1::bigint[]) and (select frozen from here) returning *),
s as (delete from task_schedule where id = any ($1::bigint[]) and (select frozen from here) returning *),
d as (delete from task_dead where id = any ($1::bigint[]) and (select frozen from here) returning *),
k as (delete from task_keys where id in (select id from t union all select id from s) returning *)
insert into task_parcels (target, rows) select $2, json_build_object('tasks', coalesce((select json_agg(t) from t), '[]'),
	'schedule', coalesce((select json_agg(s) from s), '[]'), 'dead', coalesce((select json_agg(d) from d), '[]'),
	'keys', coalesce((select json_agg(k) from k), '[]')) where (select frozen from here) returning id, target, rows`
)

// here converts slots of the map to task slots.
func here(slots []int) []int16 {
	out := make([]int16, len(slots))
	for i, slot := range slots {
		out[i] = int16(slot - store.InboxSlots)
	}
	return out
}

// SeekTasks implements [store.SharedTasks].
func (s *sharedTasks) SeekTasks(ctx context.Context, slots []int) (parcels [][]int64, err error) {
	err = s.freely(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, seekTasks, here(slots), soughtTasks)
		if err != nil {
			return err
		}
		parcels = nil
		id, size := int64(0), 0
		sum, most := 0, 0
		_, err = pgx.ForEachRow(rows, []any{&id, &size}, func() error {
			last := len(parcels) - 1
			sum += size
			if last < 0 || len(parcels[last]) == most || sum > parcelBytes {
				parcels = append(parcels, nil)
				last = last + 1
				sum = size
				most = parcelTasks
				if last == 0 {
					most = parcelFirst
				}
			}
			parcels[last] = append(parcels[last], id)
			return nil
		})
		return err
	})
	return parcels, err
}

// PackTasks implements [store.SharedTasks]. Claims by key wait for the first parcel, so it takes as few round trips as it can.
func (s *sharedTasks) PackTasks(
	ctx context.Context, move, target string, slots []int, ids []int64, taken bool,
) (p store.TaskParcel, err error) {
	if taken { // nobody takes one of a frozen slot, if the tasks of its key are counted
		rows, err := s.pool.Query(ctx, findTaken, here(slots))
		if err != nil {
			return p, err
		}
		held, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return p, err
		}
		ids = append(held, ids...)
	}
	if len(ids) == 0 {
		return p, nil
	}
	err = s.send(ctx, func(b *pgx.Batch) {
		b.Queue(pgkit.LockSlots)
		b.Queue(lockKeysOf, ids)
		b.Queue(packTasks, ids, target, move, slots).QueryRow(func(row pgx.Row) error { return row.Scan(&p.ID, &p.Target, &p.Rows) })
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("move %s has not frozen the slots: %w", move, store.ErrConflict)
	}
	return p, err
}

// Parcels implements [store.SharedTasks].
func (s *sharedTasks) Parcels(ctx context.Context) ([]store.TaskParcel, error) {
	rows, err := s.pool.Query(ctx, "select id, target, rows from task_parcels order by number limit 8")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[store.TaskParcel])
}

// ForgetParcel implements [store.SharedTasks].
func (s *sharedTasks) ForgetParcel(ctx context.Context, id string) error {
	_, err := s.pool.Exec(ctx, "delete from task_parcels where id = $1", id)
	return err
}

// The parcel is noted first. If it was here before, there is nothing to take in.
const unpackTasks = `
with n as (insert into task_received (id) values ($1) on conflict do nothing returning id),
p as materialized (select $2::json as rows from n),
t as (insert into tasks select r.* from p, json_populate_recordset(null::tasks, p.rows->'tasks') r returning type, id, until),
l as (insert into task_leases (until, ids) select min(until), array_agg(id) from t where until is not null having count(*) > 0),
s as (insert into task_schedule select r.* from p, json_populate_recordset(null::task_schedule, p.rows->'schedule') r returning type),
d as (insert into task_dead select r.* from p, json_populate_recordset(null::task_dead, p.rows->'dead') r returning type),
k as (insert into task_keys select r.* from p, json_populate_recordset(null::task_keys, p.rows->'keys') r on conflict do nothing)
select distinct type from t`

// UnpackTasks implements [store.SharedTasks].
func (s *sharedTasks) UnpackTasks(ctx context.Context, p store.TaskParcel) error {
	var types []string
	err := s.send(ctx, func(b *pgx.Batch) {
		b.Queue(unpackTasks, p.ID, p.Rows).Query(func(rows pgx.Rows) (err error) {
			types, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
	})
	s.hint(types...)
	return err
}
