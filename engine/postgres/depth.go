package postgres

import (
	"context"
	"fmt"
	"time"

	"procaas/engine"
)

var _ engine.Gauge = (*Store)(nil)

// Each part is answered by an index alone.
const readDepth = `select r.n + w.n + s.n, least(r.due, w.due)
	from (select count(*) as n, min(due) as due from runs where place = 'ready') r,
	(select count(*) as n, min(due) as due from runs where place in ('queued', 'deferred') and due > '-infinity') w,
	(select count(*) as n from runs where place = 'scheduled' and due > '-infinity') s`

// Depth implements [engine.Inbox].
func (s *Store) Depth(ctx context.Context) (waiting int, oldest time.Time, err error) {
	var due *time.Time
	if err := s.pool.QueryRow(ctx, readDepth).Scan(&waiting, &due); err != nil {
		return 0, time.Time{}, err
	}
	return waiting, fromNull(due), nil
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
	readGauge  = "select waiting, oldest from depth"
	writeGauge = "update depth set took = $1, waiting = $2, oldest = $3"
)

// GaugeDepth implements [engine.Gauge].
func (s *Store) GaugeDepth(ctx context.Context) (waiting int, oldest time.Time, err error) {
	tag, err := s.pool.Exec(ctx, takeGauge, gaugeLeast.Microseconds(), gaugeShare)
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("gauge: %w", err)
	}
	if tag.RowsAffected() == 0 {
		var due *time.Time
		err := s.pool.QueryRow(ctx, readGauge).Scan(&waiting, &due)
		return waiting, fromNull(due), err
	}
	began := time.Now()
	if waiting, oldest, err = s.Depth(ctx); err != nil {
		return 0, time.Time{}, fmt.Errorf("gauge: %w", err)
	}
	_, err = s.pool.Exec(ctx, writeGauge, time.Since(began).Microseconds(), waiting, toNull(oldest))
	return waiting, oldest, err
}
