package cells

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"procaas/engine/clock"
	"procaas/engine/pgkit"
	"procaas/engine/store"
)

// Tasks is one queue of the queues of all cells. A task with a key or a unique name goes to the cell of its slot, other tasks to any
// cell. Workers do tasks wherever they are.
type Tasks struct{ *directory }

// partFor returns the cell that takes a task in.
func (t Tasks) partFor(spec *store.TaskSpec) *part {
	c := t.chart.Load()
	if spec.Key != "" || spec.Unique != "" {
		return t.named[c.Owner(store.InboxSlots+spec.Slot())]
	}
	for range 2 * len(t.parts) {
		p := t.named[c.Owner(store.InboxSlots+rand.N(store.TaskSlots))]
		if _, err := p.cell(); err == nil {
			return p
		}
	}
	return t.parts[0]
}

// PutTasks implements [store.TaskQueue]. It waits some seconds for slots that move.
func (t Tasks) PutTasks(ctx context.Context, specs []store.TaskSpec) ([]store.TaskPut, error) {
	b := newBatch[store.TaskSpec, store.TaskPut](specs)
	b.of = func(i int) *part { return t.partFor(&specs[i]) }
	b.failed = func(err error) store.TaskPut { return store.TaskPut{Outcome: store.PutRefused, Err: err} }
	b.do = func(p *part, some []store.TaskSpec) ([]store.TaskPut, error) {
		return use(ctx, p, func(db *store.Cell) ([]store.TaskPut, error) { return db.Tasks.Queue.PutTasks(ctx, some) })
	}
	for began := time.Now(); ; {
		if parts, errs := b.run(); len(parts) == 1 && errs[0] != nil && len(b.left) == len(specs) {
			return nil, errs[0]
		}
		b.keep(func(put store.TaskPut) bool { return errors.Is(put.Err, store.ErrMoving) })
		if len(b.left) == 0 || time.Since(began) > steerWait || !clock.Pause(ctx, steerPause) {
			return b.out, nil
		}
		if _, err := t.refresh(ctx); err != nil {
			return b.out, nil //nolint:nilerr // the results of the tasks that are left say so
		}
	}
}

// guess returns the cell that gave a task its id. The task may have moved.
func (t Tasks) guess(id int64) *part {
	if n := int((id - 1) / 1000 % store.MaxCells); n < len(t.parts) {
		return t.parts[n]
	}
	return t.parts[0]
}

// byGuess groups attempts by the cells that probably have their tasks.
func (t Tasks) byGuess(refs []store.TaskRef) map[*part][]store.TaskRef {
	groups := map[*part][]store.TaskRef{}
	for _, ref := range refs {
		p := t.guess(ref.ID)
		groups[p] = append(groups[p], ref)
	}
	return groups
}

// seek reports on tasks to all cells, one after the other, until each attempt has found its task. Say returns the attempts that a
// cell does not have. Seek waits for tasks that move. Unsure are attempts that may be in a cell that is away.
func (t Tasks) seek(ctx context.Context, refs []store.TaskRef,
	say func(db *store.Cell, refs []store.TaskRef) (lost []store.TaskRef, err error),
) (lost, unsure []store.TaskRef) {
	for began := time.Now(); len(refs) > 0; {
		before, away := t.chart.Load().Version, false
		for _, p := range t.live() {
			if left, err := use(ctx, p, func(db *store.Cell) ([]store.TaskRef, error) {
				if len(refs) == 0 {
					return nil, nil
				}
				return say(db, refs)
			}); err != nil {
				away = true
			} else {
				refs = left
			}
		}
		if len(refs) == 0 {
			break
		}
		c, err := t.refresh(ctx)
		moves := err == nil && (c.Version != before || c.movesTasks())
		if moves && time.Since(began) <= steerWait && clock.Pause(ctx, steerPause) {
			continue
		}
		if away {
			return nil, refs
		}
		return refs, nil
	}
	return nil, nil
}

// ReportTasks implements [store.TaskWork].
func (t Tasks) ReportTasks(ctx context.Context, r store.TaskReport) ([]store.TaskRef, error) {
	_, lost, err := t.exchange(ctx, r, store.TaskClaim{}, 1)
	return lost, err
}

// ClaimTasks implements [store.TaskWork].
func (t Tasks) ClaimTasks(ctx context.Context, c store.TaskClaim) ([]store.QueuedTask, error) {
	tasks, _, err := t.ExchangeTasks(ctx, store.TaskReport{}, c)
	return tasks, err
}

// ExchangeTasks implements [store.TaskWork]. The report and the claim are one transaction in each cell. Attempts at tasks of a cell
// that is away count as lost.
func (t Tasks) ExchangeTasks(ctx context.Context, r store.TaskReport, c store.TaskClaim) (
	tasks []store.QueuedTask, lost []store.TaskRef, err error,
) {
	types := bounded(c)
	if len(types) == 0 {
		return t.exchange(ctx, r, c, mostLooks)
	}
	// One claim at a time counts the taken tasks of a type in all cells.
	if lost, err = t.ReportTasks(ctx, r); err != nil {
		return nil, nil, err
	}
	err = t.home.Shared.HoldTypes(ctx, types, func() error {
		tasks, _, err = t.exchange(ctx, store.TaskReport{}, c, mostLooks)
		return err
	})
	return tasks, lost, err
}

// mostLooks bounds how often a claim looks again at what the cells have.
const mostLooks = 4

// exchange reports and claims, with so many looks. Attempts that the guessed cell does not know are looked for in all cells.
func (t Tasks) exchange(ctx context.Context, r store.TaskReport, c store.TaskClaim, looks int) (
	tasks []store.QueuedTask, lost []store.TaskRef, err error,
) {
	claims, promised, err := t.divide(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	said := t.byGuess(refsOf(&r))
	parts := slices.DeleteFunc(slices.Clone(t.parts), func(p *part) bool { return len(claims[p].Types) == 0 && len(said[p]) == 0 })
	type answer struct {
		tasks []store.QueuedTask
		lost  []store.TaskRef
	}
	out, errs := eachCell(ctx, parts, func(p *part, db *store.Cell) (a answer, err error) {
		mine := pick(&r, func(ref store.TaskRef) bool { return t.guess(ref.ID) == p })
		a.tasks, a.lost, err = db.Tasks.Work.ExchangeTasks(ctx, mine, claims[p])
		return a, err
	})
	failed := 0
	for i, p := range parts {
		tasks, lost = append(tasks, out[i].tasks...), append(lost, out[i].lost...)
		if errs[i] != nil {
			lost, failed, err = append(lost, said[p]...), failed+1, errs[i]
		}
	}
	if failed > 0 && (failed == len(parts) || len(tasks) == 0 && !errors.Is(err, store.ErrAway)) {
		return nil, nil, err
	}
	lost, unsure := t.seek(ctx, lost, func(db *store.Cell, refs []store.TaskRef) ([]store.TaskRef, error) {
		return db.Tasks.Work.ReportTasks(ctx, pick(&r, func(ref store.TaskRef) bool { return slices.Contains(refs, ref) }))
	})
	if looks > 1 && failed == 0 && promised > len(tasks) {
		// The bound of a key held back the first tasks, and the claim put them aside. Other tasks may be taken.
		more, _, err := t.exchange(ctx, store.TaskReport{}, without(c, tasks), looks-1)
		tasks = append(tasks, more...)
		if err != nil && len(tasks) == 0 {
			return nil, nil, err
		}
	}
	slices.SortStableFunc(tasks, compareTasks)
	return tasks, append(lost, unsure...), nil
}

// pick returns a part of a report.
func pick(r *store.TaskReport, want func(store.TaskRef) bool) store.TaskReport {
	part := store.TaskReport{
		Plain:     r.Plain,
		Results:   maps.Clone(r.Results),
		Completed: slices.DeleteFunc(slices.Clone(r.Completed), func(ref store.TaskRef) bool { return !want(ref) }),
		Failed:    slices.DeleteFunc(slices.Clone(r.Failed), func(f store.TaskFailure) bool { return !want(f.TaskRef) }),
		Snoozed:   slices.DeleteFunc(slices.Clone(r.Snoozed), func(z store.TaskSnooze) bool { return !want(z.TaskRef) }),
	}
	maps.DeleteFunc(part.Results, func(ref store.TaskRef, _ json.RawMessage) bool { return !want(ref) })
	return part
}

// refsOf lists the attempts of a report.
func refsOf(r *store.TaskReport) []store.TaskRef {
	refs := slices.Clone(r.Completed)
	for _, f := range r.Failed {
		refs = append(refs, f.TaskRef)
	}
	for _, z := range r.Snoozed {
		refs = append(refs, z.TaskRef)
	}
	return refs
}

// BeatTasks implements [store.TaskWork]. Tasks of a cell that is away count as held.
func (t Tasks) BeatTasks(ctx context.Context, beats []store.TaskBeat) ([]store.TaskRef, error) {
	of := make(map[store.TaskRef]store.TaskBeat, len(beats))
	refs := make([]store.TaskRef, len(beats))
	for i, b := range beats {
		of[b.TaskRef], refs[i] = b, b.TaskRef
	}
	beat := func(db *store.Cell, refs []store.TaskRef) ([]store.TaskRef, error) {
		some := make([]store.TaskBeat, len(refs))
		for i, ref := range refs {
			some[i] = of[ref]
		}
		return db.Tasks.Work.BeatTasks(ctx, some)
	}
	groups := t.byGuess(refs)
	parts := slices.Collect(maps.Keys(groups))
	out, errs := eachCell(ctx, parts, func(p *part, db *store.Cell) ([]store.TaskRef, error) { return beat(db, groups[p]) })
	for _, err := range errs {
		if err != nil && !errors.Is(err, store.ErrAway) {
			return nil, err
		}
	}
	lost, _ := t.seek(ctx, slices.Concat(out...), beat)
	return lost, nil
}

// WatchTasks implements [store.TaskWork].
func (t Tasks) WatchTasks(types []string) (<-chan struct{}, func()) {
	out := make(chan struct{}, 1)
	ctx, stop := context.WithCancel(t.ctx)
	t.pass(ctx, func() { pgkit.Signal(out) }, func(db *store.Cell) (<-chan struct{}, func()) { return db.Tasks.Work.WatchTasks(types) })
	return out, stop
}
