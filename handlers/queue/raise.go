package queue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// raisedRanks bounds the priorities that one statement looks at.
const raisedRanks = 1000

// raiseTasks goes from priority to priority, lowest first. The late tasks of a priority are the
// first of its tasks. It waits for no lock: a locked task is being taken or changed. Tasks that
// were set aside for their keys are read in the same way by their own index. The first task of all
// sets the new priority for both, because among the tasks of a key the first one comes back first.
const raiseTasks = `
with recursive head as materialized (
	select least(min(rank), $5::int) as rank from (
		(select rank from tasks where type = $1 and listed = 0 and state = 0 order by rank, deadline, id limit 1)
		union all
		(select rank from tasks where type = $1 and listed = 1 order by rank, deadline, id limit 1)) f
), ranks as (
	(select rank from tasks where type = $1 and listed = 0 and state = 0 and rank > (select rank from head) order by rank desc limit 1)
	union all
	select n.rank from ranks r, lateral (
		select t.rank from tasks t where t.type = $1 and t.listed = 0 and t.state = 0 and t.rank < r.rank and t.rank > (select rank from head)
		order by t.rank desc limit 1) n
), aside as (
	(select rank from tasks where type = $1 and listed = 1 and rank > (select rank from head) order by rank desc limit 1)
	union all
	select n.rank from aside r, lateral (
		select t.rank from tasks t where t.type = $1 and t.listed = 1 and t.rank < r.rank and t.rank > (select rank from head)
		order by t.rank desc limit 1) n
), late as materialized (
	select f.id from (
		select l.id, l.deadline from (select rank from ranks limit $4) r, lateral (
			select t.id, t.deadline from tasks t
			where t.type = $1 and t.listed = 0 and t.state = 0 and t.rank = r.rank and t.deadline <= now() - $2::bigint * interval '1 microsecond'
			order by t.deadline, t.id limit $3) l
		union all
		select l.id, l.deadline from (select rank from aside limit $4) r, lateral (
			select t.id, t.deadline from tasks t
			where t.type = $1 and t.listed = 1 and t.rank = r.rank and t.deadline <= now() - $2::bigint * interval '1 microsecond'
			order by t.deadline, t.id limit $3) l) f
	order by f.deadline, f.id limit $3
), held as materialized (
	select t.id from tasks t join late l on t.id = any (array[l.id]) where t.state in (0, 3) order by l.id for update of t skip locked
), raised as (
	update tasks t set rank = h.rank from head h where t.id = any (array (select id from held)) and t.rank > h.rank
	returning t.rank, t.deadline
), counted as (
	insert into task_facts as f (type, raised, raised_at) select $1, count(*), now() from raised having count(*) > 0
	on conflict (type) do update set raised = f.raised + excluded.raised, raised_at = excluded.raised_at
)
select rank, deadline from raised`

// RaiseTasks implements [store.TaskMaintenance].
func (s *Store) RaiseTasks(ctx context.Context, taskType string, wait time.Duration, limit int) (int, error) {
	return s.raise(ctx, taskType, wait, limit, nil)
}

// RaiseTasksTo implements [store.SharedTasks].
func (s *Store) RaiseTasksTo(ctx context.Context, taskType string, wait time.Duration, limit, priority int) (int, error) {
	rank := int32(-priority)
	return s.raise(ctx, taskType, wait, limit, &rank)
}

// raise raises tasks to the first rank, or to a given rank before it.
func (s *Store) raise(ctx context.Context, taskType string, wait time.Duration, limit int, before *int32) (n int, err error) {
	var first place
	err = s.send(ctx, func(b *pgx.Batch) {
		n = 0
		b.Queue(raiseTasks, taskType, wait.Microseconds(), limit, raisedRanks, before).Query(func(rows pgx.Rows) error {
			var at place
			_, err := pgx.ForEachRow(rows, []any{&at.rank, &at.at}, func() error {
				n++
				if n == 1 {
					first = at
				}
				first = earlier(first, at)
				return nil
			})
			return err
		})
	})
	if err != nil || n == 0 {
		return 0, err
	}
	s.hintFrom(map[string]place{taskType: first}) // claims may have begun behind it
	return n, nil
}
