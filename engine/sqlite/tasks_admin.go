package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"procaas/engine/guard"
	"procaas/engine/store"
)

const (
	dueTasks    = "select id, type from tasks where place = 'scheduled' and due <= ? order by due, id limit ?"
	promoteTask = "update tasks set place = 'ready' where id = ?"
	nextDue     = "select due from tasks where place = 'scheduled' order by due, id limit 1"
)

// PromoteTasks implements [store.TaskMaintenance].
func (s *Store) PromoteTasks(ctx context.Context, limit int) (n int, next time.Duration, err error) {
	var types []string
	err = s.writer.do(ctx, func(t *tx) error {
		found, err := rows(t, dueTasks, []any{t.now.UnixMicro(), limit}, scanNamed)
		if err != nil {
			return err
		}
		types, next = nil, 0
		for _, one := range found {
			if err := t.exec(promoteTask, one.id); err != nil {
				return err
			}
			types = append(types, one.kind)
		}
		n = len(found)
		var due int64
		if some, err := t.row(nextDue, nil, &due); err != nil || !some {
			return err
		}
		next = max(time.Microsecond, taskTime(due).Sub(t.now))
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	s.hintTasks(types...)
	return n, next, nil
}

const (
	firstRank = "select rank from tasks where type = ? and place = 'ready' order by rank, deadline, id limit 1"
	// Ranks are found one at a time, lowest priority first.
	raiseTasks = `
with recursive ranks (rank) as (
	select max(rank) from tasks where type = ?1 and place = 'ready'
	union all
	select (select max(t.rank) from tasks t where t.type = ?1 and t.place = 'ready' and t.rank < r.rank) from ranks r where r.rank > ?2
	limit 1000
)
update tasks set rank = ?2 where id in (
	select t.id from ranks r cross join tasks t on t.type = ?1 and t.place = 'ready' and t.rank = r.rank and t.deadline <= ?3
	where r.rank > ?2 order by t.deadline, t.id limit ?4)
returning id`
)

// RaiseTasks implements [store.TaskMaintenance].
func (s *Store) RaiseTasks(ctx context.Context, taskType string, wait time.Duration, limit int) (n int, err error) {
	err = s.writer.do(ctx, func(t *tx) error {
		n = 0
		var first int
		if some, err := t.row(firstRank, []any{taskType}, &first); err != nil || !some {
			return err
		}
		raised, err := rows(t, raiseTasks, []any{taskType, first, t.now.Add(-wait).UnixMicro(), limit}, func(r *sql.Rows) (id int64, err error) {
			return id, r.Scan(&id)
		})
		n = len(raised)
		if err != nil || n == 0 {
			return err
		}
		return t.exec(noteRaised, taskType, n, t.now.UnixMicro())
	})
	if err != nil || n == 0 {
		return 0, err
	}
	s.hintTasks(taskType)
	return n, nil
}

// A namedTask is a task with its type.
type namedTask struct {
	id   int64
	kind string
}

func scanNamed(r *sql.Rows) (namedTask, error) {
	var one namedTask
	err := r.Scan(&one.id, &one.kind)
	return one, err
}

const (
	lateTasks   = "select " + taskColumns + " from tasks where place in ('starting', 'running') and until < ? order by id limit ?"
	reclaimTask = "update tasks set place = ?, due = ?, deadline = ?, until = 0, worker = '', lost = lost + ?, error = ? where id = ?"
)

// ReclaimTasks implements [store.TaskMaintenance].
func (s *Store) ReclaimTasks(ctx context.Context, limit, maxLost int) (n int, err error) {
	var types []string
	err = s.writer.do(ctx, func(t *tx) error {
		found, err := rows(t, lateTasks, []any{t.now.UnixMicro(), limit}, scanTask)
		if err != nil {
			return err
		}
		types = nil
		for i := range found {
			if err := reclaim(t, &found[i], maxLost); err != nil {
				return err
			}
			types = append(types, found[i].Type)
		}
		n = len(found)
		return nil
	})
	if err != nil {
		return 0, err
	}
	s.hintTasks(types...)
	return n, nil
}

func reclaim(t *tx, one *store.QueuedTask, maxLost int) error {
	switch {
	case one.State == store.TaskStarting:
		return t.exec(reclaimTask, placeReady, one.Due.UnixMicro(), one.Deadline.UnixMicro(), 0, one.Error, one.ID)
	case one.Lost < maxLost:
		place, due := placeReady, one.Due
		if delay := guard.SuspectDelay(one.Lost, maxLost); delay > 0 {
			place, due = placeLater, t.now.Add(delay)
		}
		return t.exec(reclaimTask, place, due.UnixMicro(), due.Add(one.Deadline.Sub(one.Due)).UnixMicro(), 1,
			fmt.Sprintf("worker %s was not heard of", one.Worker), one.ID)
	}
	why := fmt.Sprintf("its worker was not heard of %d times; the last was %s", one.Lost+1, one.Worker)
	if err := t.exec(buryTask, t.now.UnixMicro(), why, one.ID); err != nil {
		return err
	}
	_, err := closeTask(t, one)
	return err
}

const (
	expireHistory = "delete from task_history where id in (select id from task_history where ended < ? order by ended limit ?)"
	expireDead    = "delete from tasks where id in (select id from tasks where place = 'dead' and ended < ? limit ?)"
)

// expireAtOnce bounds one transaction of a clean-up, because all other writes wait for it.
const expireAtOnce = 2000

// ExpireTasks implements [store.TaskMaintenance]. It deletes many tasks in several transactions.
func (s *Store) ExpireTasks(ctx context.Context, ended, failed time.Duration) (gone int, err error) {
	forget := func(query string, age time.Duration) error {
		for n := int64(expireAtOnce); n == expireAtOnce; {
			if err := s.writer.do(ctx, func(t *tx) (err error) {
				n, err = t.count(query, t.now.Add(-age).UnixMicro(), expireAtOnce)
				return err
			}); err != nil {
				return err
			}
			gone += int(n)
		}
		return nil
	}
	if err := s.writer.do(ctx, func(t *tx) error { return t.exec(expireFacts, t.now.Add(-store.TaskFactsKept).UnixMicro()) }); err != nil {
		return 0, err
	}
	if err := forget(expireHistory, ended); err != nil || failed <= 0 {
		return gone, err
	}
	return gone, forget(expireDead, failed)
}

// VacuumTasks implements [store.TaskMaintenance]. SQLite reuses the space of deleted rows.
func (s *Store) VacuumTasks(ctx context.Context) error {
	return s.writer.do(ctx, func(t *tx) error { return t.exec("pragma optimize") })
}

// taskWhere returns the condition of a filter.
func taskWhere(f *store.TaskFilter, states ...string) (string, []any) {
	where, args := []string{"1 = 1"}, []any{}
	add := func(condition string, values ...any) {
		where, args = append(where, condition), append(args, values...)
	}
	marks := func(n int) string { return "(" + strings.TrimSuffix(strings.Repeat("?,", n), ",") + ")" }
	if len(f.IDs) > 0 {
		add("id in " + marks(len(f.IDs)))
		for _, id := range f.IDs {
			args = append(args, id)
		}
	}
	if f.Type != "" {
		add("type = ?", f.Type)
	}
	if f.Key != "" {
		add("key = ?", f.Key)
	}
	if f.Unique != "" {
		add("uid = ?", f.Unique)
	}
	if f.Error != "" {
		add("instr(error, ?) > 0", f.Error)
	}
	if len(states) > 0 {
		add("place in " + marks(len(states)))
		for _, state := range states {
			args = append(args, state)
		}
	}
	return strings.Join(where, " and "), args
}

func taskLimit(f *store.TaskFilter) int {
	if f.Limit <= 0 {
		return 1 << 30
	}
	return f.Limit
}

// findFree returns the tasks of a filter that no worker holds.
func findFree(t *tx, f *store.TaskFilter) ([]store.QueuedTask, error) {
	states := []string{placeReady, placeWaiting, placeLater}
	if f.State != "" {
		if !slices.Contains(states, string(f.State)) {
			return nil, fmt.Errorf("%w: want tasks that are ready, waiting or scheduled, have %s", store.ErrConflict, f.State)
		}
		states = []string{string(f.State)}
	}
	where, args := taskWhere(f, states...)
	return readTasks(t, "select "+taskColumns+" from tasks where "+where+" order by id limit ?", append(args, taskLimit(f)))
}

// readTasks runs a query that was built for a filter.
func readTasks(t *tx, query string, args []any) ([]store.QueuedTask, error) {
	r, err := t.conn.QueryContext(context.Background(), query, args...)
	if err != nil {
		return nil, err
	}
	return collect(r, scanTask)
}

// officeAtOnce bounds one transaction of an operator's change, because all other writes wait for
// it.
const officeAtOnce = 1000

// inParts changes the tasks of a filter in parts, until a part is smaller than allowed.
func inParts(f *store.TaskFilter, do func(part *store.TaskFilter) (int, error)) (all int, err error) {
	for rest := taskLimit(f); rest > 0; {
		part := *f
		part.Limit = min(rest, officeAtOnce)
		n, err := do(&part)
		all, rest = all+n, rest-n
		if err != nil || n < part.Limit {
			return all, err
		}
	}
	return all, nil
}

// CancelTasks implements [store.TaskQueue]. Many tasks are cancelled in several
// transactions.
func (s *Store) CancelTasks(ctx context.Context, f store.TaskFilter) (int, error) {
	return inParts(&f, func(part *store.TaskFilter) (int, error) { return s.cancelSome(ctx, part) })
}

func (s *Store) cancelSome(ctx context.Context, f *store.TaskFilter) (n int, err error) {
	err = s.writer.do(ctx, func(t *tx) error {
		free, err := findFree(t, f)
		if err != nil {
			return err
		}
		for i := range free {
			one := &free[i]
			if err := t.exec(aloneKey, one.ID); err != nil {
				return err
			}
			if err := t.exec(keepHistory, t.now.UnixMicro(), true, nil, one.ID); err != nil {
				return err
			}
			if err := t.exec(deleteTask, one.ID); err != nil {
				return err
			}
			if _, err := closeTask(t, one); err != nil {
				return err
			}
		}
		n = len(free)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

const moveTask = "update tasks set type = ? where id = ?"

// MoveTasks implements [store.TaskAdmin]. It leaves tasks with a unique key alone, because they are
// unique within their type.
func (s *Store) MoveTasks(ctx context.Context, f store.TaskFilter, to string) (n int, err error) {
	spec := store.TaskSpec{Type: to}
	if err := spec.Check(); err != nil {
		return 0, err
	}
	err = s.writer.do(ctx, func(t *tx) error {
		n = 0
		free, err := findFree(t, &f)
		for _, one := range free {
			if err != nil {
				return err
			}
			if one.Unique != "" {
				continue
			}
			n++
			err = t.exec(moveTask, to, one.ID)
		}
		return err
	})
	s.hintTasks(to)
	return n, err
}

// RetryTasks implements [store.TaskAdmin]. Many tasks are retried in several
// transactions.
func (s *Store) RetryTasks(ctx context.Context, f store.TaskFilter) (all []store.TaskRetry, err error) {
	if f.State != "" && f.State != store.TaskFailed {
		return nil, fmt.Errorf("%w: want tasks that have failed, have %s", store.ErrConflict, f.State)
	}
	return store.RetryTasksInParts(f, officeAtOnce, func(part store.TaskFilter, after int64) ([]store.TaskRetry, error) {
		return s.retrySome(ctx, &part, after)
	})
}

// retrySome retries tasks with a number over after.
func (s *Store) retrySome(ctx context.Context, f *store.TaskFilter, after int64) (done []store.TaskRetry, err error) {
	var types []string
	err = s.writer.do(ctx, func(t *tx) error {
		where, args := taskWhere(f, placeDead)
		query := "select " + taskColumns + " from tasks where " + where + " and id > ? order by id limit ?"
		dead, err := readTasks(t, query, append(args, after, taskLimit(f)))
		if err != nil {
			return err
		}
		types, done = nil, nil
		for _, one := range dead {
			put, err := putTask(t, &store.TaskSpec{
				Type: one.Type, Key: one.Key, Unique: one.Unique, Payload: one.Payload, Priority: one.Priority,
				Tolerance: one.Deadline.Sub(one.Due), Timeout: one.Timeout,
			})
			if err == nil {
				err = put.Err
			}
			blocked := put.Outcome != store.PutAdded
			if err == nil && !blocked {
				err = t.exec(deleteTask, one.ID)
			}
			if err != nil {
				return err
			}
			types, done = append(types, one.Type), append(done, store.TaskRetry{Task: one.ID, As: put.ID, Blocked: blocked})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.hintTasks(types...)
	return done, nil
}

const (
	countTasks = `select type, place, count(*), min(due), min(deadline) from tasks group by type, place
		union all select type, 'mode ' || mode || ' ' || reason, 0, 0, 0 from task_types order by 1`
	putMode = `insert into task_types (type, mode, reason, changed) values (?, ?, ?, ?)
		on conflict (type) do update set mode = excluded.mode, reason = excluded.reason, changed = excluded.changed`
)

// TaskTables implements [store.TaskAdmin]. SQLite has no dead rows.
func (s *Store) TaskTables(context.Context) ([]store.TaskTable, error) { return nil, nil }

// TaskStats implements [store.TaskAdmin].
func (s *Store) TaskStats(ctx context.Context) ([]store.TaskTypeStats, error) {
	r, err := s.read.QueryContext(ctx, countTasks)
	if err != nil {
		return nil, err
	}
	var out []store.TaskTypeStats
	now := time.Now()
	_, err = collect(r, func(r *sql.Rows) (struct{}, error) {
		var (
			kind, place    string
			n, due, urgent int64
		)
		err := r.Scan(&kind, &place, &n, &due, &urgent)
		if len(out) == 0 || out[len(out)-1].Type != kind {
			out = append(out, store.TaskTypeStats{Type: kind, Mode: store.TasksOpen})
		}
		one := &out[len(out)-1]
		switch place {
		case placeReady:
			one.Ready, one.Oldest, one.Lag = n, taskTime(due), max(0, now.Sub(taskTime(urgent)))
		case placeWaiting:
			one.Waiting = n
		case placeStarting:
			one.Starting = n
		case placeRunning:
			one.Running = n
		case placeLater:
			one.Scheduled = n
		case placeDead:
			one.Failed = n
		default:
			parts := strings.SplitN(place, " ", 3)
			one.Mode, one.Reason = store.TaskMode(parts[1]), parts[2]
		}
		return struct{}{}, err
	})
	if err != nil {
		return nil, err
	}
	return out, s.facts(ctx, out)
}

// SetTaskMode implements [store.TaskAdmin].
func (s *Store) SetTaskMode(ctx context.Context, taskType string, mode store.TaskMode, reason string) error {
	if !slices.Contains([]store.TaskMode{store.TasksOpen, store.TasksPaused, store.TasksDraining}, mode) {
		return fmt.Errorf("%w: want mode open, paused or draining, have %q", store.ErrTask, mode)
	}
	spec := store.TaskSpec{Type: taskType}
	if err := spec.Check(); err != nil {
		return err
	}
	err := s.writer.do(ctx, func(t *tx) error {
		return t.exec(putMode, taskType, string(mode), store.CutTaskText(reason), t.now.UnixMicro())
	})
	s.hintTasks(taskType)
	return err
}

const (
	liveOrder = " order by place = 'scheduled', case when place = 'scheduled' then 0 else rank end, case when place = 'scheduled' then " +
		"due else deadline end, id limit ?"
	deadOrder = " order by ended desc, id desc limit ?"
	endedTask = `select id, type, key, '', result, 0, case when cancelled then 'cancelled' else 'completed' end, 0, due, due,
	deadline, begun, 0, ended, 0, epoch,
		0, 0, worker, '' from task_history where cancelled = ? and ? = '' and `
)

// PeekTasks implements [store.TaskAdmin].
func (s *Store) PeekTasks(ctx context.Context, f store.TaskFilter) ([]store.QueuedTask, error) {
	states, order := []string{string(f.State)}, liveOrder
	switch f.State {
	case store.TaskCompleted, store.TaskCancelled:
		unique := f.Unique + f.Error // ended tasks have neither
		f.Unique, f.Error = "", ""
		where, args := taskWhere(&f)
		args = append([]any{f.State == store.TaskCancelled, unique}, args...)
		return s.peek(ctx, &f, endedTask+where+deadOrder, append(args, taskLimit(&f)))
	case store.TaskFailed:
		states, order = []string{placeDead}, deadOrder
	case "":
		states = []string{placeReady, placeWaiting, placeStarting, placeRunning, placeLater}
	}
	where, args := taskWhere(&f, states...)
	return s.peek(ctx, &f, "select "+taskColumns+" from tasks where "+where+order, append(args, taskLimit(&f)))
}

func (s *Store) peek(ctx context.Context, f *store.TaskFilter, query string, args []any) ([]store.QueuedTask, error) {
	r, err := s.read.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return collect(r, func(r *sql.Rows) (store.QueuedTask, error) {
		t, err := scanTask(r)
		f.Trim(&t)
		return t, err
	})
}
