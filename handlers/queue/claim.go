package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"procaas/engine/store"

	"github.com/jackc/pgx/v5"
)

// ClaimTasks implements [store.TaskWork].
func (s *Store) ClaimTasks(ctx context.Context, c Claim) ([]Task, error) {
	tasks, _, err := s.ExchangeTasks(ctx, Report{}, c)
	return tasks, err
}

// ReportTasks implements [store.TaskWork].
func (s *Store) ReportTasks(ctx context.Context, r Report) ([]Ref, error) {
	_, lost, err := s.ExchangeTasks(ctx, r, Claim{})
	return lost, err
}

// maxLooks bounds the looks of one claim. Another look is worthwhile if the last one has set tasks
// aside because their keys are full.
const maxLooks = 8

// ExchangeTasks implements [store.TaskWork].
func (s *Store) ExchangeTasks(ctx context.Context, r Report, c Claim) ([]Task, []Ref, error) {
	s.asked.note(&c)
	if len(c.Types) <= fewTypes {
		return s.exchange(ctx, r, c)
	}
	busy, err := s.busyTypes(ctx, &c)
	if err != nil {
		return nil, nil, err
	}
	size := max(fewTypes, c.Limit)
	if c.Limit <= 0 {
		size = len(c.Types)
	}
	var lost []Ref
	for first := true; first || len(busy) > 0; first = false {
		n := min(size, len(busy))
		c.Types, busy = busy[:n], busy[n:]
		tasks, gone, err := s.exchange(ctx, r, c)
		lost = append(lost, gone...)
		if err != nil && !first {
			break // the report is recorded
		}
		if err != nil || len(tasks) > 0 {
			return tasks, lost, err
		}
		r = Report{}
	}
	return nil, lost, nil
}

// fewTypes is the number of types up to which a claim looks at all of them at once. A look locks as
// many tasks of each type as the worker wants of it, and other claims skip locked tasks. So a claim
// of more types first reads which of them have ready tasks. The most urgent n tasks are among the n
// types with the most urgent first tasks. If other claims took those, the next types follow.
const fewTypes = 100

const busyTypes = `
select w.place from unnest($1::text[], $2::bigint[], $3::int[], $4::timestamptz[]) with ordinality as w (type, most, rank, since, place),
	lateral (
		select r.rank, r.deadline, r.id from tasks r
		where r.type = w.type and r.listed = 0 and r.state = 0 and (r.rank, r.deadline) >= (w.rank, w.since)
		order by r.rank, r.deadline, r.id limit 1
	) j
where not exists (select from task_types m where m.type = w.type and m.mode = 'paused')
	and (w.most = 0 or w.most > (select count(*) from tasks h where h.type = w.type and h.listed = 2))
order by j.rank, j.deadline, j.id`

// busyTypes returns the types of a claim that have ready tasks and room for them, in the order of
// their first tasks. It locks nothing.
func (s *Store) busyTypes(ctx context.Context, c *Claim) (busy []store.TaskWant, err error) {
	var (
		types []string
		taken []int64
		ranks []int32
		since []time.Time
		wants []store.TaskWant
	)
	for _, w := range c.Types {
		if w.Limit > 0 {
			from := s.horizon.peek(w.Type)
			types, taken = append(types, w.Type), append(taken, int64(w.MaxTaken))
			ranks, since = append(ranks, int32(from.rank)), append(since, from.at)
			wants = append(wants, w)
		}
	}
	err = s.send(ctx, func(b *pgx.Batch) {
		busy = nil // of an earlier try
		b.Queue(busyTypes, types, taken, ranks, since).Query(func(rows pgx.Rows) error {
			var place int
			_, err := pgx.ForEachRow(rows, []any{&place}, func() error {
				busy = append(busy, wants[place-1])
				return nil
			})
			return err
		})
	})
	return busy, err
}

// exchange reports and claims, and looks at all types of the claim together.
func (s *Store) exchange(ctx context.Context, r Report, c Claim) ([]Task, []Ref, error) {
	var (
		got   *claiming
		told  *reporting
		tasks []Task
		lost  []Ref
	)
	if mayReady(&r) {
		s.horizon.lowerAll()
	}
	for turn := range maxLooks {
		var under *look // shared by all tries
		err := s.send(ctx, func(b *pgx.Batch) {
			got, told = &claiming{horizon: &s.horizon, look: under}, &reporting{}
			if turn == 0 {
				told.queue(b, &r)
			}
			got.queue(b, &c)
			under = got.look
		})
		got.ended(err)
		if mayReady(&r) || err != nil && !r.Plain {
			s.horizon.lowerAll() // for claims in flight
		}
		if err != nil && turn > 0 {
			break // the tasks of the earlier looks are taken
		}
		if err != nil {
			return nil, nil, err
		}
		s.hint(told.types...)
		lost = append(lost, told.lost...)
		if tasks == nil {
			tasks = got.tasks
		} else {
			tasks = append(tasks, got.tasks...)
		}
		if got.aside == 0 || len(got.tasks) > 0 {
			break
		}
	}
	if !slices.IsSortedFunc(tasks, before) {
		slices.SortFunc(tasks, before)
	}
	return tasks, lost, nil
}

// mayReady reports whether a report may make tasks ready that it returns. Those that follow ended
// ones are known after it.
func mayReady(r *Report) bool {
	return slices.ContainsFunc(r.Failed, func(f Failure) bool { return f.Retry && f.Delay <= 0 }) ||
		slices.ContainsFunc(r.Snoozed, func(z Snooze) bool { return z.Delay <= 0 })
}

// before compares tasks in the order of claims.
func before(a, b Task) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Deadline.Compare(b.Deadline), cmp.Compare(a.ID, b.ID))
}

// Types are locked one after another while their tasks are counted. A transaction that holds such a
// lock never waits for a task.
const lockTypes = `
select pg_advisory_xact_lock(('tasks'::regclass::oid::bigint - 2147483648)::int, hashtext(w.type))
from (select type from unnest($1::text[]) as u (type) order by hashtext(type)) w`

const taskColumns = `t.id, t.type, t.key, t.uid, t.payload, t.rank, t.state, t.slot, t.created, t.due, t.deadline, t.begun, t.until,
	t.timeout, t.epoch, t.failures, t.lost, t.worker, t.error`

// The columns that a claim returns. It already knows what all its tasks share.
const takenColumns = `t.id, t.type, t.key, t.uid, t.payload, t.rank, t.slot, t.created, t.due, t.deadline, t.begun, t.timeout, t.epoch,
	t.failures, t.lost, t.error`

// nextEpoch is [store.NextTaskEpoch].
const nextEpoch = "((t.epoch::bigint + 1 + floor(random() * 2147483646)::bigint) % 2147483647)::int"

const (
	// Only types whose tasks are counted have an index on something that a claim changes.
	takes = `state = $4::smallint, worker = $5, begun = now(), until = ` + leaseEnds + `,
	epoch = ` + nextEpoch + `, listed = case when t.type = any($8::text[]) then 2 else t.listed end`

	leaseEnds = "now() + $6::bigint * interval '1 microsecond'"

	// One look at several types. Rows are found again by their physical place, because they are
	// locked and stay there. A row that was changed after the start of the statement is locked at
	// its new place, which the statement does not see yet. It is not taken, and the next look finds
	// it. Rank and since are where the horizon begins the look. Only places and ids are kept for
	// the two changes, because whole rows would be copied once more.
	claimTasks = `
with found as materialized (
	select array_agg(f.place) as places, array_agg(f.id) as ids from (
		select j.place, j.id
		from unnest($1::text[], $2::bigint[], $3::bigint[], $9::int[], $10::timestamptz[]) as w (type, lim, most, rank, since),
			lateral (
				select case when w.most > 0 then least(w.lim, greatest(0, w.most - (
					select count(*) from tasks h where h.type = w.type and h.listed = 2))) else w.lim end as n
				where not exists (select from task_types m where m.type = w.type and m.mode = 'paused')
			) l,
			lateral (
				select r.ctid as place, r.rank, r.deadline, r.id from tasks r
				where r.type = w.type and r.listed = 0 and r.state = 0 and (r.rank, r.deadline) >= (w.rank, w.since)
				order by r.rank, r.deadline, r.id limit l.n for update skip locked
			) j
		order by j.rank, j.deadline, j.id limit $7) f
), leased as (
	insert into task_leases (until, ids) select ` + leaseEnds + `, ids from found where ids is not null
)
update tasks t set ` + takes + ` where t.ctid = any((select places from found)::tid[])
returning ` + takenColumns

	// A look that limits how many tasks of a key are taken, for some of the types. Tasks beyond the
	// limit are set aside, so that no later look has to pass them. It reads more tasks than it
	// takes, because many in a row may have one key, but not all of them. If it has set some aside
	// and taken none, another look follows; see maxLooks.
	claimByKey = `
with frozen as materialized (` + frozenSlots + `), room as materialized (
	select w.type, w.per, l.n, coalesce(b.rank, 2147483647) as rank, coalesce(b.deadline, 'infinity') as deadline,
		coalesce(b.id, 9223372036854775807) as id
	from unnest($1::text[], $2::bigint[], $3::bigint[], $9::bigint[]) as w (type, lim, most, per),
		lateral (
			select case when w.most > 0 then least(w.lim, greatest(0, w.most - (
				select count(*) from tasks h where h.type = w.type and h.listed = 2))) else w.lim end as n
			where not exists (select from task_types m where m.type = w.type and m.mode = 'paused')
		) l
		left join lateral (
			select t.rank, t.deadline, t.id from tasks t where t.type = w.type and t.listed = 0 and t.state = 0 and exists (select from frozen)
			order by t.rank, t.deadline, t.id offset 4 * l.n + ` + lookPast + ` limit 1
		) b on true
), seen as materialized (
	select o.per, o.n, j.* from room o, lateral (
		select r.id, r.type, r.key, r.rank, r.deadline from tasks r
		where r.type = o.type and r.listed = 0 and r.state = 0
			and r.slot <> all (array(select slot from frozen)) and (r.rank, r.deadline, r.id) <= (o.rank, o.deadline, o.id)
		order by r.rank, r.deadline, r.id limit case when o.per > 0 then 4 * o.n + least(o.n, 1) * 100 else o.n end
		for update skip locked
	) j
), placed as materialized (
	select s.*, case when s.per = 0 or s.key = '' then -1 else
		row_number() over (partition by s.type, s.key order by s.rank, s.deadline, s.id)
		+ (select count(*) from tasks h where h.type = s.type and h.key = s.key and h.listed = 2) end as place
	from seen s
), allowed as materialized (
	select p.*, row_number() over (partition by p.type order by p.rank, p.deadline, p.id) as turn from placed p where p.place <= p.per
), chosen as materialized (
	select id from allowed where turn <= n order by rank, deadline, id limit $7
), aside as (
	update tasks t set state = 3, listed = 1 from placed p where t.id = any (array[p.id]) and p.place > p.per returning t.id
), taken as (
	update tasks t set ` + takes + `
	from chosen c where t.id = any (array[c.id]) returning ` + takenColumns + `
), leased as (
	insert into task_leases (until, ids) select ` + leaseEnds + `, array_agg(id) from taken having count(*) > 0
)
select t.*, 0::bigint as aside from taken t
union all
select 0, '', '', '', null, 0, 0::smallint, now(), now(), now(), now(), 0, 0, 0, 0, '', (select count(*) from aside)`
)

// The stored states.
var states = []store.TaskState{store.TaskReady, store.TaskStarting, store.TaskRunning, store.TaskWaiting}

const (
	stateStarting = 1
	stateRunning  = 2
	stateWaiting  = 3
)

// A claiming is a claim in flight.
type claiming struct {
	tasks  []Task
	most   int // tasks that it may return
	aside  int // tasks that were set aside because of their keys
	state  store.TaskState
	worker string
	lease  time.Duration
	last   string // the last type that was read

	horizon *horizon
	look    *look // nil if the claim ignores the horizon
}

// ended reports the outcome of the claim to the horizon.
func (g *claiming) ended(err error) {
	switch {
	case g.look == nil:
	case err != nil:
		g.horizon.failed(g.look)
	default:
		last := make(map[string]place, len(g.look.from))
		for i := range g.tasks {
			t := &g.tasks[i]
			at := place{-t.Priority, t.Deadline}
			if other, ok := last[t.Type]; !ok || other.before(at) {
				last[t.Type] = at
			}
		}
		g.horizon.took(g.look, last)
	}
}

func (g *claiming) queue(b *pgx.Batch, c *Claim) {
	var (
		types               []string
		guarded             = []string{}
		limits, taken, keys []int64
		keyed               bool
	)
	for _, w := range c.Types {
		if w.Limit <= 0 {
			continue
		}
		if w.MaxTaken > 0 || w.MaxPerKey > 0 {
			guarded = append(guarded, w.Type)
		}
		keyed = keyed || w.MaxPerKey > 0
		g.most += w.Limit
		types, limits = append(types, w.Type), append(limits, int64(w.Limit))
		taken, keys = append(taken, int64(w.MaxTaken)), append(keys, int64(w.MaxPerKey))
	}
	if len(types) == 0 {
		return
	}
	if keyed {
		b.Queue(lockOpenSlots)
	}
	if len(guarded) > 0 {
		b.Queue(lockTypes, guarded)
	}
	state := stateRunning
	if c.Prefetch {
		state = stateStarting
	}
	var total any // no bound
	if c.Limit > 0 {
		total, g.most = int64(c.Limit), min(g.most, c.Limit)
	}
	g.state, g.worker, g.lease = states[state], c.Worker, c.Lease.Truncate(time.Microsecond)
	args := []any{types, limits, taken, state, c.Worker, c.Lease.Microseconds(), total, guarded}
	if keyed {
		b.Queue(claimByKey, append(args, keys)...).Query(g.read)
	} else {
		ranks, since := make([]int32, len(types)), make([]time.Time, len(types))
		if g.look == nil {
			g.look = g.horizon.look(types)
			g.look.bounded = guarded
		}
		for i, t := range types {
			ranks[i], since[i] = int32(g.look.from[t].rank), g.look.from[t].at
		}
		b.Queue(claimTasks, append(args, ranks, since)...).Query(g.read)
	}
}

// A taskScan reads rows of tasks.
type taskScan struct {
	t            Task
	payload      []byte
	state        int
	timeout      int64
	begun, until *time.Time
	into         []any
}

// newTaskScan makes one for the columns of tasks, and further columns.
func newTaskScan(more ...any) *taskScan {
	s := &taskScan{}
	t := &s.t
	s.into = append([]any{
		&t.ID, &t.Type, &t.Key, &t.Unique, &s.payload, &t.Priority, &s.state, &t.Slot, &t.Created, &t.Due, &t.Deadline, &s.begun, &s.until,
		&s.timeout, &t.Epoch, &t.Failures, &t.Lost, &t.Worker, &t.Error,
	}, more...)
	return s
}

func (s *taskScan) row(r pgx.CollectableRow) (Task, error) {
	s.t = Task{}
	s.payload = nil
	s.begun = nil
	s.until = nil
	if err := r.Scan(s.into...); err != nil {
		return Task{}, err
	}
	t := s.t
	t.Payload = json.RawMessage(s.payload)
	t.Priority = -t.Priority
	t.State = states[s.state]
	t.Timeout = time.Duration(s.timeout) * time.Millisecond
	t.Created = t.Created.UTC()
	t.Due = t.Due.UTC()
	t.Deadline = t.Deadline.UTC()
	t.Begun = timeOf(s.begun)
	t.Until = timeOf(s.until)
	return t, nil
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
