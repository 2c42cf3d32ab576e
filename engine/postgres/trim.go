package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"procaas/engine/store"
)

// These bound how much one Trim removes, in addition to one partition.
const (
	trimEvents = 5000
	trimRest   = 1000
)

const (
	// The partitions of days that are over, with how long they have been, in microseconds.
	findPartitions = `select name, age from (select c.relname as name, (extract(epoch from clock_timestamp()
		- (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp at time zone 'UTC') * 1000000)::bigint as age
		from pg_inherits i join pg_class c on c.oid = i.inhrelid
		where i.inhparent = 'history'::regclass and c.relname ~ '^history_[0-9]{8}$') p
	where age > 0 order by name`
	// Each step finds the next pipeline in the index, however many runs the one before has.
	findPipelines = `with recursive p (pipeline) as (
		(select pipeline from %[1]s order by pipeline limit 1)
		union all select (select h.pipeline from %[1]s h where h.pipeline > p.pipeline order by h.pipeline limit 1)
		from p where p.pipeline is not null)
	select pipeline from p where pipeline is not null`
	deletePast = "delete from %[1]s where ctid = any (array (select ctid from %[1]s where pipeline = any ($1::text[]) limit $2))"
	// A transaction that waits for this lock blocks all later ones, so it gives up soon and
	// retries.
	shortLocks     = "set local lock_timeout = '200ms'"
	deleteFromRest = `delete from history_rest where ctid = any (array (select ctid from history_rest h
		where ended < clock_timestamp() - coalesce((select k.keep from unnest($2::text[], $3::bigint[]) as k (pipeline, keep)
			where k.pipeline = h.pipeline), $1::bigint) * interval '1 microsecond' limit $4))`
	// The id of an event whose run is kept for longer is marked with its pipeline, so that later its row alone says how long it is
	// kept. The run has ended after it, or on another server whose clock is behind. The latest event of a trigger stays, because it
	// says when the trigger last fired.
	deleteOldEvents = `with keep as materialized (select * from unnest($2::text[], $3::bigint[]) as k (pipeline, keep)),
	old as materialized (
		select e.ctid as tid, case when e.kept_for is null and cardinality($2) > 0 then (select h.pipeline from history h
			where h.id = e.run and h.ended > e.accepted - interval '1 day' and h.pipeline = any ($2) limit 1) end as longer
		from events e where accepted < clock_timestamp() - $1::bigint * interval '1 microsecond'
		and (kept_for is null or accepted < clock_timestamp()
			- coalesce((select keep.keep from keep where keep.pipeline = kept_for), $1) * interval '1 microsecond')
		and not exists (select from runs where runs.id = e.run offset 0)
		and not (source like 'procaas/trigger/%' and id = (select max(id) from events m where m.source = e.source))
		limit $4),
	kept as (update events set kept_for = old.longer from old where events.ctid = old.tid and old.longer is not null),
	gone as (delete from events where ctid = any (array (select tid from old where longer is null)))
	select count(*) from old`
)

// Trim implements [store.Trimmer].
func (s *Store) Trim(ctx context.Context, keep store.Retention) (more bool, err error) {
	err = s.db.alone(ctx, trimLock, func(t *tx) error {
		more = false
		terms := termsOf(keep)
		var longer []string
		var longerTimes []int64
		for i, p := range terms.own {
			if keep.Pipelines[p] > keep.Keep {
				longer, longerTimes = append(longer, p), append(longerTimes, terms.times[i])
			}
		}
		if !keep.Archived {
			t.queue(deleteFromRest, terms.others, terms.own, terms.times, trimRest).Exec(func(c pgconn.CommandTag) error {
				more = more || c.RowsAffected() == trimRest
				return nil
			})
		}
		if terms.others != nil {
			t.queue(deleteOldEvents, terms.others, longer, longerTimes, trimEvents).QueryRow(func(r pgx.Row) error {
				var ids int
				err := r.Scan(&ids)
				more = more || ids == trimEvents
				return err
			})
		}
		return t.send(ctx)
	})
	if err != nil {
		return false, fmt.Errorf("trim: %w", err)
	}
	left, err := s.trimDays(ctx, keep)
	if err != nil {
		return false, fmt.Errorf("trim: %w", err)
	}
	return more || left, nil
}

// A pastDay is a partition of the history whose day is over.
type pastDay struct {
	Name string
	Age  int64 // how long ago it ended, in microseconds
}

// trimmedDays has what was looked for in partitions, so that one that is kept for a pipeline is not read each minute.
type trimmedDays struct {
	mu    sync.Mutex
	known map[string]string // partition → what may leave it, when it last had nothing of it
}

// forgetAllBut forgets partitions that are not there any more.
func (t *trimmedDays) forgetAllBut(there []pastDay) {
	known := make(map[string]string, len(there))
	for _, d := range there {
		known[d.Name] = t.known[d.Name]
	}
	t.known = known
}

// trimDays removes old runs of one partition: the partition if none of its runs is to be kept, or some of its runs. It reports whether
// there may be more. Partitions in which runs still end have none, since their day must be over for the whole retention.
func (s *Store) trimDays(ctx context.Context, keep store.Retention) (more bool, err error) {
	s.days.mu.Lock()
	defer s.days.mu.Unlock()
	err = s.db.alone(ctx, partitionLock, func(t *tx) error {
		more = false
		var past []pastDay
		t.queue(findPartitions).Query(rows(&past, pgx.RowToStructByPos[pastDay]))
		if err := t.send(ctx); err != nil {
			return err
		}
		s.days.forgetAllBut(past)
		for _, d := range past {
			leaves := d.leaves(keep)
			if leaves == s.days.known[d.Name] {
				continue
			}
			left, err := t.trimDay(ctx, d, keep)
			if err != nil || left == dayShrank {
				more = err == nil
				return err
			}
			if left == dayStays {
				s.days.known[d.Name] = leaves
			}
		}
		return nil
	})
	return more, err
}

// leaves describes what may leave a partition: pipelines, and * for those without a retention of their own.
func (d pastDay) leaves(keep store.Retention) string {
	age := time.Duration(d.Age) * time.Microsecond
	var of, stay []string
	for _, p := range slices.Sorted(maps.Keys(keep.Pipelines)) {
		if keep.IsPast(p, age) {
			of = append(of, p)
		} else {
			stay = append(stay, p)
		}
	}
	if keep.Keep > 0 && age >= keep.Keep {
		return "* but " + strings.Join(stay, " ")
	}
	return strings.Join(of, " ")
}

// What trimDay has made of a partition.
type dayLeft int

const (
	dayStays  dayLeft = iota // it has nothing that may leave
	dayShrank                // runs have left it, or it was dropped
	dayWaits                 // it has runs that leave when they are archived
)

// trimDay removes some of the old runs of a partition.
func (t *tx) trimDay(ctx context.Context, d pastDay, keep store.Retention) (dayLeft, error) {
	there, old, err := t.pipelinesOf(ctx, d, keep)
	if err != nil {
		return dayStays, err
	}
	switch {
	case len(there) == 0, len(old) == len(there) && !keep.Archived:
		t.queue(shortLocks)
		t.queue("drop table " + d.table())
	case len(old) == 0:
		return dayStays, nil
	case keep.Archived:
		return dayWaits, nil
	default:
		t.queue(fmt.Sprintf(deletePast, d.table()), old, trimRest)
	}
	return dayShrank, t.send(ctx)
}

// pipelinesOf returns the pipelines that have runs in a partition, and those of them whose runs may leave it.
func (t *tx) pipelinesOf(ctx context.Context, d pastDay, keep store.Retention) (there, old []string, err error) {
	t.queue(fmt.Sprintf(findPipelines, d.table())).Query(rows(&there, pgx.RowTo[string]))
	if err := t.send(ctx); err != nil {
		return nil, nil, err
	}
	for _, p := range there {
		if keep.IsPast(p, time.Duration(d.Age)*time.Microsecond) {
			old = append(old, p)
		}
	}
	return there, old, nil
}

// table returns the name of the partition in SQL.
func (d pastDay) table() string { return pgx.Identifier{d.Name}.Sanitize() }

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
