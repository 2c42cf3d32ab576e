package queue

import (
	"context"

	"github.com/jackc/pgx/v5"

	"procaas/engine/store"
)

const (
	countKey = planned + `
select
	(select count(*) from tasks t where t.type = any($1) and t.key = $2 and t.state in (1, 2)),
	(select count(*) from tasks t where t.type = any($1) and t.key = $2 and t.state in (0, 3))
		+ (select count(*) from task_schedule t where t.type = any($1) and t.key = $2)
		+ (select count(*) from task_keys k where k.type = any($1) and k.next_key = $2 and k.again)
		+ (select count(*) from enqueued e where e.type = any($1) and e.key = $2),
	(select count(*) from task_dead t where t.type = any($1) and t.key = $2),
	(select count(*) from task_history t where t.type = any($1) and t.key = $2)`

	eraseEnqueued = planned + "delete from enqueued where type = any($1) and key = $2"

	eraseDead = planned + "delete from task_dead where type = any($1) and key = $2"
	eraseNext = planned + `update task_keys set again = false, next_key = '', next_payload = ''
where type = any($1) and next_key = $2`
	partsOfHistory = `
select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = 'task_history'::regclass order by 1`
	eraseEnded = " where type = any($1) and key = $2"
	noTimeout  = "set local statement_timeout = 0" // the history of a day has no index by key, and is read whole
)

// KeyTasks implements [store.TaskEraser].
func (s *Store) KeyTasks(ctx context.Context, types []string, key string) (d store.TaskData, err error) {
	err = s.atOnce(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, noTimeout); err != nil {
			return err
		}
		return tx.QueryRow(ctx, countKey, types, key).Scan(&d.Held, &d.Waiting, &d.Dead, &d.Ended)
	})
	return d, err
}

// EraseTasks implements [store.TaskEraser]. A cancelled task is in the history, so that goes last.
func (s *Store) EraseTasks(ctx context.Context, types []string, key string, waiting bool) (gone store.TaskData, err error) {
	for _, t := range types {
		if !waiting {
			break
		}
		n, err := s.CancelTasks(ctx, Filter{Type: t, Key: key})
		gone.Waiting += n
		if err != nil {
			return gone, err
		}
	}
	remove := func(n *int, sql string) error {
		return s.freely(ctx, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, noTimeout); err != nil {
				return err
			}
			tag, err := tx.Exec(ctx, sql, types, key)
			*n = int(tag.RowsAffected())
			return err
		})
	}
	enqueued := 0
	if waiting {
		if err := remove(&enqueued, eraseEnqueued); err != nil {
			return gone, err
		}
		if err := remove(new(int), eraseNext); err != nil {
			return gone, err
		}
	}
	if err := remove(&gone.Dead, eraseDead); err != nil {
		return gone, err
	}
	rows, err := s.pool.Query(ctx, partsOfHistory)
	if err != nil {
		return gone, err
	}
	parts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return gone, err
	}
	for _, part := range parts {
		var n int
		if err := remove(&n, planned+"delete from "+pgx.Identifier{part}.Sanitize()+eraseEnded); err != nil {
			return gone, err
		}
		gone.Ended += n
	}
	gone.Ended -= min(gone.Ended, gone.Waiting) // those were cancelled just now
	gone.Waiting += enqueued
	return gone, nil
}
