package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

const (
	insertNode    = "insert into nodes (node, name, started, seen, lease_until) values (?, ?, ?, ?, ?)"
	lastNode      = "select coalesce(max(seq), 0) from sqlite_sequence where name = 'nodes'"
	forgetNodes   = "delete from nodes where gone < ?"
	findNode      = "select node from nodes where node = ? and gone is null"
	renewNode     = "update nodes set seen = ?, lease_until = ?, bundle = ?, beats = beats + 1 where node = ? and gone is null"
	countBeats    = "select beats from nodes where node = ?"
	findDeadNodes = "select node from nodes where gone is null and lease_until < ?"
	findAllNodes  = "select node from nodes where gone is null"
	buryNode      = "update nodes set gone = ?, died = ? where node = ? and gone is null"
	rowsOf        = "node = ? and place = 'running' order by seq"
)

// Join implements [store.Ledger].
func (s *Store) Join(ctx context.Context, name string, lease time.Duration) (node int64, err error) {
	err = s.writer.do(ctx, func(t *tx) error {
		if err := t.exec(forgetNodes, t.now.Add(-store.NodesRemembered).UnixMicro()); err != nil {
			return err
		}
		var last int64
		if _, err := t.row(lastNode, nil, &last); err != nil {
			return err
		}
		now := t.now.UnixMicro()
		node = store.NextNode(last)
		return t.exec(insertNode, node, name, now, now, t.now.Add(lease).UnixMicro())
	})
	return node, err
}

// live checks that a node may still write. Each write of a node begins with it, in the same transaction. So what a node writes after it was
// buried is refused, however late it arrives.
func (t *tx) live(node int64) error {
	var n int64
	found, err := t.row(findNode, []any{node}, &n)
	if err == nil && !found {
		err = store.ErrFenced
	}
	return err
}

// fenced returns why a node may not write, and how often it has renewed its lease.
func (t *tx) fenced(node int64) (beats int64, err error) {
	found, err := t.row(countBeats, []any{node}, &beats)
	switch {
	case err != nil:
		return 0, err
	case !found:
		return 0, store.ErrForgotten
	}
	return beats, store.ErrFenced
}

// bury makes a node's number invalid and releases its runs, together: there is no moment in which two nodes may write one run.
func (t *tx) bury(node int64, died bool) error {
	n, err := t.count(buryNode, t.now.UnixMicro(), died, node)
	if err != nil || n == 0 {
		return err
	}
	return t.releaseRuns(node, nil, died)
}

// releaseRuns takes its runs, except those in keep, from a node that has died or continues.
func (t *tx) releaseRuns(node int64, keep []string, died bool) error {
	held, err := t.sound(rowsOf, node)
	if err != nil {
		return err
	}
	for _, r := range held {
		if slices.Contains(keep, r.id) {
			continue
		}
		if err := t.release(r, died); err != nil {
			return err
		}
	}
	return nil
}

func scanRow(s *sql.Rows) (r row, err error) {
	err = s.Scan(&r.seq, &r.id, &r.flow, &r.key, &r.ordered, &r.block, &r.place, &r.node, &r.version, &r.checkpoint, &r.cancel, &r.move,
		&r.cause, &r.since, &r.kept)
	return r, err
}

// releaseAll takes over the runs of all nodes. A process that has just got the file's lock is the
// only one.
func releaseAll(t *tx) error { return t.buryAll(findAllNodes) }

func (t *tx) buryAll(query string, args ...any) error {
	nodes, err := rows(t, query, args, func(r *sql.Rows) (node int64, err error) { return node, r.Scan(&node) })
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if err := t.bury(node, true); err != nil {
			return err
		}
	}
	return nil
}

const (
	rowsDue        = "place in ('parked', 'scheduled') and due <= ? order by due limit ?"
	findNext       = "select min(due) from runs where place in ('parked', 'scheduled')"
	findCancelled  = "select id from runs where node = ? and place = 'running' and cancel is not null"
	findMoves      = "select id, move from runs where node = ? and place = 'running' and move is not null"
	countOwned     = "select count(*) filter (where node = ?), count(*) from runs where place = 'running'"
	countSomeReady = "select count(*) from (select 1 from runs where place = 'ready'%s limit 1000)"
	countNodes     = "select count(*) from nodes where gone is null"
	findCauses     = `with recursive c(cause) as (select min(cause) from runs where place = 'parked' and cause <> ''
		union all select (select min(cause) from runs where place = 'parked' and cause <> '' and cause > c.cause) from c
		where c.cause is not null)
	select cause from c where cause is not null`
	outagesRevision  = "select revision, decided from fallback"
	settingsRevision = "select coalesce(max(revision), 0) from audit"
)

// dueAtOnce bounds the runs that one Beat makes ready, so that a million due runs do not block
// other writers.
const dueAtOnce = 2000

// Beat implements [store.Ledger]. A node renews its own lease before it judges others, so that it never buries itself. A node that is gone
// already does not wake up again: it gets an error, and joins under another number.
func (s *Store) Beat(ctx context.Context, node int64, lease time.Duration, bundle string) (b store.Beat, err error) {
	var now time.Time
	err = s.writer.do(ctx, func(t *tx) error {
		now = t.now
		n, err := t.count(renewNode, t.now.UnixMicro(), t.now.Add(lease).UnixMicro(), bundle, node)
		if err != nil {
			return err
		}
		if n == 0 {
			b.Beats, err = t.fenced(node)
			return err
		}
		if err := t.buryAll(findDeadNodes, t.now.UnixMicro()); err != nil {
			return err
		}
		if err := t.wakeDue(); err != nil {
			return err
		}
		b, err = t.beat(node)
		return err
	})
	if err == nil {
		s.seen.write(now)
	}
	return b, err
}

func (t *tx) wakeDue() error {
	due, err := t.sound(rowsDue, t.now.UnixMicro(), dueAtOnce)
	if err != nil {
		return err
	}
	for _, r := range due {
		if r.place == scheduled {
			err = t.enter(r)
		} else {
			t.ready = true
			err = t.exec(setPlace, ready, r.seq)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) beat(node int64) (b store.Beat, err error) {
	b.Now = t.now
	if _, err := t.row(countBeats, []any{node}, &b.Beats); err != nil {
		return b, err
	}
	if _, err := t.row(countOwned, []any{node}, &b.Owned, &b.Running); err != nil {
		return b, err
	}
	b.Cancelled, err = rows(t, findCancelled, []any{node}, func(r *sql.Rows) (id string, err error) { return id, r.Scan(&id) })
	if err != nil {
		return b, err
	}
	b.Moves, err = rows(t, findMoves, []any{node}, func(r *sql.Rows) (m store.Move, err error) { return m, r.Scan(&m.Run, &m.Bundle) })
	if err != nil {
		return b, err
	}
	if _, err := t.row(fmt.Sprintf(countSomeReady, t.readable()), nil, &b.Ready); err != nil {
		return b, err
	}
	if _, err := t.row(settingsRevision, nil, &b.Revision); err != nil {
		return b, err
	}
	if _, err := t.row(countNodes, nil, &b.Nodes); err != nil {
		return b, err
	}
	var decided sql.NullInt64
	if _, err := t.row(outagesRevision, nil, &b.Outages, &decided); err != nil {
		return b, err
	}
	b.Decided = fromMicros(decided)
	b.Causes, err = rows(t, findCauses, nil, func(r *sql.Rows) (cause string, err error) { return cause, r.Scan(&cause) })
	if err != nil {
		return b, err
	}
	var next sql.NullInt64
	if _, err := t.row(findNext+t.readable(), nil, &next); err != nil {
		return b, err
	}
	if next.Valid {
		b.Next = max(fromMicros(next).Sub(t.now), time.Millisecond)
	}
	return b, nil
}

const (
	claim = `update runs set place = 'running', node = ?, started = coalesce(started, ?),
	bundle = case bundle when '' then coalesce((select nullif(serving, '') from definition), ?) else bundle end
	where seq in (%s) returning seq, id, version, event, flow, key, ordered, block, accepted, deadline, bundle, coalesce(move, ''),
	pipeline, generation, checkpoint, losses, error_class = 'kept', cancel is not null`
	findReadyRuns = "select seq from runs where place = 'ready'%s order by priority desc, deadline, seq limit ?"
	// It finds as many as have the bytes of the last argument, and one at least.
	findSomeReady = `select seq from (
		select seq, sum(size) over (order by priority desc, deadline, seq rows between unbounded preceding and 1 preceding) as before from (
			select seq, priority, deadline, length(event) + coalesce(length(checkpoint), 0) as size from runs where place = 'ready'%s
			order by priority desc, deadline, seq limit ?))
		where coalesce(before, 0) < ?`
)

// claimedRow is a claimed run with the values of its order.
type claimedRow struct {
	store.Claimed
	seq, deadline int64
}

// Claim implements [store.Ledger].
func (s *Store) Claim(ctx context.Context, node int64, limit int, bundle string) (runs []store.Claimed, err error) {
	var news []int64
	err = s.writer.do(ctx, func(t *tx) error {
		if err := t.live(node); err != nil {
			return err
		}
		got, err := t.claim(node, limit, bundle)
		if err != nil {
			return err
		}
		slices.SortFunc(got, compareClaimed)
		runs = make([]store.Claimed, len(got))
		for i, c := range got {
			runs[i] = c.Claimed
			if runs[i].Entity, err = t.entity(c.Ordered, c.Flow, c.Key); t.isDamage(err) {
				runs[i].Damage = store.DamagedRun(c.ID, "the row in the table keys", err)
			} else if err != nil {
				return err
			}
		}
		news = t.untold()
		for _, seq := range news {
			runs = append(runs, store.Claimed{Damage: t.damaged[seq], Aside: true})
		}
		return nil
	})
	if err == nil && len(news) > 0 {
		err = s.writer.do(ctx, func(t *tx) error { t.tell(news); return nil })
	}
	if err != nil {
		return nil, err
	}
	return runs, nil
}

// claim hands ready runs to a node, the most urgent first. One update takes them, so no two nodes get the same run. A careful transaction
// first looks which of them can be read.
func (t *tx) claim(node int64, limit int, bundle string) (got []claimedRow, err error) {
	from := fmt.Sprintf(findSomeReady, t.readable())
	args := []any{node, t.now.UnixMicro(), bundle, limit, store.ClaimBytes}
	if t.careful {
		seqs, err := t.readableOf(fmt.Sprintf(findReadyRuns, t.readable()), limit)
		if err != nil || len(seqs) == 0 {
			return nil, err
		}
		from, args = seqList(seqs), args[:3]
	}
	return rows(t, fmt.Sprintf(claim, from), args, scanClaimed)
}

func compareClaimed(a, b claimedRow) int {
	if c := cmp.Compare(b.Event.Priority, a.Event.Priority); c != 0 {
		return c
	}
	if c := cmp.Compare(a.deadline, b.deadline); c != 0 {
		return c
	}
	return cmp.Compare(a.seq, b.seq)
}

func scanClaimed(r *sql.Rows) (c claimedRow, err error) {
	var event []byte
	var accepted sql.NullInt64
	if err := r.Scan(&c.seq, &c.ID, &c.Version, &event, &c.Flow, &c.Key, &c.Ordered, &c.Block,
		&accepted, &c.deadline, &c.Bundle, &c.Move, &c.Pipeline, &c.Generation, &c.Checkpoint, &c.Losses, &c.Kept, &c.Cancelled); err != nil {
		return c, err
	}
	c.Accepted = fromMicros(accepted)
	c.Bundle = model.VersionFor(c.Bundle, c.Flow, c.Key)
	if c.Event, c.Stored, err = store.DecodeClaimed(event); err != nil {
		c.Damage = store.DamagedRun(c.ID, "the column runs.event", err)
	}
	c.Turn = time.UnixMicro(c.deadline).Add(-c.Event.DelayTolerance).UTC()
	return c, nil
}

// Leave implements [store.Ledger].
func (s *Store) Leave(ctx context.Context, node int64, keep []string) error {
	return s.writer.do(ctx, func(t *tx) error {
		if keep == nil {
			return t.bury(node, false)
		}
		if err := t.live(node); err != nil {
			return err
		}
		return t.releaseRuns(node, keep, false)
	})
}

const listNodes = `select node, name, started, seen, gone is null and lease_until >= ?, bundle, beats,
	(select count(*) from runs where runs.node = nodes.node and place = 'running')
	from nodes where gone is null or died and gone > ? order by node`

// lately is how long Nodes shows a node that has died.
const lately = time.Hour

// Nodes implements [store.Ledger].
func (s *Store) Nodes(ctx context.Context) ([]store.NodeInfo, error) {
	if err := s.writer.files.check(); err != nil {
		return nil, err // a caller uses this to find out whether the store works
	}
	now := time.Now()
	r, err := s.read.QueryContext(ctx, listNodes, now.UnixMicro(), now.Add(-lately).UnixMicro())
	if err != nil {
		return nil, err
	}
	return collect(r, func(r *sql.Rows) (n store.NodeInfo, err error) {
		var started, seen sql.NullInt64
		err = r.Scan(&n.Node, &n.Name, &started, &seen, &n.Alive, &n.Bundle, &n.Beats, &n.Runs)
		n.Started, n.Seen = fromMicros(started), fromMicros(seen)
		return n, err
	})
}
