package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/model"
	"procaas/engine/sqlstore"
	"procaas/engine/store"
)

const (
	drawNode   = "select nextval(pg_get_serial_sequence('nodes', 'node'))"
	insertNode = `with n as (insert into nodes (node, name, started, knows) overriding system value
		values ($3, $1, clock_timestamp(), $4::text::jsonb) returning node)
	insert into leases (node, seen, lease_until)
	select node, clock_timestamp(), clock_timestamp() + $2 * interval '1 microsecond' from n`
	forgetNodes = "delete from nodes where gone < now() - $1 * interval '1 microsecond'"
)

// Join implements [store.Ledger]. It reads the versions of the tables under the lock that migrations take. So the node joins either
// before a migration, which then sees it, or after one, and refuses tables that are not for it.
func (s *Store) Join(ctx context.Context, name string, lease time.Duration) (node int64, err error) {
	enrolled := false
	knows, err := s.db.knows()
	if err != nil {
		return 0, fmt.Errorf("join: %w", err)
	}
	err = s.db.tx(ctx, func(t *tx) error {
		t.queue(lockJoin)
		t.queue(lockSlots)
		t.queue("select exists (select from inbox_cell)").QueryRow(value(&enrolled))
		t.queue(forgetNodes, store.NodesRemembered.Microseconds())
		t.queue(forgetPresences)
		var drawn int64
		t.queue(drawNode).QueryRow(value(&drawn))
		if err := t.send(ctx); err != nil {
			return err
		}
		have, err := versions(ctx, s.db.known, t.conn) // under the lock
		if err == nil {
			err = sqlstore.RefuseNewer(s.db.known, have)
		}
		if err != nil {
			return err
		}
		node = store.NodeNumber(drawn)
		t.queue(insertNode, name, lease.Microseconds(), node, knows)
		return t.commit(ctx)
	})
	if err != nil {
		return 0, fmt.Errorf("join: %w", err)
	}
	if enrolled {
		s.db.cell.Store(true) // it may have become a cell since it was opened, while it had no node
	}
	if _, err := s.presence.judge(ctx, s.db.pool); err != nil { // a node of before may just have been killed
		s.log.Warn("it cannot be found out whether a node of this machine is dead, waiting for the end of its lease", "error", err)
	}
	return node, nil
}

const (
	// The order is that of the index runs_ready, so a claim reads only the rows that it takes. It skips
	// rows that another claim has locked, because these are as good as taken. It gives as many as have
	// $6 bytes, and one at least.
	claim = `with ready as (
		select seq, - priority as rank, deadline, octet_length(event) + coalesce(octet_length(checkpoint), 0) as size
		from runs where place = 'ready' and (- priority, deadline) >= ($4, $5) order by - priority, deadline, seq
		limit $2 for no key update skip locked),
	c as (select seq from (
		select seq, sum(size) over (order by rank, deadline, seq rows between unbounded preceding and 1 preceding) as before from ready) as sized
		where coalesce(before, 0) < $6)` + giveReady
	giveReady = `
	update runs r set place = 'running', node = $1, started = coalesce(started, clock_timestamp()),
		bundle = case bundle when '' then (select case serving when '' then $3 else serving end from settings) else bundle end
	where r.seq = any (array(select seq from c)) and exists (select from nodes where node = $1 and gone is null)
	returning r.seq, r.id, r.version, r.event, r.flow, r.key, r.ordered, r.block, r.accepted, r.deadline,
	r.bundle, coalesce(r.move, ''), r.pipeline, r.generation, r.checkpoint, r.losses, r.error_class = 'kept', r.cancel is not null`
)

// claimedRow is a claimed run with the values of its order.
type claimedRow struct {
	store.Claimed
	seq      int64
	deadline time.Time
}

// Claim implements [store.Ledger].
func (s *Store) Claim(ctx context.Context, node int64, limit int, bundle string) ([]store.Claimed, error) {
	got, aside, err := s.claim(ctx, node, limit, bundle)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	runs := make([]store.Claimed, len(got))
	for i, c := range got {
		runs[i] = c.Claimed
	}
	if err := s.readEntities(ctx, runs); err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return append(runs, aside...), nil
}

// claim gives ready runs to a node, without their entities. It sets runs aside that cannot be read. It reads the queue from the horizon
// on: before it, only dead rows are left. The horizon moves on only after a claim that has succeeded, because a claim whose outcome is
// unknown may have left runs in front of it.
func (s *Store) claim(ctx context.Context, node int64, limit int, bundle string) (got []claimedRow, aside []store.Claimed, err error) {
	look := s.hints.horizon.look()
	got, err = s.give(ctx, node, claim, limit, bundle, look.from.rank, look.from.at, int64(store.ClaimBytes))
	if isDamage(err) {
		s.hints.horizon.failed(look)
		return s.claimApart(ctx, node, limit, bundle)
	}
	if err != nil {
		s.hints.horizon.failed(look)
		return nil, nil, err
	}
	slices.SortFunc(got, compareClaimed)
	first := endOfQueue
	if len(got) > 0 {
		first = position{-int64(got[0].Event.Priority), got[0].deadline}
	}
	s.hints.horizon.found(look, first)
	return got, nil, nil
}

// give runs a statement that gives ready runs to a node. The lock of the node keeps a takeover away until the commit. So a node that was
// taken for dead gets nothing, or what it gets is taken over with the rest.
func (s *Store) give(ctx context.Context, node int64, statement string, args ...any) (got []claimedRow, err error) {
	err = s.db.tx(ctx, func(t *tx) error {
		at := t.asNode(node)
		t.queue(statement, append([]any{node}, args...)...).Query(rows(&got, scanClaimed))
		if err := t.commit(ctx); err != nil {
			return err
		}
		if !at.live {
			return store.ErrFenced
		}
		return nil
	})
	return got, err
}

func scanClaimed(r pgx.CollectableRow) (c claimedRow, err error) {
	var event []byte
	if err := r.Scan(&c.seq, &c.ID, &c.Version, &event, &c.Flow, &c.Key, &c.Ordered, &c.Block, &c.Accepted,
		&c.deadline, &c.Bundle, &c.Move, &c.Pipeline, &c.Generation, &c.Checkpoint, &c.Losses, &c.Kept, &c.Cancelled); err != nil {
		return c, err
	}
	c.Accepted = c.Accepted.UTC()
	c.Bundle = model.VersionFor(c.Bundle, c.Flow, c.Key)
	if c.Event, c.Stored, err = store.DecodeClaimed(event); err != nil {
		c.Damage = store.DamagedRun(c.ID, "the column runs.event", err)
	}
	c.Turn = c.deadline.Add(-c.Event.DelayTolerance).UTC()
	return c, nil
}

func compareClaimed(a, b claimedRow) int {
	if c := cmp.Compare(b.Event.Priority, a.Event.Priority); c != 0 {
		return c
	}
	if c := a.deadline.Compare(b.deadline); c != 0 {
		return c
	}
	return cmp.Compare(a.seq, b.seq)
}

const readEntities = `select k.flow, k.key, k.state, k.shared from unnest($1::text[], $2::text[]) as u (flow, key), keys k
	where k.flow = any (array[u.flow]) and k.key = any (array[u.key])`

// readEntities reads the entities of claimed runs. The claim itself cannot do it, because it may
// see a new version of a run and an old version of its entity. While the node owns the run, the
// entity does not change.
func (s *Store) readEntities(ctx context.Context, runs []store.Claimed) error {
	err := s.readEntitiesOf(ctx, runs)
	if !isDamage(err) {
		return err
	}
	for i := range runs {
		switch err := s.readEntitiesOf(ctx, runs[i:i+1]); {
		case isDamage(err):
			runs[i].Damage = store.DamagedRun(runs[i].ID, "the row in the table keys", err)
		case err != nil:
			return err
		}
	}
	return nil
}

func (s *Store) readEntitiesOf(ctx context.Context, runs []store.Claimed) error {
	var flows, keys []string
	for _, c := range runs {
		if c.Ordered {
			flows, keys = append(flows, c.Flow), append(keys, c.Key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	r, err := s.db.pool.Query(ctx, readEntities, flows, keys)
	if err != nil {
		return err
	}
	states := make(map[keyName]store.EntityState, len(keys))
	var n keyName
	var e store.EntityState
	if _, err := pgx.ForEachRow(r, []any{&n.flow, &n.key, &e.State, &e.Shared}, func() error {
		states[n] = e
		e.Shared = nil
		return nil
	}); err != nil {
		return err
	}
	for i, c := range runs {
		if c.Ordered {
			runs[i].Entity = states[keyName{c.Flow, c.Key}]
		}
	}
	return nil
}

const (
	findHeld = `select id, flow, key, ordered from runs
	where node = $1 and place = 'running' and id <> all ($2::text[]) order by seq + 0`
	lockHeld = findHeld + " for no key update"
)

// giveBack makes a node's runs ready. The death of the node counts against a suspected run only if
// the run was under trial.
var giveBack = readying(`update runs r set place = 'ready', node = 0, tried = false,
	losses = losses + ($2::bool and (tried or losses < $3::int))::int where id = any ($1::text[])`)

// A heldRun is a run that is taken from its node.
type heldRun struct {
	id, flow, key string
	ordered       bool
}

// release takes its runs, except those in keep, from a node that has died or continues. Runs keep the
// checkpoint of their last commit. What the node did since then may be done again.
func (t *tx) release(ctx context.Context, node int64, keep []string, died bool) error {
	if keep == nil {
		keep = []string{} // null would match nothing
	}
	find := func(sql string) (held []heldRun, err error) {
		t.queue(sql, node, keep).Query(rows(&held, func(r pgx.CollectableRow) (h heldRun, err error) {
			return h, r.Scan(&h.id, &h.flow, &h.key, &h.ordered)
		}))
		return held, t.send(ctx)
	}
	held, err := find(findHeld)
	if err != nil {
		return err
	}
	keys := &keySet{}
	for _, r := range held {
		keys.add(r.ordered, r.flow, r.key)
	}
	// Read again under the locks, because the node may have committed the end of a run.
	t.queueLock(keys)
	if held, err = find(lockHeld); err != nil {
		return err
	}
	var back []string
	for _, r := range held {
		back = append(back, r.id)
	}
	t.queue(giveBack, back, died, model.SuspectedFrom).QueryRow(t.noteReady)
	t.queueReorder(keys)
	return t.send(ctx)
}

const (
	leaveNode = "update nodes set gone = clock_timestamp() where node = $1 and gone is null"
	// With this lock, nothing writes for the node any more.
	lockNodeAlone = "select pg_advisory_xact_lock(('nodes'::regclass::oid::bigint - 2147483648)::int, ($1::bigint & 2147483647)::int)"
)

// Leave implements [store.Ledger]. Its number is gone for good before the runs are released. So nothing that the node still sends can
// change a run that another node has.
func (s *Store) Leave(ctx context.Context, node int64, keep []string) error {
	err := s.db.tx(ctx, func(t *tx) error {
		if keep != nil {
			at := t.asNode(node)
			if err := t.send(ctx); err != nil {
				return err
			}
			if !at.live {
				return store.ErrFenced
			}
			return t.release(ctx, node, keep, false)
		}
		t.queue(lockNodeAlone, node)
		t.queue(leaveNode, node)
		return t.release(ctx, node, nil, false)
	})
	if err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	return nil
}

const listNodes = `select node, name, started, seen, gone is null and lease_until >= clock_timestamp(), bundle, beats,
	(select count(*) from runs where runs.node = nodes.node and place = 'running')
	from nodes join leases using (node) where gone is null or died and gone > now() - interval '1 hour' order by node`

// Nodes implements [store.Ledger].
func (s *Store) Nodes(ctx context.Context) ([]store.NodeInfo, error) {
	if _, err := s.db.inc.same(ctx, s.db.pool); err != nil {
		return nil, err
	}
	r, err := s.db.pool.Query(ctx, listNodes)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(r, func(r pgx.CollectableRow) (n store.NodeInfo, err error) {
		err = r.Scan(&n.Node, &n.Name, &n.Started, &n.Seen, &n.Alive, &n.Bundle, &n.Beats, &n.Runs)
		n.Started, n.Seen = n.Started.UTC(), n.Seen.UTC()
		return n, err
	})
}
