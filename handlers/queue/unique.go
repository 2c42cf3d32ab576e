package queue

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"procaas/engine/store"

	"github.com/jackc/pgx/v5"
)

// This file stores tasks with unique keys. Their keys are locked, in order. So the outcome of each
// task can be computed here and written at once.

// A uid is a unique key within a type.
type uid struct{ kind, name string }

func (u uid) compare(v uid) int {
	if c := strings.Compare(u.kind, v.kind); c != 0 {
		return c
	}
	return strings.Compare(u.name, v.name)
}

// A holder is the task that has a unique key.
type holder struct {
	id    int64
	fresh bool // not yet in the database
	taken bool // a worker has it
	spec  Spec // as far as it is known here

	epoch    int
	payload  []byte
	merged   bool
	replaced bool

	again  bool // another task follows it
	next   Spec
	follow bool // the following task must be written
}

const (
	insertKeys = `
insert into task_keys (type, uid, id)
select k.type, k.uid, k.id from unnest($1::text[], $2::text[], $3::bigint[]) as k (type, uid, id)
on conflict (type, uid) do nothing returning type, uid`

	lockKeys = `
select k.type, k.uid, k.id, k.again, k.next_rank, (extract(epoch from k.next_tolerance) * 1000000)::bigint, k.next_timeout,
	k.next_key, k.next_payload
from unnest($1::text[], $2::text[]) as w (type, uid) join task_keys k on k.type = any (array[w.type]) and k.uid = any (array[w.uid])
order by k.type || '', k.uid || '' for update of k`

	// The second statement sees a task that was promoted between the two.
	lockScheduled = "select id, epoch, payload from task_schedule where id = any($1::bigint[]) order by id + 0 for update"
	lockTasks     = "select id, epoch, payload, state in (1, 2) from tasks where id = any($1::bigint[]) order by id + 0 for update"

	dropKeys = "delete from task_keys where id = any($1::bigint[])"

	findDraining = "select type from task_types where mode = 'draining' and type = any($1::text[])"
)

// putUnique computes the outcome of each task with a unique key.
func (p *putting) putUnique(ctx context.Context, tx pgx.Tx) error {
	wanted, err := p.openOnes(ctx, tx)
	if err != nil {
		return err
	}
	holders := map[uid]*holder{}
	order := slices.SortedFunc(maps.Keys(wanted), uid.compare)
	for rest := order; len(rest) > 0; {
		if err := p.insertKeys(ctx, tx, rest, wanted, holders); err != nil {
			return err
		}
		rest = slices.DeleteFunc(slices.Clone(rest), func(u uid) bool { return holders[u] != nil })
		if len(rest) == 0 {
			break
		}
		if err := lockHolders(ctx, tx, rest, holders); err != nil {
			return err
		}
		// If a holder has ended meanwhile, try its key again.
		rest = slices.DeleteFunc(rest, func(u uid) bool { return holders[u] != nil })
	}
	for _, u := range order {
		for _, i := range wanted[u] {
			p.out[i] = holders[u].put(&p.specs[i], p.ids[i])
		}
	}
	return writeHolders(ctx, tx, order, holders)
}

// openOnes groups the tasks by unique key, and refuses those of draining types.
func (p *putting) openOnes(ctx context.Context, tx pgx.Tx) (map[uid][]int, error) {
	var b pgx.Batch
	elsewhere := p.elsewhere(&b)
	var draining []string
	b.Queue(findDraining, p.types).Query(func(rows pgx.Rows) (err error) {
		draining, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return nil, err
	}
	wanted := map[uid][]int{}
	for _, i := range p.unique {
		u := uid{p.specs[i].Type, p.specs[i].Unique}
		if slices.Contains(draining, u.kind) {
			p.out[i] = Put{Outcome: store.PutRefused, Err: store.ErrDraining}
			continue
		}
		if elsewhere[chartSlot(p.specs[i].Slot())] {
			p.out[i] = Put{Outcome: store.PutRefused, Err: store.ErrMoving}
			continue
		}
		wanted[u] = append(wanted[u], i)
	}
	return wanted, nil
}

func split(uids []uid) (types, names []string) {
	for _, u := range uids {
		types, names = append(types, u.kind), append(names, u.name)
	}
	return types, names
}

// insertKeys inserts the keys that no task has.
func (p *putting) insertKeys(ctx context.Context, tx pgx.Tx, uids []uid, wanted map[uid][]int, holders map[uid]*holder) error {
	types, names := split(uids)
	var ids []int64
	for _, u := range uids {
		ids = append(ids, p.ids[wanted[u][0]])
	}
	rows, err := tx.Query(ctx, insertKeys, types, names, ids)
	if err != nil {
		return err
	}
	var u uid
	_, err = pgx.ForEachRow(rows, []any{&u.kind, &u.name}, func() error {
		holders[u] = &holder{id: p.ids[wanted[u][0]], fresh: true}
		return nil
	})
	return err
}

// lockHolders locks the tasks that have the keys.
func lockHolders(ctx context.Context, tx pgx.Tx, uids []uid, holders map[uid]*holder) error {
	types, names := split(uids)
	rows, err := tx.Query(ctx, lockKeys, types, names)
	if err != nil {
		return err
	}
	found := map[int64]*holder{}
	var (
		u       uid
		h       holder
		rank    int
		micros  int64
		timeout int
	)
	_, err = pgx.ForEachRow(rows, []any{&u.kind, &u.name, &h.id, &h.again, &rank, &micros, &timeout, &h.next.Key, &h.next.Payload},
		func() error {
			one := h
			one.next.Type, one.next.Unique, one.next.Priority = u.kind, u.name, -rank
			one.next.Tolerance, one.next.Timeout = time.Duration(micros)*time.Microsecond, time.Duration(timeout)*time.Millisecond
			one.next.Payload = bytes.Clone(h.next.Payload)
			holders[u], found[one.id] = &one, &one
			return nil
		})
	if err != nil || len(found) == 0 {
		return err
	}
	return lockTheirTasks(ctx, tx, found, holders)
}

func lockTheirTasks(ctx context.Context, tx pgx.Tx, found map[int64]*holder, holders map[uid]*holder) error {
	ids := slices.Sorted(maps.Keys(found))
	seen := map[int64]bool{}
	for _, sql := range []string{lockScheduled, lockTasks} {
		rows, err := tx.Query(ctx, sql, ids)
		if err != nil {
			return err
		}
		var h holder
		into := []any{&h.id, &h.epoch, &h.payload}
		if sql == lockTasks {
			into = append(into, &h.taken)
		}
		if _, err := pgx.ForEachRow(rows, into, func() error {
			one := found[h.id]
			one.epoch, one.payload, one.taken = h.epoch, bytes.Clone(h.payload), h.taken
			seen[h.id] = true
			return nil
		}); err != nil {
			return err
		}
	}
	if len(seen) == len(found) {
		return nil
	}
	// A key without a task is free: its type began to drain while it was inserted.
	maps.DeleteFunc(holders, func(_ uid, h *holder) bool { return !h.fresh && !seen[h.id] })
	orphans := slices.DeleteFunc(ids, func(id int64) bool { return seen[id] })
	_, err := tx.Exec(ctx, dropKeys, orphans)
	return err
}

// put computes the outcome of one more task.
func (h *holder) put(s *Spec, id int64) Put {
	out := Put{ID: h.id, Outcome: store.PutKept}
	switch {
	case h.fresh && h.id == id:
		h.spec, h.payload = *s, payloadOf(s)
		out.Outcome = store.PutAdded
	case s.OnDuplicate == store.DuplicateKeep || s.OnDuplicate == "":
	case h.taken:
		return h.putBehind(s, out)
	case s.OnDuplicate == store.DuplicateReplace:
		h.spec = *s
		h.payload = payloadOf(s)
		h.replaced = true
		h.merged = false
		h.again = false
		out.Outcome = store.PutReplaced
	case s.OnDuplicate == store.DuplicateMerge:
		merged, err := s.Merge(h.payload, payloadOf(s))
		if err = checkMerged(merged, err); err != nil {
			return Put{Outcome: store.PutRefused, Err: err}
		}
		h.payload, h.spec.Payload, h.merged = merged, merged, true
		out.Outcome = store.PutMerged
	}
	return out
}

// putBehind makes it the task that follows the taken one.
func (h *holder) putBehind(s *Spec, out Put) Put {
	next := *s
	next.Payload = payloadOf(s)
	if h.again && s.OnDuplicate == store.DuplicateMerge {
		merged, err := s.Merge(h.next.Payload, next.Payload)
		if err = checkMerged(merged, err); err != nil {
			return Put{Outcome: store.PutRefused, Err: err}
		}
		next.Payload = merged
	}
	h.next, h.again, h.follow = next, true, true
	out.Outcome = store.PutFollows
	return out
}

func checkMerged(merged []byte, err error) error {
	if err != nil {
		return fmt.Errorf("%w: merge: %w", store.ErrTask, err)
	}
	one := Spec{Type: "merged", Payload: merged}
	return one.Check()
}

const (
	mergeTasks = `
with new as materialized (select * from unnest($1::bigint[], $2::bytea[]) as n (id, payload)),
	later as (update task_schedule t set payload = n.payload from new n where t.id = any (array[n.id]))
update tasks t set payload = n.payload from new n where t.id = any (array[n.id])`

	// The task that was to follow it is older than its replacement.
	dropTasks = `
with later as (delete from task_schedule where id = any($1::bigint[])),
	alone as (update task_keys set again = false where id = any($1::bigint[]) and again)
delete from tasks where id = any($1::bigint[])`

	writeNext = `
update task_keys k set again = true, next_rank = n.rank, next_tolerance = n.tolerance * interval '1 microsecond',
	next_timeout = n.timeout, next_slot = n.slot, next_key = n.key, next_payload = n.payload,
	next_due = case when n.at is null and n.delay = 0 then '-infinity' else coalesce(n.at, now()) + n.delay * interval '1 microsecond' end
from unnest($1::bigint[], $2::bigint[], $3::int[], $4::int[], $5::smallint[], $6::text[], $7::text[], $8::bytea[],
		$9::timestamptz[], $10::bigint[])
	as n (id, tolerance, rank, timeout, slot, type, key, payload, at, delay)
where k.id = any (array[n.id])`
)

// errDrains undoes a transaction whose type began to drain meanwhile. The next try refuses its
// tasks, and does not touch those that they would have replaced.
var errDrains = fmt.Errorf("%w: it began meanwhile", store.ErrDraining)

func writeHolders(ctx context.Context, tx pgx.Tx, order []uid, holders map[uid]*holder) error {
	var (
		insert, next  columns
		drop, merge   []int64
		mergedPayload [][]byte
	)
	for _, u := range order {
		h := holders[u]
		if h.fresh || h.replaced {
			h.spec.Payload = h.payload
			insert.add(h.id, h.epoch, &h.spec)
		} else if h.merged {
			merge, mergedPayload = append(merge, h.id), append(mergedPayload, h.payload)
		}
		if h.replaced && !h.fresh {
			drop = append(drop, h.id)
		}
		if h.follow {
			next.add(h.id, 0, &h.next)
		}
	}
	var b pgx.Batch
	if len(drop) > 0 {
		b.Queue(dropTasks, drop)
	}
	if len(insert.ids) > 0 {
		b.Queue(putTimed, insert.timed()...).Query(func(rows pgx.Rows) error {
			closed, _, err := readClosed(rows)
			if err == nil && len(closed) > 0 {
				err = errDrains
			}
			return err
		})
	}
	if len(merge) > 0 {
		b.Queue(mergeTasks, merge, mergedPayload)
	}
	if len(next.ids) > 0 {
		b.Queue(writeNext, append(next.now(), next.at, next.delay)...)
	}
	return tx.SendBatch(ctx, &b).Close()
}
