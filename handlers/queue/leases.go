package queue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/guard"
)

// This file looks for tasks whose workers did not report. No index has the ends of leases, because
// a claim would have to write an entry for each task. Instead, a claim writes one row for all of its
// tasks, with the time of the next look. Most of them have ended by then.

const (
	// taken are the tasks that workers hold.
	taken = `(select distinct u.id from task_leases l, unnest(l.ids) as u (id)) h,
	lateral (select * from tasks o where o.id = h.id and o.until is not null offset 0) t`

	// A look deletes the rows whose time has come, and writes the tasks that are still held to new
	// rows. Late tasks are due again at once, until they are taken back.
	findLate = `
with over as (
	delete from task_leases where ctid = any (array(
		select ctid from task_leases where until < now() and until > $2 order by until limit $1 for update))
	returning ids
), held as materialized (
	select t.* from (select distinct u.id from over, unnest(ids) as u (id)) h, lateral (
		select o.id, o.epoch, o.state = 2 as running, o.lost, o.worker, o.until from tasks o
		where o.id = h.id and o.until is not null offset 0) t
), kept as (
	insert into task_leases (until, ids)
	select greatest(now(), min(until)), array_agg(id)
	from (select id, until, (row_number() over (order by until) - 1) / ` + leasedAtOnce + ` as part from held) p group by part
), late as (
	select id, epoch, running, lost, worker from held where until < now() order by until limit $3
)
select 0::bigint, count(*)::int, false, 0, '' from over
union all
select * from late`

	leasedAtOnce = "1000" // tasks of one row
	leasesAtOnce = 100    // rows of one look
	leasesLooks  = 100    // looks of one clean-up
)

// leases remembers up to which time all ended leases have been handled. While a transaction is left
// open, the index entries of all earlier leases lie before that.
type leases struct {
	mu   sync.Mutex // guards the following
	from time.Time  // by the store's clock
	all  time.Time  // when to read everything again
}

// These bound how far before the last look the next one begins, for claims in flight, and how
// rarely everything is read. The longest interval bounds the effect of a process or server that
// stood still.
const (
	leasesMargin    = 30 * time.Second
	leasesPause     = time.Minute
	leasesPauseMost = 5 * time.Minute
	leasesShare     = 100 // a full read may take at most one part in this of the time
)

func (l *leases) start(now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !now.Before(l.all) {
		return time.Time{}
	}
	return l.from
}

// looked notes that nothing is left before a time of the store.
func (l *leases) looked(from, until time.Time, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); from.IsZero() {
		l.all = now.Add(min(max(leasesPause, leasesShare*now.Sub(began)), leasesPauseMost))
	}
	l.from = until.Add(-leasesMargin)
}

// ReclaimTasks implements [store.TaskMaintenance].
func (s *Store) ReclaimTasks(ctx context.Context, limit, maxLost int) (n int, err error) {
	began := time.Now()
	from := s.leases.start(began)
	for range leasesLooks {
		late, err := s.findLate(ctx, from, limit-n, maxLost)
		if err != nil {
			return n, err
		}
		// If its worker is back, there are two reports, and the first one counts.
		lost, err := s.ReportTasks(ctx, late.dead)
		if err != nil {
			return n, err
		}
		back, err := s.takeBack(ctx, &late)
		n += len(late.dead.Failed) - len(lost) + back
		if err != nil || n >= limit {
			return n, err
		}
		if late.rows < leasesAtOnce {
			if len(late.dead.Failed)+len(late.ids) < limit {
				s.leases.looked(from, late.now, began)
			}
			break
		}
	}
	return n, nil
}

// lateTasks are tasks whose workers did not report in time.
type lateTasks struct {
	now         time.Time // of the look
	rows        int       // of leases that it has seen
	dead        Report    // for tasks that have lost too many workers
	ids, delays []int64   // of the others, with their delays in microseconds
	epochs      []int32
}

func (s *Store) findLate(ctx context.Context, from time.Time, limit, maxLost int) (late lateTasks, err error) {
	err = s.send(ctx, func(b *pgx.Batch) {
		late = lateTasks{}
		b.Queue(databaseTime).QueryRow(func(row pgx.Row) error { return row.Scan(&late.now) })
		b.Queue(findLate, leasesAtOnce, from, limit).Query(func(rows pgx.Rows) error { return late.read(rows, maxLost) })
	})
	return late, err
}

func (l *lateTasks) read(rows pgx.Rows, maxLost int) error {
	var (
		ref     Ref
		running bool
		lost    int
		worker  string
	)
	_, err := pgx.ForEachRow(rows, []any{&ref.ID, &ref.Epoch, &running, &lost, &worker}, func() error {
		if ref.ID == 0 {
			l.rows = ref.Epoch
			return nil
		}
		if running && lost >= maxLost {
			why := fmt.Sprintf("its worker was not heard of %d times; the last was %s", lost+1, worker)
			l.dead.Failed = append(l.dead.Failed, Failure{TaskRef: ref, Error: why})
			return nil
		}
		delay := time.Duration(0)
		if running {
			delay = guard.SuspectDelay(lost, maxLost)
		}
		l.ids, l.epochs, l.delays = append(l.ids, ref.ID), append(l.epochs, int32(ref.Epoch)), append(l.delays, delay.Microseconds())
		return nil
	})
	return err
}
