package cells

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"procaas/engine/clock"
	"procaas/engine/pgkit"
	"procaas/engine/store"
)

// Tasks is one queue of the queues of all cells. A task with a key or a unique name is put
// into the cell that has its slot; any cell may have the others, and does their share.
//
// A claim looks at the first tasks of each cell, and takes from each as many as are among
// the most urgent of all. So a task goes before a more urgent one of another cell only if that
// one was put, or given back, after the look.
type Tasks struct{ *Store }

// tasks returns the queue.
func (s *Store) tasks() *store.TaskStore {
	t := Tasks{s}
	return &store.TaskStore{Queue: t, Work: t, Maintenance: t, Admin: t}
}

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

// PutTasks implements [store.TaskQueue]. It waits for slots that move, for some seconds.
func (t Tasks) PutTasks(ctx context.Context, specs []store.TaskSpec) ([]store.TaskPut, error) {
	out := make([]store.TaskPut, len(specs))
	left := make([]int, len(specs))
	for i := range left {
		left[i] = i
	}
	for began := time.Now(); ; {
		if err := t.putOnce(ctx, specs, left, out); err != nil {
			return nil, err
		}
		left = slices.DeleteFunc(left, func(i int) bool { return !errors.Is(out[i].Err, store.ErrMoving) })
		if len(left) == 0 || time.Since(began) > steerWait || !clock.Pause(ctx, steerPause) {
			return out, nil
		}
		if _, err := t.refresh(ctx); err != nil {
			return out, nil //nolint:nilerr // the tasks that are left say so
		}
	}
}

func (t Tasks) putOnce(ctx context.Context, specs []store.TaskSpec, which []int, out []store.TaskPut) error {
	groups := map[*part][]int{}
	for _, i := range which {
		p := t.partFor(&specs[i])
		groups[p] = append(groups[p], i)
	}
	parts := slices.Collect(maps.Keys(groups))
	puts, errs := eachCell(ctx, parts, func(p *part, db *store.Cell) ([]store.TaskPut, error) {
		some := make([]store.TaskSpec, len(groups[p]))
		for n, i := range groups[p] {
			some[n] = specs[i]
		}
		return db.Tasks.Queue.PutTasks(ctx, some)
	})
	for at, p := range parts {
		if errs[at] != nil && len(parts) == 1 {
			return errs[at]
		}
		for n, i := range groups[p] {
			if out[i] = (store.TaskPut{Outcome: store.PutRefused, Err: errs[at]}); errs[at] == nil {
				out[i] = puts[at][n]
			}
		}
	}
	return nil
}

// guess returns the cell that has given a task its id; tasks that have moved are in another one.
func (t Tasks) guess(id int64) *part {
	if n := int((id - 1) / 1000 % store.MaxCells); n < len(t.parts) {
		return t.parts[n]
	}
	return t.parts[0]
}

// pick returns a part of a report.
func pick(r *store.TaskReport, want func(store.TaskRef) bool) store.TaskReport {
	out := store.TaskReport{Plain: r.Plain}
	for _, ref := range r.Completed {
		if want(ref) {
			out.Completed = append(out.Completed, ref)
		}
	}
	for _, f := range r.Failed {
		if want(f.TaskRef) {
			out.Failed = append(out.Failed, f)
		}
	}
	for _, z := range r.Snoozed {
		if want(z.TaskRef) {
			out.Snoozed = append(out.Snoozed, z)
		}
	}
	return out
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

// seek says something of tasks to all cells, one after the other, until each ref has found its task. It waits for tasks
// that move. Unsure are those that may be in a cell that is away.
func (t Tasks) seek(ctx context.Context, refs []store.TaskRef,
	say func(db *store.Cell, refs []store.TaskRef) (lost []store.TaskRef, err error),
) (lost, unsure []store.TaskRef) {
	for began := time.Now(); len(refs) > 0; {
		before, away := t.chart.Load().Version, false
		for _, p := range t.live() {
			db, err := p.cell()
			if err == nil && len(refs) > 0 {
				left := refs
				if left, err = say(db, refs); err == nil {
					refs = left
				}
			}
			away = p.heed(ctx, err) != nil || away
		}
		c, err := t.refresh(ctx)
		moves := err == nil && (c.Version != before || c.movesTasks())
		switch {
		case away && (!moves || time.Since(began) > steerWait):
			return nil, refs
		case !moves || time.Since(began) > steerWait || len(refs) > 0 && !clock.Pause(ctx, steerPause):
			return refs, nil
		}
	}
	return nil, nil
}

// movesTasks reports whether tasks are on their way.
func (c *Chart) movesTasks() bool {
	for _, m := range c.Moves {
		if ofTasks(m.Slots) {
			return true
		}
	}
	return false
}

// byGuess groups attempts by the cells that have likely their tasks.
func (t Tasks) byGuess(refs []store.TaskRef) map[*part][]store.TaskRef {
	groups := map[*part][]store.TaskRef{}
	for _, ref := range refs {
		p := t.guess(ref.ID)
		groups[p] = append(groups[p], ref)
	}
	return groups
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

// ExchangeTasks implements [store.TaskWork]. The report and the claim are one transaction in each cell. What is said of
// tasks of a cell that is away counts as lost.
func (t Tasks) ExchangeTasks(ctx context.Context, r store.TaskReport, c store.TaskClaim) ([]store.QueuedTask, []store.TaskRef, error) {
	var bounded []string
	for _, w := range c.Types {
		if w.MaxTaken > 0 && w.Limit > 0 {
			bounded = append(bounded, w.Type)
		}
	}
	if len(bounded) == 0 {
		return t.exchange(ctx, r, c, mostLooks)
	}
	// Who counts what is taken of a type in all cells is alone with it.
	lost, err := t.ReportTasks(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	var tasks []store.QueuedTask
	err = t.home.Shared.HoldTypes(ctx, bounded, func() error {
		tasks, _, err = t.exchange(ctx, store.TaskReport{}, c, mostLooks)
		return err
	})
	return tasks, lost, err
}

// mostLooks bounds how often a claim looks again at what the cells have.
const mostLooks = 4

// An exchanged is what one cell has answered.
type exchanged struct {
	tasks []store.QueuedTask
	lost  []store.TaskRef
}

func (t Tasks) exchange(ctx context.Context, r store.TaskReport, c store.TaskClaim, looks int) (
	[]store.QueuedTask, []store.TaskRef, error,
) {
	claims, promised, err := t.divide(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	said := t.byGuess(refsOf(&r))
	asked := map[*part]bool{}
	for p := range claims {
		asked[p] = true
	}
	for p := range said {
		asked[p] = true
	}
	parts := slices.Collect(maps.Keys(asked))
	out, errs := eachCell(ctx, parts, func(p *part, db *store.Cell) (e exchanged, err error) {
		mine := pick(&r, func(ref store.TaskRef) bool { return t.guess(ref.ID) == p })
		e.tasks, e.lost, err = db.Tasks.Work.ExchangeTasks(ctx, mine, claims[p])
		return e, err
	})
	var tasks []store.QueuedTask
	var left []store.TaskRef
	failed := 0
	for i, p := range parts {
		tasks, left = append(tasks, out[i].tasks...), append(left, out[i].lost...)
		if errs[i] != nil {
			left, failed, err = append(left, said[p]...), failed+1, errs[i]
		}
	}
	if failed > 0 && (failed == len(parts) || len(tasks) == 0 && !errors.Is(err, store.ErrAway)) {
		return nil, nil, err
	}
	lost, unsure := t.seek(ctx, left, func(db *store.Cell, refs []store.TaskRef) ([]store.TaskRef, error) {
		return db.Tasks.Work.ReportTasks(ctx, pick(&r, func(ref store.TaskRef) bool { return slices.Contains(refs, ref) }))
	})
	if looks > 1 && failed == 0 && promised > len(tasks) {
		// The first ones are held back by a bound of their key, and aside now: others may be taken.
		more, _, err := t.exchange(ctx, store.TaskReport{}, without(c, tasks), looks-1)
		if tasks = append(tasks, more...); err != nil && len(tasks) == 0 {
			return nil, nil, err
		}
	}
	slices.SortStableFunc(tasks, compareTasks)
	return tasks, append(lost, unsure...), nil
}

// without returns what is left to claim.
func without(c store.TaskClaim, have []store.QueuedTask) store.TaskClaim {
	got := map[string]int{}
	for i := range have {
		got[have[i].Type]++
	}
	types := c.Types
	c.Types = nil
	for _, w := range types {
		n := min(got[w.Type], w.Limit)
		got[w.Type] -= n
		if w.Limit -= n; w.Limit > 0 {
			c.Types = append(c.Types, w)
		}
	}
	if c.Limit > 0 {
		if c.Limit -= len(have); c.Limit <= 0 {
			c.Types = nil
		}
	}
	return c
}

// compareTasks orders tasks as claims take them.
func compareTasks(a, b store.QueuedTask) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Deadline.Compare(b.Deadline), cmp.Compare(a.ID, b.ID))
}

// divide gives each cell its share of a claim, and tells how many tasks their looks promise. What nobody has at present is
// the home's to look for, which so hears of all types that somebody asks for.
func (t Tasks) divide(ctx context.Context, c store.TaskClaim) (claims map[*part]store.TaskClaim, promised int, err error) {
	left, bounded, most := map[string]int{}, []string{}, 0
	for _, w := range c.Types {
		if left[w.Type] += max(w.Limit, 0); w.MaxTaken > 0 && w.Limit > 0 {
			bounded = append(bounded, w.Type)
		}
		most += max(w.Limit, 0)
	}
	if most = min(most, cmp.Or(c.Limit, most)); most == 0 {
		return nil, 0, nil
	}
	parts := t.live()
	looks := make([]look, len(parts))
	if len(bounded) > 0 {
		taken, _ := eachCell(ctx, parts, func(_ *part, db *store.Cell) (map[string]int, error) { return db.Shared.TakenTasks(ctx, bounded) })
		for i := range looks {
			looks[i].taken = taken[i]
		}
	}
	open := slices.Clone(c.Types)
	for i := range open {
		if w := &open[i]; w.MaxTaken > 0 {
			for _, l := range looks {
				w.MaxTaken -= l.taken[w.Type]
			}
			left[w.Type] = min(left[w.Type], max(w.MaxTaken, 0))
			w.Limit = min(w.Limit, left[w.Type])
		}
	}
	first, errs := eachCell(ctx, parts, func(_ *part, db *store.Cell) ([]store.TaskPlace, error) {
		return db.Shared.FirstTasks(ctx, open, most)
	})
	if errs[0] != nil {
		return nil, 0, errs[0]
	}
	for i := range looks {
		looks[i].first, looks[i].share = first[i], map[string]int{}
	}
	promised = share(looks, left, most)
	claims = map[*part]store.TaskClaim{}
	if only, ok := one(looks); ok {
		// It knows best: of the types it wants, some may be held back by bounds of their keys.
		mine := c
		mine.Limit, mine.Types = most, open
		for i := range open {
			if w := &open[i]; c.Types[i].MaxTaken > 0 {
				w.MaxTaken += looks[only].taken[w.Type]
			}
		}
		claims[parts[only]] = mine
		return claims, promised, nil
	}
	for i, p := range parts {
		if mine := looks[i].claim(c, left, i == 0, most-promised); mine.Limit > 0 {
			claims[p] = mine
		}
	}
	return claims, promised, nil
}

// one returns the only cell that has a share; the home when none has.
func one(looks []look) (at int, ok bool) {
	with := 0
	for i := range looks {
		if len(looks[i].share) > 0 {
			at, with = i, with+1
		}
	}
	return at, with <= 1
}

// A look is what one cell has for a claim.
type look struct {
	first []store.TaskPlace
	taken map[string]int
	share map[string]int // of first, by type
}

// share gives the most urgent of all first tasks to the cells that have them, as far as something is left of a type.
func share(looks []look, left map[string]int, most int) (n int) {
	for ; n < most; n++ {
		best := -1
		for i := range looks {
			l := &looks[i]
			for len(l.first) > 0 && left[l.first[0].Type] == 0 {
				l.first = l.first[1:]
			}
			if len(l.first) > 0 && (best < 0 || comesBefore(l.first[0], looks[best].first[0])) {
				best = i
			}
		}
		if best < 0 {
			return n
		}
		l := &looks[best]
		kind := l.first[0].Type
		l.share[kind]++
		left[kind]--
		l.first = l.first[1:]
	}
	return n
}

func comesBefore(a, b store.TaskPlace) bool {
	return a.Priority > b.Priority || a.Priority == b.Priority && a.Deadline.Before(b.Deadline)
}

// claim writes the claim of one cell: its share, and in the home what nobody has.
func (l *look) claim(c store.TaskClaim, left map[string]int, home bool, spare int) store.TaskClaim {
	types := c.Types
	c.Types, c.Limit = nil, 0
	for _, w := range types {
		n := min(l.share[w.Type], w.Limit)
		l.share[w.Type] -= n
		if c.Limit += n; home && spare > 0 {
			n += min(left[w.Type], w.Limit-n)
		}
		if w.MaxTaken > 0 {
			w.MaxTaken = l.taken[w.Type] + n
		}
		if w.Limit = n; n > 0 {
			c.Types = append(c.Types, w)
		}
	}
	if home {
		c.Limit += spare
	}
	return c
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
	var left []store.TaskRef
	for i, err := range errs {
		if left = append(left, out[i]...); err != nil && !errors.Is(err, store.ErrAway) {
			return nil, err
		}
	}
	lost, _ := t.seek(ctx, left, beat)
	return lost, nil
}

// WatchTasks implements [store.TaskWork].
func (t Tasks) WatchTasks(types []string) (<-chan struct{}, func()) {
	out := make(chan struct{}, 1)
	ctx, stop := context.WithCancel(t.ctx)
	for _, p := range t.parts {
		t.helpers.Go(func() { t.watch(ctx, p, types, out) })
	}
	return out, stop
}

// watch passes on the hints of a cell.
func (t Tasks) watch(ctx context.Context, p *part, types []string, out chan struct{}) {
	for {
		if db, err := p.cell(); err == nil {
			woken, stop := db.Tasks.Work.WatchTasks(types)
			defer stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-woken:
					pgkit.Signal(out)
				}
			}
		}
		if !clock.Pause(ctx, followEvery) {
			return
		}
	}
}
