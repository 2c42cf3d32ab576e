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
	left, most := map[string]int{}, 0
	for _, w := range c.Types {
		left[w.Type] += max(w.Limit, 0)
		most += max(w.Limit, 0)
	}
	most = min(most, cmp.Or(c.Limit, most))
	if most == 0 {
		return nil, 0, nil
	}
	parts, taken := t.live(), map[shareOf]int{}
	if types := bounded(c); len(types) > 0 {
		counts, _ := eachCell(ctx, parts, func(_ *part, db *store.Cell) (map[string]int, error) { return db.Shared.TakenTasks(ctx, types) })
		for i, p := range parts {
			for kind, n := range counts[i] {
				taken[shareOf{p, kind}] = n
			}
		}
	}
	open := slices.Clone(c.Types) // what the bounds of the types leave
	for i := range open {
		if w := &open[i]; w.MaxTaken > 0 {
			for _, p := range parts {
				w.MaxTaken -= taken[shareOf{p, w.Type}]
			}
			left[w.Type] = min(left[w.Type], max(w.MaxTaken, 0))
			w.Limit = min(w.Limit, left[w.Type])
		}
	}
	looks, errs := eachCell(ctx, parts, func(p *part, db *store.Cell) (places []place, err error) {
		first, err := db.Shared.FirstTasks(ctx, open, most)
		for _, one := range first {
			places = append(places, place{one, p})
		}
		return places, err
	})
	if errs[0] != nil {
		return nil, 0, errs[0]
	}
	first := slices.Concat(looks...)
	slices.SortStableFunc(first, comparePlaces)
	shares, sums, best := map[shareOf]int{}, map[*part]int{}, parts[0]
	for _, one := range first {
		if left[one.Type] > 0 && promised < most {
			left[one.Type]--
			promised++
			shares[shareOf{one.at, one.Type}]++
			sums[one.at]++
			if sums[one.at] > sums[best] {
				best = one.at
			}
		}
	}
	claims = map[*part]store.TaskClaim{}
	for _, p := range parts {
		mine := c
		mine.Types, mine.Limit = nil, sums[p]
		if p == best {
			mine.Limit += most - promised
		}
		for _, w := range c.Types {
			share := shareOf{p, w.Type}
			n := min(shares[share], w.Limit)
			shares[share] -= n
			if p == best {
				n += min(left[w.Type], w.Limit-n)
			}
			if w.MaxTaken > 0 {
				w.MaxTaken = taken[share] + n
			}
			w.Limit = n
			if n > 0 {
				mine.Types = append(mine.Types, w)
			}
		}
		claims[p] = mine
	}
	return claims, promised, nil
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
