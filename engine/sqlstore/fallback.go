package sqlstore

import (
	"context"
	"fmt"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// A Degradation implements [store.Degradation] in a database.
type Degradation struct{ db DB }

const (
	// A report holds this lock while it takes its number. A decision holds it exclusively, and so
	// sees all reports with lower numbers.
	shareFallback = "select 1 from fallback {share}"
	insertTallies = "insert into tallies (node, number, at, counts) values ($1, $2, {now}, $3) on conflict (node, number) do nothing"
)

// Report implements [store.Degradation].
func (g *Degradation) Report(ctx context.Context, node, number int64, tallies []model.Tally) error {
	err := g.db.Write(ctx, func(t Tx) error {
		t.Queue(shareFallback, nil)
		t.Queue(insertTallies, []any{node, number, store.EncodeTallies(tallies)})
		return nil
	})
	if err != nil {
		return fmt.Errorf("report calls: %w", err)
	}
	return nil
}

const (
	// A report that takes a number shares this lock until its commit. So the next statements see
	// all reports that have a number.
	lockFallback = "select {now}, turn, decider, decided, taken, state from fallback {lock}"
	freshTallies = "select seq, counts from tallies where seq > (select taken from fallback) order by seq"
	pastTallies  = `select seq, counts from tallies where seq <= (select taken from fallback)
	and at > {now} - $1 * {micro} order by seq`
)

// Deliberate implements [store.Degradation].
func (g *Degradation) Deliberate(ctx context.Context, keep time.Duration) (d store.Deliberation, err error) {
	err = g.db.Write(ctx, func(t Tx) error {
		d = store.Deliberation{}
		t.Queue(lockFallback, nil, at(&d.Now), &d.Turn, &d.Decider, at(&d.Decided), &d.Taken, &d.State)
		var last, past int64
		readTallies(t, freshTallies, nil, &last, &d.Fresh)
		if keep > 0 {
			readTallies(t, pastTallies, []any{keep.Microseconds()}, &past, &d.Past)
		}
		err := t.Send(ctx)
		d.Reported = max(d.Taken, last)
		return err
	})
	if err != nil {
		return d, fmt.Errorf("read what decides about fallbacks: %w", err)
	}
	return d, nil
}

// readTallies reads reports and notes the last of them.
func readTallies(t Tx, query string, args []any, last *int64, all *[]model.Tally) {
	t.Query(query, args, func(r Row) error {
		var counts []byte
		err := r.Scan(last, &counts)
		if err == nil {
			*all, err = store.DecodeTallies(*all, counts)
		}
		return err
	})
}

const (
	writeDecision = `update fallback set turn = turn + 1, taken = $2,
	decider = case cast($3 as bigint) when 0 then decider else $3 end,
	decided = case cast($3 as bigint) when 0 then decided else {now} end where turn = $1`
	writeOutages  = "update fallback set revision = revision + 1, state = $1"
	writeServing  = "{write serving}"
	forgetTallies = "delete from tallies where at < {now} - $1 * {micro} and seq <= $2"
	forgetProbes  = "delete from probes where at < {now} - 3600000000 * {micro}"
)

// Conclude implements [store.Degradation].
func (g *Degradation) Conclude(ctx context.Context, c store.Conclusion) error {
	err := g.db.Write(ctx, func(t Tx) error {
		mine := t.Queue(writeDecision, []any{c.Turn, c.Taken, c.Node})
		if err := t.Send(ctx); err != nil {
			return err
		}
		if mine.Rows == 0 {
			return store.ErrConflict
		}
		if c.State != nil {
			t.Queue(writeOutages, []any{c.State})
		}
		if c.Serve.Old != "" {
			t.Queue(writeServing, []any{c.Serve.Old, c.Serve.String()})
		}
		if c.Forget > 0 {
			t.Queue(forgetTallies, []any{c.Forget.Microseconds(), c.Taken})
			t.Queue(forgetProbes, nil)
		}
		return Audit(ctx, t, c.Audits...)
	})
	if err != nil {
		return fmt.Errorf("write what was decided about fallbacks: %w", err)
	}
	return nil
}

const readOutages = "select state, revision from fallback"

// Outages implements [store.Degradation].
func (g *Degradation) Outages(ctx context.Context) (state []byte, revision int64, err error) {
	if err := find(ctx, g.db, readOutages, nil, &state, &revision); err != nil {
		return nil, 0, fmt.Errorf("read outages: %w", err)
	}
	return state, revision, nil
}

const takeProbe = `insert into probes (outage, at) values ($1, {now})
	on conflict (outage) do update set at = excluded.at where probes.at <= excluded.at - $2 * {micro}`

// TakeProbe implements [store.Degradation].
func (g *Degradation) TakeProbe(ctx context.Context, outage string, gap time.Duration) (bool, error) {
	var taken *Result
	err := g.db.Write(ctx, func(t Tx) error {
		taken = t.Queue(takeProbe, []any{outage, gap.Microseconds()})
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("take the probe of %s: %w", outage, err)
	}
	return taken.Rows > 0, nil
}
