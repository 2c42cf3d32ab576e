package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"procaas/engine/sqlstore"
	"procaas/engine/store"
)

// This file lets runs leave through an archive: it reads those that may leave, and deletes those that are archived. As without an
// archive, a run may leave when its whole day is past.

const (
	// The index of pipeline and seq finds the first runs of each pipeline.
	findPast = `select %%s from (select h.* from unnest($1::text[]) p (name)
		cross join lateral (select * from %s d where d.pipeline = p.name order by d.seq limit $2) h limit $2) h`
	findRest = `select %s from (select * from history_rest h where ended < clock_timestamp()
		- coalesce((select k.keep from unnest($2::text[], $3::bigint[]) as k (pipeline, keep) where k.pipeline = h.pipeline), $1::bigint)
		* interval '1 microsecond' limit $4) h`

	// The bounds leave the partitions of other days out.
	forgetRuns = `delete from history h using unnest($1::text[], $2::bigint[]) as g (id, version)
	where h.id = g.id and h.version = g.version and h.ended between $3 and $4`
)

// Past implements [store.Trimmer]. A page has runs of one partition.
func (s *Store) Past(ctx context.Context, keep store.Retention, limit int, bytes int64) ([]store.RunRecord, error) {
	p := &sqlstore.Past{Limit: limit, Bytes: bytes}
	err := s.pastOfDays(ctx, p, keep)
	if err == nil && len(p.Runs) == 0 {
		terms := termsOf(keep)
		err = s.ReadPast(ctx, p, findRest, terms.others, terms.own, terms.times)
	}
	for _, pipeline := range slices.Sorted(maps.Keys(keep.Last)) {
		if err == nil && len(p.Runs) == 0 {
			err = s.ReadSurplus(ctx, p, pipeline, keep.Last[pipeline])
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read what may leave: %w", err)
	}
	return p.Runs, nil
}

// pastOfDays reads runs of the first partition that has some that may leave.
func (s *Store) pastOfDays(ctx context.Context, p *sqlstore.Past, keep store.Retention) error {
	s.days.mu.Lock()
	defer s.days.mu.Unlock()
	var first pastDay
	var old []string
	err := s.db.tx(ctx, func(t *tx) error {
		old = nil
		var past []pastDay
		t.queue(findPartitions).Query(rows(&past, pgx.RowToStructByPos[pastDay]))
		if err := t.send(ctx); err != nil {
			return err
		}
		s.days.forgetAllBut(past)
		for _, first = range past {
			leaves := first.leaves(keep)
			if leaves == s.days.known[first.Name] {
				continue
			}
			var there []string
			var err error
			there, old, err = t.pipelinesOf(ctx, first, keep)
			if err != nil || len(old) > 0 {
				return err
			}
			if len(there) > 0 { // Trim drops an empty one
				s.days.known[first.Name] = leaves
			}
		}
		return nil
	})
	if err != nil || len(old) == 0 {
		return err
	}
	return s.ReadPast(ctx, p, fmt.Sprintf(findPast, first.table()), old)
}

// Forget implements [store.Trimmer].
func (s *Store) Forget(ctx context.Context, runs []store.RunRecord) error {
	for some := range slices.Chunk(runs, trimRest) {
		ids, versions := make([]string, len(some)), make([]int64, len(some))
		from, to := some[0].Ended, some[0].Ended
		for i, r := range some {
			ids[i], versions[i] = r.ID, r.Version
			if r.Ended.Before(from) {
				from = r.Ended
			}
			if r.Ended.After(to) {
				to = r.Ended
			}
		}
		err := s.db.tx(ctx, func(t *tx) error {
			t.queue(planFreely)
			t.queue(forgetRuns, ids, versions, from, to)
			return t.commit(ctx)
		})
		if err != nil {
			return fmt.Errorf("forget archived runs: %w", err)
		}
	}
	return nil
}

// A terms is how long runs are kept, in the form of a query.
type terms struct {
	others *int64 // of pipelines without a retention of their own, in microseconds; nil is for ever
	own    []string
	times  []int64 // of own
}

func termsOf(keep store.Retention) (t terms) {
	for _, p := range slices.Sorted(maps.Keys(keep.Pipelines)) {
		t.own, t.times = append(t.own, p), append(t.times, keep.Pipelines[p].Microseconds())
	}
	if keep.Keep > 0 {
		us := keep.Keep.Microseconds()
		t.others = &us
	}
	return t
}
