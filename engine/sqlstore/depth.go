package sqlstore

import (
	"context"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// Each part needs only an index.
const (
	readDepth = `select count(*), min(due) from runs where place = 'ready'
	union all select count(*), min(due) from runs where place in ('queued', 'deferred') {and any due}
	union all select count(*), cast(null as {time}) from runs where place = 'scheduled' {and any due}`
	readAside = `select pipeline, place, cause, {listens}, count(*), min(since) from runs
	where {aside} {and any since}
	group by pipeline, place, cause, {listens}
	union all select flow, 'scheduled', '', 1 = 0, count(*), min(since) from runs
	where place = 'scheduled' and error_class = 'kept' {and any since} group by flow`
)

// Depth implements [store.Inbox].
func (s *Store) Depth(ctx context.Context) (d store.Depth, err error) {
	err = s.db.Read(ctx, readDepth, nil, func(r Row) error {
		var n int
		var due time.Time
		err := r.Scan(&n, at(&due))
		d.Waiting += n
		if !due.IsZero() && (d.Oldest.IsZero() || due.Before(d.Oldest)) {
			d.Oldest = due
		}
		return err
	})
	if err != nil {
		return store.Depth{}, err
	}
	err = s.db.Read(ctx, readAside, nil, func(r Row) error {
		var a store.AsideRuns
		var place model.Place
		var awaits bool
		err := r.Scan(&a.Pipeline, &place, &a.Cause, &awaits, &a.Runs, at(&a.Since))
		a.Place = store.AsideOf(place, awaits)
		if a.Place != store.AsideParked {
			a.Cause = ""
		}
		d.Aside = append(d.Aside, a)
		return err
	})
	if err != nil {
		return store.Depth{}, err
	}
	d.Aside = store.SortAside(d.Aside)
	return d, nil
}

const (
	lastEvent = "select coalesce(max(id), '') from events where source = $1"
	eventRun  = "select coalesce(max(run), '') from events where source = $1 and id = $2"
)

// LastEvent implements [store.Inbox].
func (s *Store) LastEvent(ctx context.Context, source string) (id string, err error) {
	err = find(ctx, s.db, lastEvent, []any{source}, &id)
	return id, err
}

// EventRun implements [store.Inbox].
func (s *Store) EventRun(ctx context.Context, source, id string) (run string, err error) {
	err = find(ctx, s.db, eventRun, []any{source, id}, &run)
	return run, err
}
