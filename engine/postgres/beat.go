package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"procaas/engine/store"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// renewNode and readBeat are one transaction, but two statements: readBeat sees the lease that renewNode has written. A node that is gone
// stays gone, whatever it sends. All times are those of the server, so nodes need no clocks that agree.
const (
	renewNode = `update leases set seen = clock_timestamp(), lease_until = clock_timestamp() + $2 * interval '1 microsecond', bundle = $3,
	beats = beats + 1
	where node = $1 and exists (select from nodes where node = $1 and gone is null)`
	readBeat = `select clock_timestamp(), (select gone is null from nodes where node = $1),
	(select coalesce(max(beats), 0) from leases where node = $1),
	(select coalesce(array_agg(id), '{}') from runs where node = $1 and cancel is not null),
	(select coalesce(array_agg(id || ' ' || move), '{}') from runs where node = $1 and move is not null),
	(select count(*) from (select from runs where place = 'ready' and (- priority, deadline) >= ($2, $3)
	order by - priority, deadline, seq limit 1000) r),
	(select min(due) from runs where place in ('parked', 'scheduled') and due > '-infinity' and due >= $4),
	(select revision from settings),
	(select count(*) from nodes join leases using (node) where gone is null and lease_until >= clock_timestamp()),
	exists (select from nodes join leases using (node) where gone is null and lease_until < clock_timestamp()),
	(select min(at) from (select lease_until, seen, least((lease_until - seen) * 2 / 3, interval '1.6 s') as silence
		from nodes join leases using (node) where gone is null and node <> $1) l,
		lateral (select case when seen + silence < clock_timestamp() then lease_until else seen + silence end as at) a
		where seen + silence / 2 < clock_timestamp() and at between clock_timestamp() and clock_timestamp() + interval '1 second'),
	exists (select from presence join nodes using (node) where gone is null and node <> $1 and server = pg_postmaster_start_time()
		and not exists (select from pg_stat_get_activity(session))),
	(select coalesce(array_agg(process), '{}') from presence join nodes using (node) where gone is null and process not in ('', $5)),
	(select revision from fallback), (select decided from fallback)`
)

// These are read only as often as it is cheap.
const (
	countOwned = `select count(*) filter (where node = $1), count(*) from runs
	where place = 'running' and node = any (array (select node from nodes where gone is null))`
	findCauses = `with recursive c(cause) as (select min(cause) from runs where place = 'parked' and cause <> ''
		union all select (select min(cause) from runs where place = 'parked' and cause <> '' and cause > c.cause) from c
		where c.cause is not null)
	select coalesce(array_agg(cause order by cause), '{}') from c where cause is not null`
)

// A pulse is what a beat reads. A nil pointer means none.
type pulse struct {
	store.Beat
	live *bool      // whether the node may write; nil if the store does not know it
	next *time.Time // when the next run is due
	dead bool       // the lease of some node has ended
	ends *time.Time // when the lease of a silent node ends, or when it may be judged
	cut  bool       // the session of another node is gone, so that it may be dead

	decided   *time.Time
	moves     []string // runs and definitions
	processes []string // of other nodes; see nameProcess
}

// Beat implements [store.Ledger]. The order matters. First it makes sure that the server has what it has acknowledged, because no node may
// work on with a server that has been set back. Then the node renews its own lease, and only then does it judge others: a node whose beat
// is late must not take over others while it is dead itself.
func (s *Store) Beat(ctx context.Context, node int64, lease time.Duration, bundle string) (store.Beat, error) {
	if err := s.db.intact(ctx); err != nil {
		return store.Beat{}, fmt.Errorf("renew the lease: %w", err)
	}
	p, err := s.pulse(ctx, node, lease, bundle)
	if err != nil {
		return store.Beat{Watched: p.Watched, Beats: p.Beats}, fmt.Errorf("renew the lease: %w", err)
	}
	s.db.inc.renewed()
	s.neighbours.watch(p.processes)
	if p.cut {
		dead, err := s.presence.judge(ctx, s.db.pool)
		if err != nil {
			s.log.Warn("it cannot be found out whether a node without a session is dead, waiting for the end of its lease", "error", err)
		}
		p.dead = p.dead || dead
	}
	if overdue := p.next != nil && !p.next.After(p.Now); p.dead || overdue {
		if p, err = s.sweepAndPulse(ctx, p, node, lease, bundle); err != nil {
			return store.Beat{Watched: p.Watched, Beats: p.Beats}, fmt.Errorf("renew the lease: %w", err)
		}
	}
	if p.ends != nil && (p.next == nil || p.ends.Before(*p.next)) {
		p.next = p.ends
	}
	if p.next != nil {
		p.Next = max(p.next.Sub(p.Now), time.Millisecond)
	}
	if p.decided != nil {
		p.Decided = p.decided.UTC()
	}
	for _, m := range p.moves {
		run, to, _ := strings.Cut(m, " ")
		p.Moves = append(p.Moves, store.Move{Run: run, Bundle: to})
	}
	p.Now = p.Now.UTC()
	p.Suspects = s.neighbours.ended
	s.weigh(ctx, node, &p.Beat)
	return p.Beat, nil
}

// cheap is how long a query may take to run with each beat.
const cheap = 50 * time.Millisecond

// weigh counts runs of nodes, and reads what runs are parked for. If that was slow, because old row
// versions cannot be cleaned up, it does not do so with each beat. Then, and after an error, Owned
// is -1.
func (s *Store) weigh(ctx context.Context, node int64, beat *store.Beat) {
	beat.Owned = -1
	s.heavy.mu.Lock()
	defer s.heavy.mu.Unlock()
	began := time.Now()
	if !s.heavy.isDue(began) {
		return
	}
	var owned, running int
	var causes []string
	var b pgx.Batch
	b.Queue(countOwned, node).QueryRow(value(&owned, &running))
	b.Queue(findCauses).QueryRow(value(&causes))
	err := s.db.pool.SendBatch(ctx, &b).Close()
	if now := time.Now(); now.Sub(began) > cheap {
		s.heavy.took(now, now.Sub(began))
	}
	if err == nil {
		beat.Owned, beat.Running, beat.Causes = owned, running, causes
	}
}

// sweepAndPulse sweeps, and reads the pulse again. The lease has been renewed already, so an error
// of the sweep is not an error of the beat. The next beat sweeps again.
func (s *Store) sweepAndPulse(ctx context.Context, p pulse, node int64, lease time.Duration, bundle string) (pulse, error) {
	if err := s.sweep(ctx, p.dead); err != nil {
		s.log.Warn("what is due, or was a dead node's, cannot be made ready yet, trying again", "error", err)
		p.next = nil // those runs are overdue
		return p, nil
	}
	return s.pulse(ctx, node, lease, bundle)
}

func (s *Store) pulse(ctx context.Context, node int64, lease time.Duration, bundle string) (p pulse, err error) {
	began, ready := time.Now(), s.hints.horizon.start()
	due := s.timers.look(began)
	var told *session
	err = s.db.tx(ctx, func(t *tx) error {
		p = pulse{}
		if s.presence.tell(t, node, s.process, &told); told != nil {
			p.Watched = told.lost
		}
		t.queue(renewNode, node, lease.Microseconds(), bundle)
		t.queue(readBeat, node, ready.rank, ready.at, due, s.process).QueryRow(value(&p.Now, &p.live, &p.Beats, &p.Cancelled, &p.moves, &p.Ready, &p.next,
			&p.Revision,
			&p.Nodes, &p.dead, &p.ends, &p.cut, &p.processes, &p.Outages, &p.decided))
		if err := t.commit(ctx); err != nil {
			return err
		}
		if p.live == nil {
			return store.ErrForgotten
		}
		if !*p.live {
			return store.ErrFenced
		}
		return nil
	})
	if err == nil {
		s.presence.heard(node, told)
		s.timers.found(due, p.next, p.Now, began)
	}
	return p, err
}

// buryNode checks again that the lease has ended, because the node may have renewed it since findDead was read.
const (
	findDead = "select node from nodes join leases using (node) where gone is null and lease_until < clock_timestamp() order by node"
	buryNode = `update nodes n set gone = clock_timestamp(), died = true from leases l
	where n.node = $1 and l.node = n.node and gone is null and lease_until < clock_timestamp()`
	findDue = `select id, flow, key, ordered from runs
	where place = 'scheduled' and due > '-infinity' and due between $2 and clock_timestamp() order by due limit $1`
)

var (
	unpark = readying(`update runs r set place = 'ready' where seq = any (array (
		select seq from runs where place = 'parked' and due > '-infinity' and due between $2 and clock_timestamp() order by due limit $1
		for no key update skip locked))`)
	unschedule = readying(`update runs r set place = case when ordered then 'queued' else 'ready' end
	where id = any ($1::text[]) and place = 'scheduled'`)
)

// dueAtOnce bounds the runs that one sweep makes ready, so that a million due runs do not make one
// long transaction.
const dueAtOnce = 2000

// sweep takes over the runs of dead nodes, and makes due runs ready. Each part is a transaction, so
// that none holds locks of runs while it waits for locks of keys. One process sweeps at a time. The
// others do not wait for it.
func (s *Store) sweep(ctx context.Context, deaths bool) error {
	var dead []int64
	mine := true
	err := s.db.tx(ctx, func(t *tx) (err error) {
		if mine, err = t.tryLock(ctx, sweepLock); err != nil || !mine {
			return err
		}
		t.queue(unpark, dueAtOnce, s.timers.look(time.Now())).QueryRow(t.noteReady)
		t.queue(findDead).Query(rows(&dead, pgx.RowTo[int64]))
		return t.commit(ctx)
	})
	if err == nil && !mine && deaths {
		_, err = s.endStuck(ctx, "runs", int64(sweepLock), idleTimeout)
	}
	for _, node := range dead {
		if err == nil {
			err = s.bury(ctx, node)
		}
	}
	if err != nil {
		return err
	}
	return s.db.alone(ctx, sweepLock, func(t *tx) error { return unscheduleDue(ctx, t, s.timers.look(time.Now())) })
}

// bury takes over a dead node's runs, unless the node has come back or is writing. In that case the
// next sweep does it.
func (s *Store) bury(ctx context.Context, node int64) error {
	for {
		var silent bool
		err := s.db.tx(ctx, func(t *tx) (err error) { silent, err = bury(ctx, t, node); return err })
		if err != nil || silent {
			return err
		}
		if ended, err := s.endStuck(ctx, "nodes", node, stuckAfter); err != nil || ended == 0 {
			return err
		}
	}
}

// bury returns false if the node is writing. A transaction of the node holds its lock until it ends. So the takeover sees all that the node
// has written, and the node writes nothing after it.
func bury(ctx context.Context, t *tx, node int64) (silent bool, err error) {
	t.queue(tryLockNode, node).QueryRow(value(&silent))
	if err := t.send(ctx); err != nil || !silent {
		return false, err
	}
	buried := false
	t.queue(buryNode, node).Exec(func(c pgconn.CommandTag) error { buried = c.RowsAffected() > 0; return nil })
	if err := t.send(ctx); err != nil || !buried {
		return true, err
	}
	return true, t.release(ctx, node, nil, true)
}

// unscheduleDue puts due scheduled runs into the queues of their keys. They take the place of their acceptance in the order of the key, so
// a later run that is ready and has not begun gives way. Keys are locked first. The runs are found without a lock, so the update looks at
// their place once more.
func unscheduleDue(ctx context.Context, t *tx, from time.Time) error {
	var ids []string
	keys := &keySet{}
	t.queue(findDue, dueAtOnce, from).Query(func(rows pgx.Rows) error {
		var id, flow, key string
		var ordered bool
		_, err := pgx.ForEachRow(rows, []any{&id, &flow, &key, &ordered}, func() error {
			ids = append(ids, id)
			keys.add(ordered, flow, key)
			return nil
		})
		return err
	})
	if err := t.send(ctx); err != nil || len(ids) == 0 {
		return err
	}
	t.queueLock(keys)
	t.queue(unschedule, ids).QueryRow(t.noteReady)
	t.queueReorder(keys)
	t.queueStir(keys)
	return t.send(ctx)
}
