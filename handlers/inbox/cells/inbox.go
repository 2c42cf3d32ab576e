package cells

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"procaas/engine/model"
	"procaas/engine/store"
)

// rereads bounds how often events go to another cell because the map has changed.
const rereads = 3

// Accept implements [store.Inbox]. Each cell stores its events in a transaction of its own. The result of an event whose cell is
// away is [store.ErrAway].
func (s *members) Accept(ctx context.Context, number int64, runs []model.Intake) ([]store.Accepted, error) {
	if number != 0 && !s.isMember(number) {
		return nil, fmt.Errorf("accept: %w", store.ErrFenced)
	}
	b := newBatch[model.Intake, store.Accepted](runs)
	b.of = func(i int) *part { return s.partOf(runs[i].Key) }
	b.failed = func(err error) store.Accepted { return store.Accepted{Err: err} }
	b.do = func(p *part, some []model.Intake) ([]store.Accepted, error) { return s.acceptAt(ctx, p, number, some) }
	if slices.ContainsFunc(runs[min(1, len(runs)):], func(in model.Intake) bool { return s.partOf(in.Key) != b.of(0) }) {
		// Invalid data of one event is an error for all of them, also if they belong to several cells.
		for i := range runs {
			if _, err := store.EncodeEvent(runs[i].Event); err != nil {
				return nil, fmt.Errorf("accept: %w", err)
			}
		}
	}
	for try := 0; len(b.left) > 0; try++ {
		if err := b.runWhole(); err != nil {
			return nil, err
		}
		b.keep(func(a store.Accepted) bool { return errors.Is(a.Err, store.ErrMoving) })
		if len(b.left) == 0 || try == rereads {
			break
		}
		before := s.chart.Load().Version
		if c, err := s.refresh(ctx); err != nil || c.Version == before {
			break // the key moves
		}
	}
	return b.out, nil
}

// acceptAt stores events in a cell. If the node is no member there, nobody owns the runs.
func (s *members) acceptAt(ctx context.Context, p *part, number int64, some []model.Intake) ([]store.Accepted, error) {
	free := func(db *store.Cell) ([]store.Accepted, error) { return db.Inbox.Accept(ctx, 0, some) }
	if s.memberAt(p, number) == nil {
		return use(ctx, p, free)
	}
	out, err := asMember(ctx, s, p, number,
		func(db *store.Cell, m *member) ([]store.Accepted, error) { return db.Inbox.Accept(ctx, m.number, some) }, free)
	for _, a := range out {
		if a.Claimed != nil {
			s.owned.Store(a.Run, p)
		}
	}
	return out, err
}

// Depth implements [store.Inbox]. Runs of a cell that is away are not counted.
func (s *members) Depth(ctx context.Context) (store.Depth, error) {
	return s.depth(ctx, func(db *store.Cell) (store.Depth, error) { return db.Inbox.Depth(ctx) })
}

// GaugeDepth implements [store.Gauge].
func (s *members) GaugeDepth(ctx context.Context) (store.Depth, error) {
	return s.depth(ctx, func(db *store.Cell) (store.Depth, error) { return db.Gauge.GaugeDepth(ctx) })
}

func (s *members) depth(ctx context.Context, do func(*store.Cell) (store.Depth, error)) (sum store.Depth, err error) {
	all, err := ask(ctx, s.directory, do)
	for _, d := range all {
		sum.Waiting += d.Waiting
		if sum.Oldest.IsZero() || !d.Oldest.IsZero() && d.Oldest.Before(sum.Oldest) {
			sum.Oldest = d.Oldest
		}
		sum.Aside = append(sum.Aside, d.Aside...)
	}
	sum.Aside = store.SortAside(sum.Aside)
	return sum, err
}

// Pending implements [store.Inbox].
func (s *members) Pending(ctx context.Context, flow, key string, types []string, after int64, limit int) ([]model.Pending, error) {
	return use(ctx, s.partOf(key), func(db *store.Cell) ([]model.Pending, error) {
		return db.Inbox.Pending(ctx, flow, key, types, after, limit)
	})
}

// Kept implements [store.Inbox].
func (s *members) Kept(ctx context.Context, flow, key string) (store.Kept, error) {
	return use(ctx, s.partOf(key), func(db *store.Cell) (store.Kept, error) { return db.Inbox.Kept(ctx, flow, key) })
}

// LastEvent implements [store.Inbox].
func (s *members) LastEvent(ctx context.Context, source string) (last string, err error) {
	all, err := ask(ctx, s.directory, func(db *store.Cell) (string, error) { return db.Inbox.LastEvent(ctx, source) })
	return slices.Max(append(all, "")), err
}

// EventRun implements [store.Inbox].
func (s *members) EventRun(ctx context.Context, source, id string) (run string, err error) {
	all, err := ask(ctx, s.directory, func(db *store.Cell) (string, error) { return db.Inbox.EventRun(ctx, source, id) })
	return slices.Max(append(all, "")), err
}
