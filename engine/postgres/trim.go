package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// These bound how much one Trim removes, in addition to one partition.
const (
	trimEvents = 5000
	trimRest   = 1000
)

const (
	findPartitions = `select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
	where i.inhparent = 'history'::regclass and c.relname ~ '^history_[0-9]{8}$'
	and to_date(right(c.relname, 8), 'YYYYMMDD') + 1 <= ((clock_timestamp() - $1 * interval '1 microsecond') at time zone 'UTC')::date
	order by 1 limit 2`
	// A transaction that waits for this lock blocks all later ones, so it gives up soon and
	// retries.
	shortLocks     = "set local lock_timeout = '200ms'"
	deleteFromRest = `delete from history_rest where ctid = any (array (
		select ctid from history_rest where ended < clock_timestamp() - $1 * interval '1 microsecond' limit $2))`
	// The latest event of a trigger stays, because it says when the trigger last fired.
	deleteOldEvents = `delete from events where ctid = any (array (
		select ctid from events e where accepted < clock_timestamp() - $1 * interval '1 microsecond'
		and not exists (select from runs where runs.id = e.run offset 0)
		and not (source like 'procaas/trigger/%' and id = (select max(id) from events m where m.source = e.source))
		limit $2))`
)

// Trim implements [store.Trimmer].
func (s *Store) Trim(ctx context.Context, keep time.Duration) (more bool, err error) {
	err = s.db.alone(ctx, trimLock, func(t *tx) error {
		more = false
		note := func(limit int64) func(pgconn.CommandTag) error {
			return func(c pgconn.CommandTag) error { more = more || c.RowsAffected() == limit; return nil }
		}
		t.queue(deleteFromRest, keep.Microseconds(), trimRest).Exec(note(trimRest))
		t.queue(deleteOldEvents, keep.Microseconds(), trimEvents).Exec(note(trimEvents))
		return t.send(ctx)
	})
	if err != nil {
		return false, fmt.Errorf("trim: %w", err)
	}
	dropped, err := s.dropPartition(ctx, keep)
	if err != nil {
		return false, fmt.Errorf("trim: %w", err)
	}
	return more || dropped, nil
}

// dropPartition drops the oldest partition of the history if all of its runs are too old. It
// reports whether there may be more.
func (s *Store) dropPartition(ctx context.Context, keep time.Duration) (more bool, err error) {
	err = s.db.alone(ctx, partitionLock, func(t *tx) error {
		more = false
		var old []string
		t.queue(findPartitions, keep.Microseconds()).Query(rows(&old, pgx.RowTo[string]))
		if err := t.send(ctx); err != nil || len(old) == 0 {
			return err
		}
		more = len(old) > 1
		t.queue(shortLocks)
		t.queue("drop table " + pgx.Identifier{old[0]}.Sanitize())
		return t.send(ctx)
	})
	return more, err
}

const (
	// The index of pipeline and seq finds the bound. A run that ends at the same time only makes
	// the history longer.
	thinRuns = `delete from history h using (
		select seq, ended from history where pipeline = $1 and seq <= (
			select seq from history where pipeline = $1 order by seq desc limit 1 offset $2)
		order by seq limit $3) old
	where h.seq = any (array[old.seq]) and h.ended = old.ended returning h.id`
)

// TrimRuns implements [store.Trimmer].
func (s *Store) TrimRuns(ctx context.Context, pipeline string, keep int) (more bool, err error) {
	err = s.db.alone(ctx, trimLock, func(t *tx) error {
		more = false
		var gone []string
		t.queue(planFreely)
		t.queue(thinRuns, pipeline, keep, trimRest).Query(rows(&gone, pgx.RowTo[string]))
		if err := t.send(ctx); err != nil {
			return err
		}
		more = len(gone) == trimRest
		return t.commit(ctx)
	})
	if err != nil {
		return false, fmt.Errorf("thin pipeline %s: %w", pipeline, err)
	}
	return more, nil
}
