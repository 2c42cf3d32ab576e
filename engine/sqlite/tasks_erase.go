package sqlite

import (
	"context"

	"procaas/engine/store"
)

const (
	countKeyTasks = `select
	(select count(*) from tasks where type = ?1 and key = ?2 and place in ('starting', 'running')),
	(select count(*) from tasks where type = ?1 and key = ?2 and place in ('ready', 'waiting', 'scheduled'))
		+ (select count(*) from task_keys where type = ?1 and next_key = ?2 and again),
	(select count(*) from tasks where type = ?1 and key = ?2 and place = 'dead'),
	(select count(*) from task_history where type = ?1 and key = ?2)`
	eraseNext  = "update task_keys set again = 0, next_key = '', next_payload = x'' where type = ? and next_key = ?"
	eraseDead  = "delete from tasks where type = ? and key = ? and place = 'dead'"
	eraseTasks = "delete from task_history where type = ? and key = ?"
)

// KeyTasks implements [store.TaskEraser].
func (s *Store) KeyTasks(ctx context.Context, types []string, key string) (all store.TaskData, err error) {
	for _, kind := range types {
		var d store.TaskData
		if err := s.read.QueryRowContext(ctx, countKeyTasks, kind, key).Scan(&d.Held, &d.Waiting, &d.Dead, &d.Ended); err != nil {
			return all, err
		}
		all.Add(d)
	}
	return all, nil
}

// EraseTasks implements [store.TaskEraser]. A cancelled task is in the history, so that goes last.
func (s *Store) EraseTasks(ctx context.Context, types []string, key string, waiting bool) (all store.TaskData, err error) {
	for _, kind := range types {
		var gone store.TaskData
		if waiting {
			if gone.Waiting, err = s.CancelTasks(ctx, store.TaskFilter{Type: kind, Key: key}); err != nil {
				return all, err
			}
		}
		err := s.writer.do(ctx, func(t *tx) error {
			if waiting {
				if err := t.exec(eraseNext, kind, key); err != nil {
					return err
				}
			}
			dead, err := t.count(eraseDead, kind, key)
			if err != nil {
				return err
			}
			ended, err := t.count(eraseTasks, kind, key)
			gone.Dead, gone.Ended = int(dead), int(ended)-min(int(ended), gone.Waiting) // those were cancelled just now
			return err
		})
		all.Add(gone)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}
