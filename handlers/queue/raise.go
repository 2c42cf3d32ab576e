package queue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// raisedRanks bounds at how many priorities one statement looks.
const raisedRanks = 1000

// raiseTasks goes from priority to priority, the lowest first: whoever is late there is
// first among the tasks of that priority. It waits for nobody: who holds a task takes
// it, or changes it.
const raiseTasks = `
with recursive head as materialized (
	select rank from tasks where type = $1 and state = 0 order by rank, deadline, id limit 1
), ranks as (
	(select rank from tasks where type = $1 and state = 0 and rank > (select rank from head) order by rank desc limit 1)
	union all
	select n.rank from ranks r, lateral (
		select t.rank from tasks t where t.type = $1 and t.state = 0 and t.rank < r.rank and t.rank > (select rank from head)
		order by t.rank desc limit 1) n
), late as materialized (
	select l.id from (select rank from ranks limit $4) r, lateral (
		select t.id, t.deadline from tasks t
		where t.type = $1 and t.state = 0 and t.rank = r.rank and t.deadline <= now() - $2::bigint * interval '1 microsecond'
		order by t.deadline, t.id limit $3) l
	order by l.deadline, l.id limit $3
), held as materialized (
	select t.id from tasks t join late l on l.id = t.id where t.state = 0 order by t.id for update of t skip locked
)
update tasks t set rank = h.rank from head h where t.id in (select id from held) and t.rank > h.rank
returning t.rank, t.deadline`

// RaiseTasks implements [engine.TaskCare].
func (s *Store) RaiseTasks(ctx context.Context, taskType string, wait time.Duration, limit int) (n int, err error) {
	var first place
	err = s.send(ctx, func(b *pgx.Batch) {
		n = 0
		b.Queue(raiseTasks, taskType, wait.Microseconds(), limit, raisedRanks).Query(func(rows pgx.Rows) error {
			var at place
			_, err := pgx.ForEachRow(rows, []any{&at.rank, &at.at}, func() error {
				if n++; n == 1 {
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
	s.hintFrom(map[string]place{taskType: first}) // claims have begun behind it
	return n, nil
}
