package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"procaas/engine/store"

	"github.com/jackc/pgx/v5"
)

const (
	lockKeysOf = "select from task_keys where id = any($1::bigint[]) order by type || '', uid || '' for update"

	// Tasks that were set aside for their key come back when others of the key end.
	freeKeys = `
freed as (
	update tasks w set state = 0, listed = 0 where w.id = any (array (
		select f.id from (select type, key, count(*) as n from gone where key <> '' group by type, key) g,
			lateral (
				select id from tasks a where a.type = g.type and a.key = g.key and a.listed = 1
				order by a.rank, a.deadline, a.id limit g.n for update skip locked
			) f))
)`

	// Usually no task is refused, and the comparison of all refs is skipped.
	refused = `
select d.id, d.epoch from said d where (select count(*) from gone) < (select count(*) from said)
	and not exists (select from gone g where g.id = d.id and g.epoch = d.epoch)`

	// One walk through the index finds the tasks, and a hash table the refs. A join of rows takes
	// longer.
	endList = `
with gone as (
	delete from tasks t where t.id = any ($1::bigint[]) and t.state in (1, 2)
		and case when (t.id, t.epoch) in (select * from unnest($1::bigint[], $2::int[])) then true else false end` + endReturns

	// Ids that lie close together are one range of the index, from the first one on. The place of an
	// epoch says whose it is, which takes less time than a hash table. It is -1 for tasks of others.
	endRange = `
with gone as (
	delete from tasks t where t.id between $1::bigint and $1::bigint + (cardinality($2::int[]) - 1) and t.state in (1, 2)
		and t.epoch = ($2::int[])[t.id - $1::bigint + 1]` + endReturns + keepEnded + freeKeys + `
select $1::bigint + (d.place - 1), d.epoch from unnest($2::int[]) with ordinality as d (epoch, place)
where (select count(*) from gone) < $3::bigint and d.epoch >= 0
	and not exists (select from gone g where g.id = $1::bigint + (d.place - 1) and g.epoch = d.epoch)`

	endReturns = `
	returning t.id, t.due, t.deadline, t.begun, t.epoch, t.type, t.key, t.worker
), `

	keepEnded = `kept as (
	insert into task_history (id, due, deadline, begun, epoch, type, key, worker)
	select id, due, deadline, begun, epoch, type, key, worker from gone
), `

	keepResults = `kept as (
	insert into task_history (id, due, deadline, begun, epoch, type, key, worker, result)
	select g.id, g.due, g.deadline, g.begun, g.epoch, g.type, g.key, g.worker, d.result
	from gone g join unnest($1::bigint[], $3::bytea[]) as d (id, result) on d.id = g.id
), `

	lostOfList = freeKeys + `
select d.id, d.epoch from unnest($1::bigint[], $2::int[]) as d (id, epoch)
where (select count(*) from gone) < cardinality($1::bigint[]) and not exists (select from gone g where g.id = d.id and g.epoch = d.epoch)`

	buryTasks = `
with said as (select * from unnest($1::bigint[], $2::int[], $3::text[]) as d (id, epoch, error)),
gone as (
	delete from tasks t using said d where t.id = any (array[d.id]) and t.epoch = d.epoch and t.state in (1, 2)
	returning t.*, d.error as told
), kept as (
	insert into task_dead (id, created, due, tolerance, rank, epoch, failures, lost, timeout, slot, type, key, uid, worker, error, payload)
	select id, created, due, deadline - due, rank, epoch, failures + 1, lost, timeout, slot, type, key, uid, worker, told, payload from gone
), ` + freeKeys + refused

	returnTasks = `
with said as (
	select * from unnest($1::bigint[], $2::int[], $3::bigint[], $4::boolean[], $5::text[]) as d (id, epoch, delay, failed, error)
), gone as materialized (
	select t.id, t.epoch, t.type, t.key, d.delay, d.failed, d.error
	from said d join tasks t on t.id = any (array[d.id]) and t.epoch = d.epoch and t.state in (1, 2) order by d.id for update of t
), ready as (
	update tasks t set state = 0, listed = 0, until = null, worker = '', failures = t.failures + g.failed::int,
		error = case when g.failed then g.error else t.error end,
		due = case when g.failed then now() else t.due end,
		deadline = case when g.failed then now() + (t.deadline - t.due) else t.deadline end
	from gone g where t.id = any (array[g.id]) and g.delay <= 0
), moved as (
	delete from tasks t using gone g where t.id = any (array[g.id]) and g.delay > 0 returning t.*, g.delay, g.failed, g.error as told
), later as (
	insert into task_schedule (id, created, due, deadline, rank, epoch, failures, lost, timeout, slot, type, key, uid, error, payload)
	select id, created, now() + delay * interval '1 microsecond', now() + delay * interval '1 microsecond' + (deadline - due),
		rank, epoch, failures + failed::int, lost, timeout, slot, type, key, uid, case when failed then told else error end, payload
	from moved
), ` + freeKeys + refused

	// Tasks that follow ended ones begin, and the keys of the others become free. The statement
	// runs after those that end tasks, in the same transaction. A task that is in neither table has
	// ended. A task that was only returned is in one of them, and keeps its key.
	endKeys = `
with ended as materialized (
	select k.* from task_keys k
	where k.id = any($1::bigint[]) and not exists (select from tasks t where t.id = k.id offset 0)
		and not exists (select from task_schedule s where s.id = k.id offset 0)
), follow as materialized (
	select e.*, nextval('task_ids') as next_id from ended e where e.again
), added as (
	insert into tasks (id, deadline, rank, timeout, slot, type, key, uid, payload)
	select next_id, now() + next_tolerance, next_rank, next_timeout, next_slot, type, next_key, uid, next_payload
	from follow where next_due <= now()
), later as (
	insert into task_schedule (id, created, due, deadline, rank, epoch, failures, lost, timeout, slot, type, key, uid, error, payload)
	select next_id, now(), next_due, next_due + next_tolerance, next_rank, 0, 0, 0, next_timeout, next_slot, type, next_key, uid, '',
		next_payload
	from follow where next_due > now()
), kept as (
	update task_keys k set id = f.next_id, again = false, next_payload = '' from follow f where k.type = any (array[f.type])
	and k.uid = any (array[f.uid])
), freed as (
	delete from task_keys k using ended e where k.type = any (array[e.type]) and k.uid = any (array[e.uid]) and not e.again
)
select distinct type from follow`
)

// A reporting is a report in flight.
type reporting struct {
	lost  []Ref
	types []string // that have ready tasks now
}

func byID(a, b Ref) int { return cmp.Compare(a.ID, b.ID) }

// queue queues the statements of a report. Rows are changed in the order of their ids.
func (r *reporting) queue(b *pgx.Batch, report *Report) {
	if report.Len() == 0 {
		return
	}
	done := slices.SortedFunc(slices.Values(report.Completed), byID)
	var dead, back []Failure
	for _, f := range report.Failed {
		if f.Retry {
			back = append(back, f)
		} else {
			dead = append(dead, f)
		}
	}
	failed := len(back)
	for _, z := range report.Snoozed {
		back = append(back, Failure{TaskRef: z.TaskRef, Delay: z.Delay})
	}
	all := make([]int64, 0, report.Len())
	for _, ref := range done {
		all = append(all, ref.ID)
	}
	for _, f := range report.Failed {
		all = append(all, f.ID)
	}
	for _, z := range report.Snoozed { // a task that moves to the scheduled ones could not be found meanwhile
		all = append(all, z.ID)
	}
	if !report.Plain {
		b.Queue(lockKeysOf, all)
	}
	if len(done) > 0 {
		r.end(b, done, report.Results)
	}
	if len(dead) > 0 {
		r.bury(b, dead)
	}
	if len(back) > 0 {
		r.giveBack(b, back, failed)
	}
	if report.Plain {
		return
	}
	b.Queue(endKeys, all).Query(func(rows pgx.Rows) (err error) {
		r.types, err = pgx.AppendRows(r.types, rows, pgx.RowTo[string])
		return err
	})
}

// end completes tasks, which are in the order of their ids, and keeps them with their results or without.
func (r *reporting) end(b *pgx.Batch, done []Ref, results map[Ref]json.RawMessage) {
	if epochs := epochsFrom(done); epochs != nil && len(results) == 0 {
		b.Queue(endRange, done[0].ID, epochs, len(done)).Query(r.read)
		return
	}
	ids, epochs := columnsOf(done)
	if len(results) == 0 {
		b.Queue(endList+keepEnded+lostOfList, ids, epochs).Query(r.read)
		return
	}
	list := make([][]byte, len(done))
	for i, ref := range done {
		list[i] = results[ref]
	}
	b.Queue(endList+keepResults+lostOfList, ids, epochs, list).Query(r.read)
}

// rangeShare is how many ids a range may have for each task of a report, so that the report reads
// all of them.
const rangeShare = 2

// epochsFrom returns an epoch for each id from the first task to the last, and -1 between tasks. It
// returns nil if the ids lie too far apart, if two refs have one id, or if an epoch is none.
func epochsFrom(done []Ref) []int32 {
	first, last := done[0].ID, done[len(done)-1].ID
	if first < 0 || last-first >= rangeShare*int64(len(done)) {
		return nil
	}
	epochs := slices.Repeat([]int32{-1}, int(last-first)+1)
	for _, ref := range done {
		at := &epochs[ref.ID-first]
		if *at >= 0 || ref.Epoch < 0 {
			return nil
		}
		*at = int32(ref.Epoch)
	}
	return epochs
}

func columnsOf(refs []Ref) (ids []int64, epochs []int32) {
	for _, ref := range refs {
		ids, epochs = append(ids, ref.ID), append(epochs, int32(ref.Epoch))
	}
	return ids, epochs
}

func (r *reporting) read(rows pgx.Rows) (err error) {
	r.lost, err = pgx.AppendRows(r.lost, rows, pgx.RowToStructByPos[Ref])
	return err
}

func (r *reporting) bury(b *pgx.Batch, dead []Failure) {
	slices.SortFunc(dead, func(a, b Failure) int { return byID(a.TaskRef, b.TaskRef) })
	var (
		ids    []int64
		epochs []int32
		errs   []string
	)
	for _, f := range dead {
		ids, epochs, errs = append(ids, f.ID), append(epochs, int32(f.Epoch)), append(errs, store.CutTaskText(f.Error))
	}
	b.Queue(buryTasks, ids, epochs, errs).Query(r.read)
}

// giveBack returns tasks to the queue. The first failed ones of them have failed.
func (r *reporting) giveBack(b *pgx.Batch, back []Failure, failed int) {
	var (
		ids, delays []int64
		epochs      []int32
		fails       []bool
		errs        []string
	)
	for i, f := range back {
		ids, epochs, delays = append(ids, f.ID), append(epochs, int32(f.Epoch)), append(delays, f.Delay.Microseconds())
		fails, errs = append(fails, i < failed), append(errs, store.CutTaskText(f.Error))
	}
	b.Queue(returnTasks, ids, epochs, delays, fails, errs).Query(r.read)
}

const beatTasks = `
with said as (
	select * from unnest($1::bigint[], $2::int[], $3::boolean[], $4::bigint[]) as d (id, epoch, running, lease)
), held as materialized (
	select t.id, t.until as before, d.running, now() + d.lease * interval '1 microsecond' as until
	from said d join tasks t on t.id = any (array[d.id]) and t.epoch = d.epoch and t.state in (1, 2) order by d.id for update of t
), gone as (
	update tasks t set until = h.until, state = case when h.running then 2 else t.state end,
		listed = case t.listed when 0 then 3 else t.listed end
	from held h where t.id = any (array[h.id]) returning t.id, t.epoch
), sooner as (
	insert into task_leases (until, ids) select min(until), array_agg(id) from held where until < before having count(*) > 0
)` + refused

// BeatTasks implements [store.TaskWork].
func (s *Store) BeatTasks(ctx context.Context, beats []Beat) ([]Ref, error) {
	if len(beats) == 0 {
		return nil, nil
	}
	beats = slices.SortedFunc(slices.Values(beats), func(a, b Beat) int { return byID(a.TaskRef, b.TaskRef) })
	var (
		ids, leases []int64
		epochs      []int32
		running     []bool
	)
	for _, b := range beats {
		ids, epochs = append(ids, b.ID), append(epochs, int32(b.Epoch))
		running, leases = append(running, b.Running), append(leases, b.Lease.Microseconds())
	}
	var told *reporting
	err := s.send(ctx, func(b *pgx.Batch) {
		told = &reporting{}
		b.Queue(beatTasks, ids, epochs, running, leases).Query(told.read)
	})
	return told.lost, err
}
