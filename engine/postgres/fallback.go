package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// A report takes its number in the order while it holds this, so that a
	// decision, which holds it alone, sees all reports with lower ones.
	shareFallback = "select from fallback for share"
	insertTallies = `insert into tallies (node, number, at, counts) values ($1, $2, clock_timestamp(), $3)
	on conflict (node, number) do nothing`
)

// Report implements [store.Degradation].
func (s *Store) Report(ctx context.Context, node, number int64, tallies []model.Tally) error {
	err := s.tx(ctx, func(t *tx) error {
		t.queue(shareFallback)
		t.queue(insertTallies, node, number, store.EncodeTallies(tallies))
		return t.commit(ctx)
	})
	if err != nil {
		return fmt.Errorf("report calls: %w", err)
	}
	return nil
}

const (
	// Whoever takes a number for a report shares this lock until the commit. So the reports
	// that have one by now are all seen by what follows.
	lockFallback = "select clock_timestamp(), turn, decider, decided, taken, state from fallback for no key update"
	freshTallies = "select seq, counts from tallies where seq > (select taken from fallback) order by seq"
	pastTallies  = `select counts from tallies where seq <= (select taken from fallback)
	and at > clock_timestamp() - $1 * interval '1 microsecond' order by seq`
)

// Deliberate implements [store.Degradation].
func (s *Store) Deliberate(ctx context.Context, keep time.Duration) (d store.Deliberation, err error) {
	err = s.tx(ctx, func(t *tx) error {
		d = store.Deliberation{}
		var decided *time.Time
		t.queue(lockFallback).QueryRow(value(&d.Now, &d.Turn, &d.Decider, &decided, &d.Taken, &d.State))
		t.queue(freshTallies).Query(func(rows pgx.Rows) error {
			var counts []byte
			d.Reported = d.Taken
			_, err := pgx.ForEachRow(rows, []any{&d.Reported, &counts}, func() (err error) {
				d.Fresh, err = store.DecodeTallies(d.Fresh, counts)
				return err
			})
			return err
		})
		if keep > 0 {
			t.queue(pastTallies, keep.Microseconds()).Query(func(rows pgx.Rows) error {
				var counts []byte
				_, err := pgx.ForEachRow(rows, []any{&counts}, func() (err error) {
					d.Past, err = store.DecodeTallies(d.Past, counts)
					return err
				})
				return err
			})
		}
		if err := t.commit(ctx); err != nil {
			return err
		}
		if d.Now = d.Now.UTC(); decided != nil {
			d.Decided = decided.UTC()
		}
		return nil
	})
	if err != nil {
		return d, fmt.Errorf("read what decides about fallbacks: %w", err)
	}
	return d, nil
}

const (
	writeDecision = `update fallback set turn = turn + 1, taken = $2,
	decider = case $3::bigint when 0 then decider else $3 end,
	decided = case $3::bigint when 0 then decided else clock_timestamp() end where turn = $1`
	writeOutages  = "update fallback set revision = revision + 1, state = $1"
	forgetTallies = "delete from tallies where at < clock_timestamp() - $1 * interval '1 microsecond' and seq <= $2"
	forgetProbes  = "delete from probes where at < clock_timestamp() - interval '1 hour'"
)

// Conclude implements [store.Degradation].
func (s *Store) Conclude(ctx context.Context, c store.Conclusion) error {
	err := s.tx(ctx, func(t *tx) error {
		mine := false
		t.queue(writeDecision, c.Turn, c.Taken, c.Node).Exec(func(tag pgconn.CommandTag) error {
			mine = tag.RowsAffected() > 0
			return nil
		})
		if err := t.send(ctx); err != nil {
			return err
		}
		if !mine {
			return store.ErrConflict
		}
		if c.State != nil {
			t.queue(writeOutages, c.State)
		}
		if c.Forget > 0 {
			t.queue(forgetTallies, c.Forget.Microseconds(), c.Taken)
			t.queue(forgetProbes)
		}
		if err := t.audit(ctx, c.Audits...); err != nil {
			return err
		}
		return t.commit(ctx)
	})
	if err != nil {
		return fmt.Errorf("write what was decided about fallbacks: %w", err)
	}
	return nil
}

const readOutages = "select state, revision from fallback"

// Outages implements [store.Degradation].
func (s *Store) Outages(ctx context.Context) (state []byte, revision int64, err error) {
	if err := s.pool.QueryRow(ctx, readOutages).Scan(&state, &revision); err != nil {
		return nil, 0, fmt.Errorf("read outages: %w", err)
	}
	return state, revision, nil
}

const takeProbe = `insert into probes (outage, at) values ($1, clock_timestamp())
	on conflict (outage) do update set at = excluded.at where probes.at <= excluded.at - $2 * interval '1 microsecond' returning true`

// TakeProbe implements [store.Degradation].
func (s *Store) TakeProbe(ctx context.Context, outage string, gap time.Duration) (taken bool, err error) {
	err = s.tx(ctx, func(t *tx) error {
		t.queue(takeProbe, outage, gap.Microseconds()).QueryRow(func(r pgx.Row) error {
			if err := r.Scan(&taken); !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			taken = false
			return nil
		})
		return t.commit(ctx)
	})
	if err != nil {
		return false, fmt.Errorf("take the probe of %s: %w", outage, err)
	}
	return taken, nil
}
