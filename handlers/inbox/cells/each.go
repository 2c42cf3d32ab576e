package cells

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"procaas/engine/store"
)

// each asks some cells at once, and waits for all of them.
func each[T any](parts []*part, ask func(*part) (T, error)) (out []T, errs []error) {
	out, errs = make([]T, len(parts)), make([]error, len(parts))
	if len(parts) == 1 {
		out[0], errs[0] = ask(parts[0])
		return out, errs
	}
	var all sync.WaitGroup
	for i, p := range parts {
		all.Go(func() { out[i], errs[i] = ask(p) })
	}
	all.Wait()
	return out, errs
}

// eachCell is each for the databases. The error of a cell that cannot be reached is [store.ErrAway].
func eachCell[T any](ctx context.Context, parts []*part, ask func(*part, *store.Cell) (T, error)) (out []T, errs []error) {
	return each(parts, func(p *part) (T, error) {
		return use(ctx, p, func(db *store.Cell) (T, error) { return ask(p, db) })
	})
}

// trouble returns the error of a question to several cells: an answer that is one, or that the home is away. The answers of other
// cells that are away are missing.
func trouble(parts []*part, errs []error) error {
	for i, err := range errs {
		if err != nil && (parts[i].number == 0 || !errors.Is(err, store.ErrAway)) {
			return err
		}
	}
	return nil
}

// ask asks all cells, and leaves out those that are away.
func ask[T any](ctx context.Context, s *directory, do func(*store.Cell) (T, error)) ([]T, error) {
	out, errs := eachCell(ctx, s.parts, func(_ *part, db *store.Cell) (T, error) { return do(db) })
	if err := trouble(s.parts, errs); err != nil {
		return nil, err
	}
	var found []T
	for i, err := range errs {
		if err == nil {
			found = append(found, out[i])
		}
	}
	return found, nil
}

// A batch is items of which each belongs to a cell, with a result for each.
type batch[In, Out any] struct {
	in   []In
	out  []Out
	left []int // the items that still need a result

	of     func(i int) *part                       // the cell of an item
	do     func(p *part, some []In) ([]Out, error) // for all items of a cell
	failed func(err error) Out                     // the result of an item whose cell failed
}

// newBatch makes a batch of which all items are left.
func newBatch[In, Out any](in []In) *batch[In, Out] {
	b := &batch[In, Out]{in: in, out: make([]Out, len(in)), left: make([]int, len(in))}
	for i := range b.left {
		b.left[i] = i
	}
	return b
}

// run does all items that are left, each cell for itself. It returns the cells with their errors.
func (b *batch[In, Out]) run() (parts []*part, errs []error) {
	groups := map[*part][]int{}
	for _, i := range b.left {
		p := b.of(i)
		groups[p] = append(groups[p], i)
	}
	parts = slices.Collect(maps.Keys(groups))
	_, errs = each(parts, func(p *part) (any, error) {
		some := make([]In, len(groups[p]))
		for n, i := range groups[p] {
			some[n] = b.in[i]
		}
		results, err := b.do(p, some)
		for n, i := range groups[p] {
			if err != nil {
				b.out[i] = b.failed(err)
			} else {
				b.out[i] = results[n]
			}
		}
		return nil, err
	})
	return parts, errs
}

// runWhole is run for a caller that wants one error for the whole batch. That is an answer of a database, or that the home is
// away and has all of the batch.
func (b *batch[In, Out]) runWhole() error {
	parts, errs := b.run()
	onlyHome := len(parts) == 1 && parts[0].number == 0
	hasAll := len(b.left) == len(b.in)
	for _, err := range errs {
		if err == nil {
			continue
		}
		if !errors.Is(err, store.ErrAway) || onlyHome && hasAll {
			return err
		}
	}
	return nil
}

// keep leaves only those items whose result says so.
func (b *batch[In, Out]) keep(again func(Out) bool) {
	b.left = slices.DeleteFunc(b.left, func(i int) bool { return !again(b.out[i]) })
}
