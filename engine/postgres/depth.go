package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"procaas/engine/store"
)

var _ store.Gauge = (*Store)(nil)

// Counting uses at most one part in gaugeShare of one backend's time, and happens at most once per
// gaugeLeast.
const (
	gaugeLeast = time.Second
	gaugeShare = 50
)

const (
	// The process that changes the row counts. If it dies, another one counts after that time.
	takeGauge = `update depth set counted = clock_timestamp()
	where counted < clock_timestamp() - greatest($1, $2 * took) * interval '1 microsecond'`
	readGauge  = "select waiting, oldest, aside from depth"
	writeGauge = "update depth set took = $1, waiting = $2, oldest = $3, aside = $4"
)

// GaugeDepth implements [store.Gauge].
func (s *Store) GaugeDepth(ctx context.Context) (store.Depth, error) {
	tag, err := s.db.pool.Exec(ctx, takeGauge, gaugeLeast.Microseconds(), gaugeShare)
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
	_, err = s.db.pool.Exec(ctx, writeGauge, time.Since(began).Microseconds(), d.Waiting, toNull(d.Oldest), aside)
	return d, err
}

// readGauge returns the last count of another process.
func (s *Store) readGauge(ctx context.Context) (d store.Depth, err error) {
	var due *time.Time
	var aside []byte
	if err := s.db.pool.QueryRow(ctx, readGauge).Scan(&d.Waiting, &due, &aside); err != nil {
		return store.Depth{}, fmt.Errorf("gauge: %w", err)
	}
	d.Oldest = fromNull(due)
	if len(aside) > 0 {
		if err := json.Unmarshal(aside, &d.Aside); err != nil {
			return store.Depth{}, fmt.Errorf("gauge: %w", err)
		}
	}
	return d, nil
}
