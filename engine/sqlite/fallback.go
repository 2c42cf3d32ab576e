package sqlite

import (
	"context"
	"database/sql"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

const insertTallies = "insert into tallies (node, number, at, counts) values (?, ?, ?, ?) on conflict do nothing"

// Report implements [store.Degradation].
func (s *Store) Report(ctx context.Context, node, number int64, tallies []model.Tally) error {
	return s.writer.do(ctx, func(t *tx) error {
		return t.exec(insertTallies, node, number, t.now.UnixMicro(), store.EncodeTallies(tallies))
	})
}

const (
	readFallback = "select turn, decider, decided, taken, state from fallback"
	freshTallies = "select seq, counts from tallies where seq > ? order by seq"
	pastTallies  = "select seq, counts from tallies where seq <= ? and at > ? order by seq"
)

// Deliberate implements [store.Degradation]. It waits for its turn among the
// writers, so that it sees all reports up to the last one.
func (s *Store) Deliberate(ctx context.Context, keep time.Duration) (d store.Deliberation, err error) {
	err = s.writer.do(ctx, func(t *tx) error {
		d = store.Deliberation{Now: t.now}
		var decided sql.NullInt64
		if _, err := t.row(readFallback, nil, &d.Turn, &d.Decider, &decided, &d.Taken, &d.State); err != nil {
			return err
		}
		d.Decided, d.Reported = fromMicros(decided), d.Taken
		var err error
		if d.Fresh, err = t.tallies(freshTallies, &d.Reported, d.Taken); err != nil || keep == 0 {
			return err
		}
		var last int64
		d.Past, err = t.tallies(pastTallies, &last, d.Taken, t.now.Add(-keep).UnixMicro())
		return err
	})
	return d, err
}

// tallies reads reports, and notes the last of them.
func (t *tx) tallies(query string, last *int64, args ...any) (all []model.Tally, err error) {
	_, err = rows(t, query, args, func(r *sql.Rows) (none struct{}, err error) {
		var counts []byte
		if err := r.Scan(last, &counts); err != nil {
			return none, err
		}
		all, err = store.DecodeTallies(all, counts)
		return none, err
	})
	return all, err
}

const (
	writeDecision = "update fallback set turn = turn + 1, taken = ? where turn = ?"
	writeDecider  = "update fallback set decider = ?, decided = ?"
	writeOutages  = "update fallback set revision = revision + 1, state = ?"
	forgetTallies = "delete from tallies where at < ? and seq <= ?"
	forgetProbes  = "delete from probes where at < ?"
)

// Conclude implements [store.Degradation].
func (s *Store) Conclude(ctx context.Context, c store.Conclusion) error {
	return s.writer.do(ctx, func(t *tx) error {
		if n, err := t.count(writeDecision, c.Taken, c.Turn); err != nil || n == 0 {
			if err == nil {
				err = store.ErrConflict
			}
			return err
		}
		if c.Node != 0 {
			if err := t.exec(writeDecider, c.Node, t.now.UnixMicro()); err != nil {
				return err
			}
		}
		if c.State != nil {
			if err := t.exec(writeOutages, c.State); err != nil {
				return err
			}
		}
		for _, a := range c.Audits {
			if _, err := t.audit(a); err != nil {
				return err
			}
		}
		if c.Forget == 0 {
			return nil
		}
		if err := t.exec(forgetTallies, t.now.Add(-c.Forget).UnixMicro(), c.Taken); err != nil {
			return err
		}
		return t.exec(forgetProbes, t.now.Add(-time.Hour).UnixMicro())
	})
}

const readOutages = "select state, revision from fallback"

// Outages implements [store.Degradation].
func (s *Store) Outages(ctx context.Context) (state []byte, revision int64, err error) {
	err = s.read.QueryRowContext(ctx, readOutages).Scan(&state, &revision)
	return state, revision, err
}

const takeProbe = `insert into probes (outage, at) values (?, ?)
	on conflict (outage) do update set at = excluded.at where probes.at <= ?`

// TakeProbe implements [store.Degradation].
func (s *Store) TakeProbe(ctx context.Context, outage string, gap time.Duration) (taken bool, err error) {
	err = s.writer.do(ctx, func(t *tx) error {
		n, err := t.count(takeProbe, outage, t.now.UnixMicro(), t.now.Add(-gap).UnixMicro())
		taken = n > 0
		return err
	})
	return taken, err
}
