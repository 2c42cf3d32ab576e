package cells

import (
	"cmp"
	"context"
	"slices"

	"procaas/engine/store"
)

// A claim looks at the first tasks of each cell, and takes from each cell as many as are among the most urgent of all. So a task
// goes before a more urgent one of another cell only if that one was put, or given back, after the look.

// bounded lists the types of a claim that bound how many of their tasks are taken.
func bounded(c store.TaskClaim) (types []string) {
	for _, w := range c.Types {
		if w.MaxTaken > 0 && w.Limit > 0 {
			types = append(types, w.Type)
		}
	}
	return types
}

// A place is the place of a ready task of a cell in the order of claims.
type place struct {
	store.TaskPlace
	at *part
}

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Deadline.Compare(b.Deadline))
}

// compareTasks orders tasks as claims take them.
func compareTasks(a, b store.QueuedTask) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Deadline.Compare(b.Deadline), cmp.Compare(a.ID, b.ID))
}

// A shareOf counts tasks of a type in a cell.
type shareOf struct {
	at   *part
	kind string
}

// divide gives each cell its share of a claim, and returns how many tasks the looks promise. The cell with the largest share also
// claims what nobody promised: the first tasks may be held back by the bounds of their keys. Without any share, that is the home.
// So some cell hears of each type that workers ask for.
func (t Tasks) divide(ctx context.Context, c store.TaskClaim) (claims map[*part]store.TaskClaim, promised int, err error) {
	d := newDivision(c, t.live())
	if d.most == 0 {
		return nil, 0, nil
	}
	d.countTaken(ctx)
	first, err := d.look(ctx, d.open())
	if err != nil {
		return nil, 0, err
	}
	d.share(first)
	claims = map[*part]store.TaskClaim{}
	for _, p := range d.parts {
		claims[p] = d.claimOf(p)
	}
	return claims, d.promised, nil
}

// A division is how the cells share one claim.
type division struct {
	claim store.TaskClaim
	parts []*part // the first is the home
	most  int     // tasks that the claim takes at most

	taken    map[shareOf]int // tasks that workers have already, of the types that bound them
	left     map[string]int  // tasks of each type that nobody has promised yet
	shares   map[shareOf]int // tasks that the look promises
	sums     map[*part]int   // the same of all types
	promised int             // and of all cells
	best     *part           // the cell with the largest sum; of several, the first that had it
}

func newDivision(c store.TaskClaim, parts []*part) *division {
	d := &division{
		claim: c, parts: parts, best: parts[0],
		taken: map[shareOf]int{}, left: map[string]int{}, shares: map[shareOf]int{}, sums: map[*part]int{},
	}
	for _, w := range c.Types {
		limit := max(w.Limit, 0)
		d.left[w.Type] += limit
		d.most += limit
	}
	if c.Limit != 0 {
		d.most = min(d.most, c.Limit)
	}
	return d
}

// countTaken counts the tasks that workers have, of types with a bound. A cell that does not answer counts as empty: it
// promises nothing either.
func (d *division) countTaken(ctx context.Context) {
	types := bounded(d.claim)
	if len(types) == 0 {
		return
	}
	counts, _ := eachCell(ctx, d.parts, func(_ *part, db *store.Cell) (map[string]int, error) {
		return db.Shared.TakenTasks(ctx, types)
	})
	for i, p := range d.parts {
		for kind, n := range counts[i] {
			d.taken[shareOf{p, kind}] = n
		}
	}
}

// open returns the types of the claim with what their bounds leave over all cells, and lowers left to it. Each cell knows
// only its own tasks, so none of them could apply such a bound.
func (d *division) open() []store.TaskWant {
	open := slices.Clone(d.claim.Types)
	for i := range open {
		w := &open[i]
		if w.MaxTaken <= 0 {
			continue
		}
		for _, p := range d.parts {
			w.MaxTaken -= d.taken[shareOf{p, w.Type}]
		}
		d.left[w.Type] = min(d.left[w.Type], max(w.MaxTaken, 0))
		w.Limit = min(w.Limit, d.left[w.Type])
	}
	return open
}

// look returns the first tasks of all cells, the most urgent first. Without the home there is no claim.
func (d *division) look(ctx context.Context, open []store.TaskWant) ([]place, error) {
	looks, errs := eachCell(ctx, d.parts, func(p *part, db *store.Cell) (places []place, err error) {
		first, err := db.Shared.FirstTasks(ctx, open, d.most)
		for _, one := range first {
			places = append(places, place{one, p})
		}
		return places, err
	})
	if errs[0] != nil {
		return nil, errs[0]
	}
	first := slices.Concat(looks...)
	slices.SortStableFunc(first, comparePlaces)
	return first, nil
}

// share gives the most urgent tasks to the claims of their cells.
func (d *division) share(first []place) {
	for _, one := range first {
		if d.left[one.Type] == 0 || d.promised == d.most {
			continue
		}
		d.left[one.Type]--
		d.promised++
		d.shares[shareOf{one.at, one.Type}]++
		d.sums[one.at]++
		if d.sums[one.at] > d.sums[d.best] {
			d.best = one.at
		}
	}
}

// claimOf returns the claim of a cell.
func (d *division) claimOf(p *part) store.TaskClaim {
	claim := d.claim
	claim.Types = nil
	claim.Limit = d.sums[p]
	if p == d.best {
		claim.Limit += d.most - d.promised
	}
	for _, w := range d.claim.Types {
		share := shareOf{p, w.Type}
		n := min(d.shares[share], w.Limit)
		d.shares[share] -= n // the claim may name a type twice
		if p == d.best {
			n += min(d.left[w.Type], w.Limit-n)
		}
		if n <= 0 {
			continue
		}
		if w.MaxTaken > 0 {
			w.MaxTaken = d.taken[share] + n // the bound of this cell alone
		}
		w.Limit = n
		claim.Types = append(claim.Types, w)
	}
	return claim
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
		w.Limit -= n
		if w.Limit > 0 {
			c.Types = append(c.Types, w)
		}
	}
	if c.Limit > 0 {
		c.Limit -= len(have)
		if c.Limit <= 0 {
			c.Types = nil
		}
	}
	return c
}
