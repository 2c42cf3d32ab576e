package cells

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// each asks all cells at once that are named, and waits for all.
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

// eachCell is each for the stores of cells; the error of one that is away says so.
func eachCell[T any](ctx context.Context, parts []*part, ask func(*part, *store.Cell) (T, error)) (out []T, errs []error) {
	return each(parts, func(p *part) (out T, err error) {
		db, err := p.cell()
		if err != nil {
			return out, err
		}
		out, err = ask(p, db)
		return out, p.heed(ctx, err)
	})
}

// rereads bounds how often a batch is handed to another cell because the map has changed.
const rereads = 3

// Accept implements [store.Inbox]. Of a batch for several cells each part is stored for
// itself: the result of an event whose cell is away is [store.ErrAway].
func (s *Store) Accept(ctx context.Context, node int64, runs []model.Intake) ([]store.Accepted, error) {
	out := make([]store.Accepted, len(runs))
	left := make([]int, len(runs))
	for i := range left {
		left[i] = i
	}
	for try := 0; len(left) > 0; try++ {
		if err := s.acceptOnce(ctx, node, runs, left, out); err != nil {
			return nil, err
		}
		if left = moving(left, out); len(left) == 0 || try == rereads {
			break
		}
		before := s.chart.Load().Version
		if c, err := s.refresh(ctx); err != nil || c.Version == before {
			break // it is on its way
		}
	}
	return out, nil
}

// moving lists the events that the cell refused which has been asked.
func moving(asked []int, out []store.Accepted) (left []int) {
	for _, i := range asked {
		if errors.Is(out[i].Err, store.ErrMoving) {
			left = append(left, i)
		}
	}
	return left
}

// acceptOnce hands the events in that are left, each to the cell that the map names.
func (s *Store) acceptOnce(ctx context.Context, node int64, runs []model.Intake, left []int, out []store.Accepted) error {
	byPart := map[*part][]int{}
	var parts []*part
	for _, i := range left {
		p := s.partOf(runs[i].Key)
		if byPart[p] == nil {
			parts = append(parts, p)
		}
		byPart[p] = append(byPart[p], i)
	}
	if len(parts) > 1 {
		// What is wrong with the data of one is wrong with the batch.
		for _, i := range left {
			if _, err := store.EncodeEvent(runs[i].Event); err != nil {
				return fmt.Errorf("accept: %w", err)
			}
		}
	}
	if node != 0 && !s.isMember(node) {
		return fmt.Errorf("accept: %w", store.ErrFenced)
	}
	_, errs := each(parts, func(p *part) (struct{}, error) {
		batch := make([]model.Intake, len(byPart[p]))
		for n, i := range byPart[p] {
			batch[n] = runs[i]
		}
		results, err := s.acceptAt(ctx, p, node, batch)
		for n, i := range byPart[p] {
			if err != nil {
				out[i] = store.Accepted{Err: err}
				continue
			}
			if out[i] = results[n]; out[i].Claimed != nil {
				s.owned.Store(out[i].Run, p)
			}
		}
		return struct{}{}, err
	})
	for i, err := range errs {
		if err != nil && (!errors.Is(err, store.ErrAway) || len(left) == len(runs) && len(parts) == 1 && parts[i].number == 0) {
			return err
		}
	}
	return nil
}

// acceptAt hands events in at a cell.
func (s *Store) acceptAt(ctx context.Context, p *part, node int64, batch []model.Intake) ([]store.Accepted, error) {
	db, err := p.cell()
	if err != nil {
		return nil, err
	}
	number := s.numberAt(p, node)
	results, err := db.Inbox.Accept(ctx, number, batch)
	if errors.Is(err, store.ErrFenced) && p.number != 0 {
		if err := s.rejoin(ctx, p, node, number); err != nil {
			return nil, err
		}
		results, err = db.Inbox.Accept(ctx, 0, batch) // the runs are for whoever claims them
	}
	return results, p.heed(ctx, err)
}

// Depth implements [store.Inbox]. What a cell that is away has is not counted.
func (s *Store) Depth(ctx context.Context) (store.Depth, error) {
	return s.depth(ctx, func(db *store.Cell) (store.Depth, error) { return db.Inbox.Depth(ctx) })
}

// GaugeDepth implements [store.Gauge].
func (s *Store) GaugeDepth(ctx context.Context) (store.Depth, error) {
	return s.depth(ctx, func(db *store.Cell) (store.Depth, error) { return gauge(ctx, db) })
}

// gauge asks a cell how much waits, as cheaply as it can tell.
func gauge(ctx context.Context, db *store.Cell) (store.Depth, error) {
	if db.Gauge != nil {
		return db.Gauge.GaugeDepth(ctx)
	}
	return db.Inbox.Depth(ctx)
}

func (s *Store) depth(ctx context.Context, do func(*store.Cell) (store.Depth, error)) (sum store.Depth, err error) {
	all, err := ask(ctx, s, do)
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

// ask asks all cells that can be reached. The error is that of the home, or one that is
// an answer; the cells that are away are left out.
func ask[T any](ctx context.Context, s *Store, do func(*store.Cell) (T, error)) (found []T, err error) {
	out, errs := eachCell(ctx, s.parts, func(_ *part, db *store.Cell) (T, error) { return do(db) })
	for i, err := range errs {
		switch {
		case err == nil:
			found = append(found, out[i])
		case i == 0 || !errors.Is(err, store.ErrAway):
			return nil, err
		}
	}
	return found, nil
}

// Pending implements [store.Inbox].
func (s *Store) Pending(ctx context.Context, flow, key string, types []string, after int64, limit int) ([]model.Pending, error) {
	p := s.partOf(key)
	store, err := p.cell()
	if err != nil {
		return nil, err
	}
	found, err := store.Inbox.Pending(ctx, flow, key, types, after, limit)
	return found, p.heed(ctx, err)
}

// LastEvent implements [store.Inbox].
func (s *Store) LastEvent(ctx context.Context, source string) (last string, err error) {
	all, err := ask(ctx, s, func(db *store.Cell) (string, error) { return db.Inbox.LastEvent(ctx, source) })
	return slices.Max(append(all, "")), err
}

// Trim implements [store.Trimmer].
func (s *Store) Trim(ctx context.Context, keep time.Duration) (more bool, err error) {
	return s.tidy(ctx, func(db *store.Cell) (bool, error) {
		if db.Trimmer == nil {
			return false, nil
		}
		return db.Trimmer.Trim(ctx, keep)
	})
}

// TrimRuns implements [store.Trimmer]. Each cell keeps so many runs of its own.
func (s *Store) TrimRuns(ctx context.Context, pipeline string, keep int) (more bool, err error) {
	return s.tidy(ctx, func(db *store.Cell) (bool, error) {
		if db.Trimmer == nil {
			return false, nil
		}
		return db.Trimmer.TrimRuns(ctx, pipeline, keep)
	})
}

// ForgetAudit implements [store.Audits].
func (s *Store) ForgetAudit(ctx context.Context, keep time.Duration) (more bool, err error) {
	return s.tidy(ctx, func(db *store.Cell) (bool, error) { return db.Audits.ForgetAudit(ctx, keep) })
}

func (s *Store) tidy(ctx context.Context, do func(*store.Cell) (bool, error)) (more bool, err error) {
	all, err := ask(ctx, s, do)
	return slices.Contains(all, true), err
}
