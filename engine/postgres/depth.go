package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"procaas/engine/store"

	"github.com/jackc/pgx/v5"
)

var _ store.Gauge = (*Store)(nil)

// Each part is answered by an index alone.
const (
	readDepth = `select r.n + w.n + s.n, least(r.due, w.due)
	from (select count(*) as n, min(due) as due from runs where place = 'ready') r,
	(select count(*) as n, min(due) as due from runs where place in ('queued', 'deferred') and due > '-infinity') w,
	(select count(*) as n from runs where place = 'scheduled' and due > '-infinity') s`
	readAside = `select pipeline, place, cause, listens, count(*), min(since) from runs
	where place in ('parked', 'held', 'blocked', 'deferred', 'failed') and since > '-infinity'
	group by pipeline, place, cause, listens`
)

// Depth implements [store.Inbox].
func (s *Store) Depth(ctx context.Context) (d store.Depth, err error) {
	var due *time.Time
	var b pgx.Batch
	b.Queue(readDepth).QueryRow(func(r pgx.Row) error { return r.Scan(&d.Waiting, &due) })
	b.Queue(readAside).Query(rows(&d.Aside, scanAside))
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return store.Depth{}, err
	}
	d.Oldest, d.Aside = fromNull(due), store.SortAside(d.Aside)
	return d, nil
}

func scanAside(row pgx.CollectableRow) (r store.AsideRuns, err error) {
	var at place
	var awaits bool
	if err := row.Scan(&r.Pipeline, &at, &r.Cause, &awaits, &r.Runs, &r.Since); err != nil {
		return r, err
	}
	if r.Since, r.Place = r.Since.UTC(), store.AsideOf(at, awaits); r.Place != store.AsideParked {
		r.Cause = ""
	}
	return r, nil
}

// Counting takes the time of one backend by one part in gaugeShare at most, and
// happens each gaugeLeast at most.
const (
	gaugeLeast = time.Second
	gaugeShare = 50
)

const (
	// Whoever changes the row counts. One that dies while it does is followed by the
	// next one after that time.
	takeGauge = `update depth set counted = clock_timestamp()
	where counted < clock_timestamp() - greatest($1, $2 * took) * interval '1 microsecond'`
	readGauge  = "select waiting, oldest, aside from depth"
	writeGauge = "update depth set took = $1, waiting = $2, oldest = $3, aside = $4"
)

// GaugeDepth implements [store.Gauge].
func (s *Store) GaugeDepth(ctx context.Context) (store.Depth, error) {
	tag, err := s.pool.Exec(ctx, takeGauge, gaugeLeast.Microseconds(), gaugeShare)
	if err != nil {
		return store.Depth{}, fmt.Errorf("gauge: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return s.readGauge(ctx)
	}
	began := time.Now()
	d, err := s.Depth(ctx)
	if err != nil {
		return store.Depth{}, fmt.Errorf("gauge: %w", err)
	}
	aside, err := json.Marshal(d.Aside)
	if err != nil {
		return store.Depth{}, fmt.Errorf("gauge: %w", err)
	}
	_, err = s.pool.Exec(ctx, writeGauge, time.Since(began).Microseconds(), d.Waiting, toNull(d.Oldest), aside)
	return d, err
}

// readGauge gives what another process has counted last.
func (s *Store) readGauge(ctx context.Context) (d store.Depth, err error) {
	var due *time.Time
	var aside []byte
	if err := s.pool.QueryRow(ctx, readGauge).Scan(&d.Waiting, &due, &aside); err != nil {
		return store.Depth{}, fmt.Errorf("gauge: %w", err)
	}
	if d.Oldest = fromNull(due); len(aside) > 0 {
		if err := json.Unmarshal(aside, &d.Aside); err != nil {
			return store.Depth{}, fmt.Errorf("gauge: %w", err)
		}
	}
	return d, nil
}
