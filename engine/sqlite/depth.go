package sqlite

import (
	"context"
	"database/sql"

	"procaas/engine/store"
)

// Each is answered by an index alone.
const (
	countReady   = "select count(*), min(due) from runs where place = 'ready'"
	countWaiting = "select place, count(*), min(due) from runs where place in ('queued', 'deferred') group by place"
	countTimer   = "select count(*) from runs where place = 'scheduled'"
	countAside   = `select pipeline, place, cause, awaits is not null, count(*), min(since) from runs
	where place in ('parked', 'held', 'blocked', 'deferred', 'failed') group by pipeline, place, cause, awaits is not null`
)

// Depth implements [store.Inbox].
func (s *Store) Depth(ctx context.Context) (d store.Depth, err error) {
	var n int
	var due sql.NullInt64
	note := func() {
		d.Waiting += n
		if at := fromMicros(due); !at.IsZero() && (d.Oldest.IsZero() || at.Before(d.Oldest)) {
			d.Oldest = at
		}
	}
	if err := s.read.QueryRowContext(ctx, countReady).Scan(&n, &due); err != nil {
		return store.Depth{}, err
	}
	note()
	r, err := s.read.QueryContext(ctx, countWaiting)
	if err != nil {
		return store.Depth{}, err
	}
	_, err = collect(r, func(r *sql.Rows) (struct{}, error) {
		var p place
		err := r.Scan(&p, &n, &due)
		note()
		return struct{}{}, err
	})
	if err != nil {
		return store.Depth{}, err
	}
	due = sql.NullInt64{}
	if err := s.read.QueryRowContext(ctx, countTimer).Scan(&n); err != nil {
		return store.Depth{}, err
	}
	note()
	d.Aside, err = s.aside(ctx)
	return d, err
}

// aside counts the runs that are set aside.
func (s *Store) aside(ctx context.Context) ([]store.AsideRuns, error) {
	r, err := s.read.QueryContext(ctx, countAside)
	if err != nil {
		return nil, err
	}
	list, err := collect(r, func(r *sql.Rows) (a store.AsideRuns, err error) {
		var at place
		var awaits bool
		var since sql.NullInt64
		err = r.Scan(&a.Pipeline, &at, &a.Cause, &awaits, &a.Runs, &since)
		if a.Since, a.Place = fromMicros(since), store.AsideOf(at, awaits); a.Place != store.AsideParked {
			a.Cause = ""
		}
		return a, err
	})
	return store.SortAside(list), err
}
