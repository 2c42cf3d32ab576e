package postgres

import (
	"bytes"
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
	// The process that changes the row counts. If it dies, another one counts after that time. All others read the last count.
	takeGauge = `with mine as (update depth set counted = clock_timestamp()
		where counted < clock_timestamp() - greatest($1, $2 * took) * interval '1 microsecond' returning true)
	select exists (select from mine), took, waiting, oldest, aside from depth`
	writeGauge = "update depth set took = $1, waiting = $2, oldest = $3, aside = $4"
)

// GaugeDepth implements [store.Gauge]. A count that finds what the last one has found is not written.
func (s *Store) GaugeDepth(ctx context.Context) (store.Depth, error) {
	mine, last, err := s.takeGauge(ctx)
	if err != nil {
		return store.Depth{}, fmt.Errorf("gauge: %w", err)
	}
	if !mine {
		return last.depth()
	}
	began := time.Now()
	d, err := s.Depth(ctx)
	if err != nil {
		return store.Depth{}, fmt.Errorf("gauge: %w", err)
	}
	now, err := countOf(d, time.Since(began))
	if err != nil {
		return store.Depth{}, fmt.Errorf("gauge: %w", err)
	}
	if now.repeats(&last) {
		return d, nil
	}
	_, err = s.db.pool.Exec(ctx, writeGauge, now.took, now.waiting, now.oldest, now.aside)
	return d, err
}

// A gauged is a count as the store keeps it.
type gauged struct {
	took    int64 // microseconds
	waiting int
	oldest  *time.Time
	aside   []byte // JSON
}

// takeGauge reads the last count. mine says that this process makes the next one.
func (s *Store) takeGauge(ctx context.Context) (mine bool, last gauged, err error) {
	err = s.db.pool.QueryRow(ctx, takeGauge, gaugeLeast.Microseconds(), gaugeShare).
		Scan(&mine, &last.took, &last.waiting, &last.oldest, &last.aside)
	return mine, last, err
}

func countOf(d store.Depth, took time.Duration) (g gauged, err error) {
	g = gauged{took: took.Microseconds(), waiting: d.Waiting, oldest: toNull(d.Oldest)}
	g.aside, err = json.Marshal(d.Aside)
	return g, err
}

// repeats reports whether a count has found the same as the one before, and neither was slow enough to delay the next.
func (g *gauged) repeats(last *gauged) bool {
	return max(g.took, last.took)*gaugeShare <= gaugeLeast.Microseconds() && g.waiting == last.waiting &&
		fromNull(g.oldest).Equal(fromNull(last.oldest)) && bytes.Equal(g.aside, last.aside)
}

func (g *gauged) depth() (d store.Depth, err error) {
	d = store.Depth{Waiting: g.waiting, Oldest: fromNull(g.oldest)}
	if len(g.aside) > 0 {
		if err := json.Unmarshal(g.aside, &d.Aside); err != nil {
			return store.Depth{}, fmt.Errorf("gauge: %w", err)
		}
	}
	return d, nil
}
