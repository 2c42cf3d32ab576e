package cells

import (
	"cmp"
	"context"
	"slices"
	"time"

	"procaas/engine/store"
)

// add does something in all cells that can be reached, and adds up the numbers of tasks.
func (t Tasks) add(ctx context.Context, do func(*store.TaskStore) (int, error)) (n int, err error) {
	all, err := ask(ctx, t.directory, func(db *store.Cell) (int, error) { return do(db.Tasks) })
	for _, some := range all {
		n += some
	}
	return n, err
}

// upTo does something in one cell after the other, until the bound of the filter is reached. If a cell is away, operators repeat
// the order later.
func (t Tasks) upTo(ctx context.Context, f store.TaskFilter, do func(*store.TaskStore, store.TaskFilter) (int, error)) (n int, err error) {
	for _, p := range t.live() {
		part := f
		part.Limit = f.Limit - n
		if f.Limit > 0 && part.Limit <= 0 {
			break
		}
		some, err := use(ctx, p, func(db *store.Cell) (int, error) { return do(db.Tasks, part) })
		n += some
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// CancelTasks implements [store.TaskQueue].
func (t Tasks) CancelTasks(ctx context.Context, f store.TaskFilter) (int, error) {
	return t.upTo(ctx, f, func(db *store.TaskStore, f store.TaskFilter) (int, error) { return db.Queue.CancelTasks(ctx, f) })
}

// RetryTasks implements [store.TaskAdmin].
func (t Tasks) RetryTasks(ctx context.Context, f store.TaskFilter) (all []store.TaskRetry, err error) {
	_, err = t.upTo(ctx, f, func(db *store.TaskStore, f store.TaskFilter) (int, error) {
		some, err := db.Admin.RetryTasks(ctx, f)
		all = append(all, some...)
		done, _ := store.Retried(some)
		return len(done), err
	})
	return all, err
}

// MoveTasks implements [store.TaskAdmin].
func (t Tasks) MoveTasks(ctx context.Context, f store.TaskFilter, to string) (int, error) {
	return t.upTo(ctx, f, func(db *store.TaskStore, f store.TaskFilter) (int, error) { return db.Admin.MoveTasks(ctx, f, to) })
}

// SetTaskMode implements [store.TaskAdmin].
func (t Tasks) SetTaskMode(ctx context.Context, kind string, mode store.TaskMode, reason string) error {
	_, err := t.upTo(ctx, store.TaskFilter{}, func(db *store.TaskStore, _ store.TaskFilter) (int, error) {
		return 0, db.Admin.SetTaskMode(ctx, kind, mode, reason)
	})
	return err
}

// PromoteTasks implements [store.TaskMaintenance]. It returns the largest number of all cells: if that is limit, the caller repeats
// the call, and no cell hides behind another.
func (t Tasks) PromoteTasks(ctx context.Context, limit int) (n int, next time.Duration, err error) {
	type promoted struct {
		n    int
		next time.Duration
	}
	all, err := ask(ctx, t.directory, func(db *store.Cell) (p promoted, err error) {
		p.n, p.next, err = db.Tasks.Maintenance.PromoteTasks(ctx, limit)
		return p, err
	})
	for _, p := range all {
		n = max(n, p.n)
		if p.next > 0 && (next == 0 || p.next < next) {
			next = p.next
		}
	}
	return n, next, err
}

// RaiseTasks implements [store.TaskMaintenance].
func (t Tasks) RaiseTasks(ctx context.Context, kind string, wait time.Duration, limit int) (n int, err error) {
	var first []store.QueuedTask
	for _, state := range []store.TaskState{store.TaskReady, store.TaskWaiting} {
		some, err := t.PeekTasks(ctx, store.TaskFilter{Type: kind, State: state, Limit: 1})
		if err != nil {
			return 0, err
		}
		first = append(first, some...)
	}
	if len(first) == 0 {
		return 0, nil
	}
	highest := slices.MinFunc(first, compareTasks).Priority
	all, err := ask(ctx, t.directory, func(db *store.Cell) (int, error) { return db.Shared.RaiseTasksTo(ctx, kind, wait, limit, highest) })
	for _, some := range all {
		n += some
	}
	return n, err
}

// ReclaimTasks implements [store.TaskMaintenance].
func (t Tasks) ReclaimTasks(ctx context.Context, limit, maxLost int) (int, error) {
	return t.add(ctx, func(db *store.TaskStore) (int, error) { return db.Maintenance.ReclaimTasks(ctx, limit, maxLost) })
}

// ExpireTasks implements [store.TaskMaintenance].
func (t Tasks) ExpireTasks(ctx context.Context, ended, failed time.Duration) (int, error) {
	return t.add(ctx, func(db *store.TaskStore) (int, error) { return db.Maintenance.ExpireTasks(ctx, ended, failed) })
}

// VacuumTasks implements [store.TaskMaintenance].
func (t Tasks) VacuumTasks(ctx context.Context) error {
	_, err := t.add(ctx, func(db *store.TaskStore) (int, error) { return 0, db.Maintenance.VacuumTasks(ctx) })
	return err
}

// KnownTaskTypes implements [store.TaskAdmin].
func (t Tasks) KnownTaskTypes(ctx context.Context) ([]string, error) {
	all, err := ask(ctx, t.directory, func(db *store.Cell) ([]string, error) { return db.Tasks.Admin.KnownTaskTypes(ctx) })
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(all...)))), err
}

// PeekTasks implements [store.TaskAdmin].
func (t Tasks) PeekTasks(ctx context.Context, f store.TaskFilter) ([]store.QueuedTask, error) {
	all, err := ask(ctx, t.directory, func(db *store.Cell) ([]store.QueuedTask, error) { return db.Tasks.Admin.PeekTasks(ctx, f) })
	out := slices.Concat(all...)
	later := func(task store.QueuedTask) int {
		if task.State == store.TaskScheduled {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(out, func(a, b store.QueuedTask) int {
		switch order := cmp.Compare(later(a), later(b)); {
		case order != 0:
			return order
		case later(a) == 1:
			return a.Due.Compare(b.Due)
		case !a.Ended.IsZero():
			return b.Ended.Compare(a.Ended)
		}
		return compareTasks(a, b)
	})
	if f.Limit > 0 && len(out) > f.Limit {
		out = out[:f.Limit]
	}
	return out, err
}

// TaskTables implements [store.TaskAdmin]. Tables of the same name in several cells are added up.
func (t Tasks) TaskTables(ctx context.Context) (sums []store.TaskTable, err error) {
	all, err := ask(ctx, t.directory, func(db *store.Cell) ([]store.TaskTable, error) { return db.Tasks.Admin.TaskTables(ctx) })
	for _, one := range slices.Concat(all...) {
		i := slices.IndexFunc(sums, func(sum store.TaskTable) bool { return sum.Name == one.Name })
		if i < 0 {
			sums = append(sums, one)
			continue
		}
		sums[i].Bytes += one.Bytes
		sums[i].Live += one.Live
		sums[i].Dead += one.Dead
	}
	return sums, err
}

// TaskStats implements [store.TaskAdmin]. Tasks of a cell that is away are not counted.
func (t Tasks) TaskStats(ctx context.Context) (sums []store.TaskTypeStats, err error) {
	all, err := ask(ctx, t.directory, func(db *store.Cell) ([]store.TaskTypeStats, error) { return db.Tasks.Admin.TaskStats(ctx) })
	stats := slices.Concat(all...)
	slices.SortStableFunc(stats, func(a, b store.TaskTypeStats) int { return cmp.Compare(a.Type, b.Type) })
	for i := range stats {
		if n := len(sums); n > 0 && sums[n-1].Type == stats[i].Type {
			addStats(&sums[n-1], &stats[i])
		} else {
			sums = append(sums, stats[i])
		}
	}
	return sums, err
}

// addStats adds the tasks of a type in another cell.
func addStats(sum, one *store.TaskTypeStats) {
	sum.Ready, sum.Waiting, sum.Starting = sum.Ready+one.Ready, sum.Waiting+one.Waiting, sum.Starting+one.Starting
	sum.Running, sum.Scheduled, sum.Failed = sum.Running+one.Running, sum.Scheduled+one.Scheduled, sum.Failed+one.Failed
	sum.Raised, sum.Lag = sum.Raised+one.Raised, max(sum.Lag, one.Lag)
	sum.Estimated = slices.Compact(slices.Sorted(slices.Values(append(sum.Estimated, one.Estimated...))))
	if one.RaisedLast.After(sum.RaisedLast) {
		sum.RaisedLast = one.RaisedLast
	}
	if one.Asked.After(sum.Asked) {
		sum.Asked, sum.AskedBy = one.Asked, one.AskedBy
	}
	if sum.Oldest.IsZero() || !one.Oldest.IsZero() && one.Oldest.Before(sum.Oldest) {
		sum.Oldest = one.Oldest
	}
	if sum.Mode == store.TasksOpen {
		sum.Mode, sum.Reason = one.Mode, one.Reason
	}
}
