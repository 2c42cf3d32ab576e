package cells

import (
	"context"
	"slices"
	"time"

	"procaas/engine/store"
)

// This file is what is done to the tasks of all cells alike, and how they move.

// add does something in all cells that can be reached, and adds up what it was done to.
func (t Tasks) add(ctx context.Context, do func(*store.Cell) (int, error)) (n int, err error) {
	all, err := ask(ctx, t.Store, do)
	for _, some := range all {
		n += some
	}
	return n, err
}

// upTo does so in one cell after the other, until it was done to as many tasks as a filter bounds.
func (t Tasks) upTo(ctx context.Context, f store.TaskFilter, do func(*store.TaskStore, store.TaskFilter) (int, error)) (n int, err error) {
	for _, p := range t.live() {
		part := f
		if part.Limit = f.Limit - n; f.Limit > 0 && part.Limit <= 0 {
			break
		}
		db, err := p.cell()
		if err == nil {
			var some int
			some, err = do(db.Tasks, part)
			n += some
		}
		if err = p.heed(ctx, err); err != nil {
			return n, err // people give the order again when the cell is back
		}
	}
	return n, nil
}

// CancelTasks implements [store.TaskQueue].
func (t Tasks) CancelTasks(ctx context.Context, f store.TaskFilter) (int, error) {
	return t.upTo(ctx, f, func(db *store.TaskStore, f store.TaskFilter) (int, error) { return db.Queue.CancelTasks(ctx, f) })
}

// RetryTasks implements [store.TaskAdmin].
func (t Tasks) RetryTasks(ctx context.Context, f store.TaskFilter) (int, error) {
	return t.upTo(ctx, f, func(db *store.TaskStore, f store.TaskFilter) (int, error) { return db.Admin.RetryTasks(ctx, f) })
}

// MoveTasks implements [store.TaskAdmin].
func (t Tasks) MoveTasks(ctx context.Context, f store.TaskFilter, to string) (int, error) {
	return t.upTo(ctx, f, func(db *store.TaskStore, f store.TaskFilter) (int, error) { return db.Admin.MoveTasks(ctx, f, to) })
}

// PromoteTasks implements [store.TaskMaintenance].
func (t Tasks) PromoteTasks(ctx context.Context, limit int) (n int, next time.Duration, err error) {
	type promoted struct {
		n    int
		next time.Duration
	}
	all, err := ask(ctx, t.Store, func(db *store.Cell) (p promoted, err error) {
		p.n, p.next, err = db.Tasks.Maintenance.PromoteTasks(ctx, limit)
		return p, err
	})
	for _, p := range all {
		if n = max(n, p.n); p.next > 0 && (next == 0 || p.next < next) {
			next = p.next // who has promoted as many as may be asks again, so no cell may hide behind another one
		}
	}
	return n, next, err
}

// RaiseTasks implements [store.TaskMaintenance].
func (t Tasks) RaiseTasks(ctx context.Context, kind string, wait time.Duration, limit int) (int, error) {
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
	slices.SortFunc(first, compareTasks)
	return t.add(ctx, func(db *store.Cell) (int, error) {
		return db.Shared.RaiseTasksTo(ctx, kind, wait, limit, first[0].Priority)
	})
}

// ReclaimTasks implements [store.TaskMaintenance].
func (t Tasks) ReclaimTasks(ctx context.Context, limit, maxLost int) (int, error) {
	return t.add(ctx, func(db *store.Cell) (int, error) { return db.Tasks.Maintenance.ReclaimTasks(ctx, limit, maxLost) })
}

// ExpireTasks implements [store.TaskMaintenance].
func (t Tasks) ExpireTasks(ctx context.Context, ended, failed time.Duration) (int, error) {
	return t.add(ctx, func(db *store.Cell) (int, error) { return db.Tasks.Maintenance.ExpireTasks(ctx, ended, failed) })
}

// VacuumTasks implements [store.TaskMaintenance].
func (t Tasks) VacuumTasks(ctx context.Context) error {
	_, err := t.add(ctx, func(db *store.Cell) (int, error) { return 0, db.Tasks.Maintenance.VacuumTasks(ctx) })
	return err
}

// SetTaskMode implements [store.TaskAdmin]. It fails when a cell cannot be reached; then it is to be repeated.
func (t Tasks) SetTaskMode(ctx context.Context, kind string, mode store.TaskMode, reason string) error {
	_, err := t.upTo(ctx, store.TaskFilter{}, func(db *store.TaskStore, _ store.TaskFilter) (int, error) {
		return 0, db.Admin.SetTaskMode(ctx, kind, mode, reason)
	})
	return err
}

// KnownTaskTypes implements [store.TaskAdmin].
func (t Tasks) KnownTaskTypes(ctx context.Context) ([]string, error) {
	all, err := ask(ctx, t.Store, func(db *store.Cell) ([]string, error) { return db.Tasks.Admin.KnownTaskTypes(ctx) })
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(all...)))), err
}

// PeekTasks implements [store.TaskAdmin].
func (t Tasks) PeekTasks(ctx context.Context, f store.TaskFilter) ([]store.QueuedTask, error) {
	all, err := ask(ctx, t.Store, func(db *store.Cell) ([]store.QueuedTask, error) { return db.Tasks.Admin.PeekTasks(ctx, f) })
	out := slices.Concat(all...)
	slices.SortStableFunc(out, func(a, b store.QueuedTask) int {
		switch later := a.State == store.TaskScheduled; {
		case later != (b.State == store.TaskScheduled) && later:
			return 1
		case later != (b.State == store.TaskScheduled):
			return -1
		case later:
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

// TaskStats implements [store.TaskAdmin]. What a cell that is away has is not counted.
func (t Tasks) TaskStats(ctx context.Context) ([]store.TaskTypeStats, error) {
	all, err := ask(ctx, t.Store, func(db *store.Cell) ([]store.TaskTypeStats, error) { return db.Tasks.Admin.TaskStats(ctx) })
	sums := map[string]*store.TaskTypeStats{}
	var types []string
	for _, some := range all {
		for _, one := range some {
			if sum := sums[one.Type]; sum != nil {
				addStats(sum, &one)
				continue
			}
			sums[one.Type], types = &one, append(types, one.Type)
		}
	}
	slices.Sort(types)
	out := make([]store.TaskTypeStats, len(types))
	for i, kind := range types {
		out[i] = *sums[kind]
	}
	return out, err
}

// addStats adds what another cell has of a type.
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

// toSwitchTasks is toSwitch for slots of tasks. Only claims that bound how many tasks of a key are taken, and tasks with a
// unique name that are put, have to wait for it: the tasks themselves are done wherever they are.
func (s *Store) toSwitchTasks(ctx context.Context, m *Move, w *mover, l leg) error {
	if err := s.update(ctx, m, func(_ *Chart, m *Move) { m.Step = Freezing }); err != nil {
		return err
	}
	// The first to go are found before anything stops.
	first, err := l.from.Shared.SeekTasks(ctx, m.Slots)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := s.freeze(ctx, m, l); err != nil {
		return err
	}
	// Nothing has gone yet: from here on the move is ended by whoever finds it.
	if err := s.switchPart(ctx, m, 0); err != nil {
		return err
	}
	w.began = began
	if err := s.sendTasks(ctx, m, w, first); err != nil {
		return err
	}
	return s.open(ctx, m, l.to)
}

// sendTasks sends the tasks of slots to the target, those first that are taken, then parcels that were found before. W
// may be nil.
func (s *Store) sendTasks(ctx context.Context, m *Move, w *mover, found [][]int64) error {
	from, to := s.named[m.From], s.named[m.To]
	if len(found) == 0 {
		found = [][]int64{nil} // those that are taken
	}
	for taken := true; len(found) > 0; {
		for _, ids := range found {
			if err := s.sendParcel(ctx, m, from, to, ids, taken); err != nil {
				return err
			}
			if w != nil && taken {
				w.stood(time.Since(w.began))
			}
			if taken = false; w != nil {
				w.rows.Add(int64(len(ids)))
			}
			if err := s.extend(ctx, m); err != nil {
				return err
			}
		}
		db, err := from.cell()
		if err == nil {
			found, err = db.Shared.SeekTasks(ctx, m.Slots)
		}
		if err != nil {
			return from.heed(ctx, err)
		}
	}
	return s.deliver(ctx, from) // what was packed by somebody else, who has died
}

func (s *Store) sendParcel(ctx context.Context, m *Move, from, to *part, ids []int64, taken bool) error {
	db, err := from.cell()
	if err != nil {
		return err
	}
	p, err := db.Shared.PackTasks(ctx, m.mark(), m.To, m.Slots, ids, taken)
	if err != nil || p.ID == "" {
		return from.heed(ctx, err)
	}
	return s.hand(ctx, db, from, to, p)
}

// hand takes a parcel to its target.
func (s *Store) hand(ctx context.Context, db *store.Cell, from, to *part, p store.TaskParcel) error {
	target, err := to.cell()
	if err != nil {
		return err
	}
	if err := target.Shared.UnpackTasks(ctx, p); err != nil {
		return to.heed(ctx, err)
	}
	return from.heed(ctx, db.Shared.ForgetParcel(ctx, p.ID))
}

// deliver takes the parcels of a cell to their targets. That several processes do so is harmless.
func (s *Store) deliver(ctx context.Context, p *part) error {
	for {
		db, err := p.cell()
		if err != nil {
			return err
		}
		parcels, err := db.Shared.Parcels(ctx)
		if err != nil || len(parcels) == 0 {
			return p.heed(ctx, err)
		}
		for _, parcel := range parcels {
			if err := s.hand(ctx, db, p, s.named[parcel.Target], parcel); err != nil {
				return err
			}
		}
	}
}
