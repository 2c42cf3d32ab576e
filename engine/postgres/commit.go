package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/model"
	"procaas/engine/sqlstore"
	"procaas/engine/store"
)

var errTwice = fmt.Errorf("%w: a run occurs twice in one commit", store.ErrRefused)

// Commit implements [store.Ledger].
//
// All changes that are not refused are one transaction: a crash leaves all of them or none. A refused change writes nothing and does not
// hold up the others. A change is refused if its run has another version or another owner than the node believes. So a node that was
// taken for dead, or whose last answer was lost, never overwrites what others wrote.
func (s *Store) Commit(ctx context.Context, node int64, changes []model.Change) ([]error, error) {
	if len(changes) == 0 {
		return []error{}, nil
	}
	w := &work{node: node}
	plain := true
	seen := make(map[string]bool, len(changes))
	for i := range changes {
		if seen[changes[i].Run] {
			return nil, fmt.Errorf("commit: run %s: %w", changes[i].Run, errTwice)
		}
		seen[changes[i].Run] = true
		plain = plain && (isCheckpoint(&changes[i]) || changes[i].IsPlainEnd())
	}
	err := s.db.tx(ctx, func(t *tx) error {
		// The transaction may run again, and nothing of the first try must be left.
		w.steps, w.saved, w.ended = make([]step, len(changes)), nil, nil
		for i := range changes {
			w.steps[i].Change = &changes[i]
		}
		if plain {
			return w.commitPlain(ctx, t)
		}
		return w.commit(ctx, t)
	})
	if err == nil {
		err = s.explain(ctx, w)
	}
	if err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	errs := make([]error, len(changes))
	for i := range w.steps {
		errs[i] = w.steps[i].refused
	}
	return errs, nil
}

// A step is a change with the data that the store reads for it.
type step struct {
	*model.Change
	flow, key string
	ordered   bool
	block     bool
	cancel    *string
	move      string
	found     bool // and locked, in the state that the change requires
	refused   error
}

// work is a commit in progress.
type work struct {
	node    int64
	now     time.Time
	steps   []step
	pending map[string]keyName // keys of the runs whose events are taken: those that exist, locked
	back    bool               // a run is ready again, though its key may have earlier ones
	saved   []string           // ids of the runs whose checkpoints were written
	ended   []string           // ids of the runs that commitPlain has ended
}

const findCancelled = "select id, version from runs where node = $1 and id = any ($2::text[]) and cancel is not null"

// explain finds out which of the refused changes are of cancelled runs. Only the owner of the present version learns of the cancel, since
// it must stop the run. For everybody else the change is stale, cancelled or not.
func (s *Store) explain(ctx context.Context, w *work) error {
	var refused []string
	versions := map[string]int64{}
	for i := range w.steps {
		if c := &w.steps[i]; c.refused != nil {
			refused = append(refused, c.Run)
		}
	}
	if len(refused) == 0 {
		return nil
	}
	r, err := s.db.pool.Query(ctx, findCancelled, w.node, refused)
	if err != nil {
		return err
	}
	var id string
	var version int64
	if _, err := pgx.ForEachRow(r, []any{&id, &version}, func() error { versions[id] = version; return nil }); err != nil {
		return err
	}
	for i := range w.steps {
		c := &w.steps[i]
		if have, ok := versions[c.Run]; ok && c.refused != nil && have == c.Version {
			c.refused = store.ErrCancelled
		}
	}
	return nil
}

// commit writes changes of all kinds in two round trips. It locks and reads what they touch,
// decides, and writes. Plain checkpoints need no decision.
//
// The order of the statements is that of the locks in the package comment. What is read behind the locks stays true until the end, so
// the decisions between the two round trips need no second look. The clock is read last: a run that begins after another one of its key
// must not seem to have begun before that one ended.
func (w *work) commit(ctx context.Context, t *tx) error {
	emits, err := w.emits()
	if err != nil {
		return err
	}
	emits, elsewhere, err := t.fenceEmits(ctx, emits)
	if err != nil {
		return err
	}
	t.lockNode(w.node)
	news := t.queueEvents(emits)
	ring := w.queueLocks(t, emits)
	at := t.readNode(w.node) // after the locks of keys
	if err := t.send(ctx); err != nil {
		return err
	}
	if !at.live {
		return store.ErrFenced
	}
	w.now = at.now
	w.refuse()
	leaveKnown(emits, *news)
	touched := &keySet{}
	if err := w.queueWrites(t, ring, touched); err != nil {
		return err
	}
	w.queueEmits(t, emits, ring, touched)
	if err := t.queueOutbox(elsewhere); err != nil {
		return err
	}
	if w.back {
		t.queueReorder(touched)
	} else {
		t.queuePromote(touched)
	}
	w.queueWakes(t, len(emits) > 0, touched)
	if err := t.commit(ctx); err != nil {
		return err
	}
	w.refuseUnsaved()
	return nil
}

// emits lists the events of all changes. They have no Own and no From.
func (w *work) emits() ([]*intake, error) {
	var all []*intake
	for i := range w.steps {
		in, err := intakes(w.steps[i].Emit)
		if err != nil {
			return nil, err
		}
		for _, e := range in {
			e.from = &w.steps[i]
		}
		all = append(all, in...)
	}
	return all, nil
}

const (
	// An entity may occur several times. That is harmless: a held lock is granted at once, and its
	// rows are the same.
	lockKeysOf = `select from (select flow, key from runs where id = any ($1::text[]) and ordered
		union all select * from unnest($2::text[], $3::text[])) u, keys k
	where k.flow = any (array[u.flow]) and k.key = any (array[u.key])
	` + inOrder + ` for no key update of k`
	lockRuns = `select id, version, node, flow, key, ordered, block, cancel, coalesce(move, '') from runs
	where id = any ($1::text[]) order by seq + 0 for no key update`
	readKeysOf = `select k.flow, k.key, k.state, k.shared, false, false, false from runs r, keys k
	where r.id = any ($1::text[]) and r.ordered and k.flow = any (array[r.flow]) and k.key = any (array[r.key])`
)

// queueLocks locks and reads the runs with their entities, and the entities of events. Checkpoints need no lock before, because
// saveCheckpoints checks version and owner itself. Keys come before runs, as in every transaction. An entity is read only for the
// changes that write it.
func (w *work) queueLocks(t *tx, emits []*intake) *keyring {
	var all, moving, ending []string
	for i := range w.steps {
		c := &w.steps[i]
		if isCheckpoint(c.Change) {
			continue
		}
		c.refused = store.ErrStale // until the run is found
		all = append(all, c.Run)
		if c.Status != model.Running || len(c.Take) > 0 {
			moving = append(moving, c.Run)
		}
		if c.Status == model.Succeeded && (c.State != "" || len(c.Shared) > 0) {
			ending = append(ending, c.Run)
		}
	}
	k := &keyring{entries: map[keyName]*keyEntry{}}
	switch flows, keys := k.add(emits); {
	case len(keys) > 0:
		t.queue(makeKeysOf, flows, keys, moving).Query(k.make)
	case len(moving) > 0:
		t.queue(lockKeysOf, moving, flows, keys)
	}
	t.queue(lockRuns, all).Query(w.read)
	w.queueTaken(t)
	if len(ending) > 0 {
		t.queue(readKeysOf, ending).Query(k.read)
	}
	return k
}

// read takes the rows of lockRuns, and refuses changes of runs that have advanced.
func (w *work) read(rows pgx.Rows) error {
	steps := make(map[string]*step, len(w.steps))
	for i := range w.steps {
		steps[w.steps[i].Run] = &w.steps[i]
	}
	var id string
	var version, node int64
	var r step
	_, err := pgx.ForEachRow(rows, []any{&id, &version, &node, &r.flow, &r.key, &r.ordered, &r.block, &r.cancel, &r.move}, func() error {
		c := steps[id]
		c.flow = r.flow
		c.key = r.key
		c.ordered = r.ordered
		c.block = r.block
		c.cancel = r.cancel
		c.move = r.move
		if version == c.Version && node == w.node {
			c.refused, c.found = nil, true
		}
		r.cancel = nil // the next row must not overwrite it
		return nil
	})
	return err
}

// refuse refuses changes by which a cancelled run would continue. A run that has ended for good while somebody cancelled it has ended:
// its work is done, and refusing the end would do it again.
func (w *work) refuse() {
	for i := range w.steps {
		switch c := &w.steps[i]; {
		case c.refused != nil:
		case c.cancel != nil && !c.isFinal():
			c.refused = store.ErrCancelled
		case !w.canTake(c):
			c.refused = store.ErrStale
		}
	}
}

// isFinal reports whether the run ends for good.
func (c *step) isFinal() bool { return c.Status.Ended() && c.Status != model.Failed }

// queueWrites writes all accepted changes, and collects the keys whose next run may start.
func (w *work) queueWrites(t *tx, ring *keyring, touched *keySet) error {
	var ends []ending
	var leaves []*step
	for i := range w.steps {
		c := &w.steps[i]
		if c.refused == nil {
			for _, taken := range c.Take {
				ends = append(ends, ending{id: taken.Run, status: model.Succeeded, reason: taken.Reason})
			}
		}
		switch {
		case c.refused != nil:
			continue
		case c.Status == model.Running:
			continue
		case !c.isFinal():
			leaves = append(leaves, c)
			w.back = w.back || c.PlaceAfter(c.ordered, c.block, c.move, w.now) == ready
		default:
			reason := c.Reason
			if c.Status == model.Cancelled && c.cancel != nil {
				reason = *c.cancel
			}
			ends = append(ends, ending{id: c.Run, status: c.Status, reason: reason, last: c.Change})
			if err := ring.advance(c); err != nil {
				return err
			}
		}
		touched.add(c.ordered, c.flow, c.key)
	}
	w.queueCheckpoints(t)
	t.queueEnds(ends)
	w.queueLeaves(t, leaves)
	ring.queueEntities(t)
	return nil
}

// advance records how a run has changed its entity. Only a run that has succeeded changes it.
func (k *keyring) advance(c *step) error {
	e := k.entries[keyName{c.flow, c.key}]
	if !c.ordered || c.Status != model.Succeeded || e == nil {
		return nil
	}
	shared, err := store.MergeShared(e.Shared, c.Shared)
	if err != nil {
		return fmt.Errorf("shared state of key %q of flow %s: %w", c.key, c.flow, err)
	}
	e.Shared, e.written = shared, true
	if c.State != "" && c.State != e.State {
		e.State, e.moved = c.State, true
	}
	return nil
}

const (
	saveKeys = `update keys k set state = c.state, shared = c.shared
	from unnest($1::text[], $2::text[], $3::text[], $4::bytea[]) as c (flow, key, state, shared)
	where k.flow = any (array[c.flow]) and k.key = any (array[c.key])`
	// A new state brings back the runs that were deferred. The lookup locks them, so the condition
	// holds for their current version.
	undefer = `update runs r set place = 'queued'
	from unnest($1::text[], $2::text[]) as k (flow, key), lateral (select d.seq from runs d
		where d.flow = k.flow and d.key = k.key and d.place = 'deferred' for no key update) d
	where r.seq = any (array[d.seq])`
)

// queueEntities saves the entities that runs have changed.
func (k *keyring) queueEntities(t *tx) {
	var flow, key, state []string
	var shared [][]byte
	var moved keySet
	for n, e := range k.entries {
		if e.written {
			flow = append(flow, n.flow)
			key = append(key, n.key)
			state = append(state, e.State)
			shared = append(shared, sqlstore.Blob(e.Shared))
		}
		moved.add(e.moved, n.flow, n.key)
	}
	if len(key) > 0 {
		t.queue(saveKeys, flow, key, state, shared)
	}
	if len(moved.keys) > 0 {
		t.queue(undefer, moved.flows, moved.keys)
	}
}

// queueEmits stores the events of the written changes. Ordered ones queue behind the runs of their
// keys, whose first run is then promoted.
func (w *work) queueEmits(t *tx, emits []*intake, ring *keyring, touched *keySet) {
	for _, r := range emits {
		if r.left {
			continue
		}
		if r.from.refused != nil {
			// The event is dropped, with its id. The run's present owner emits it again, and it must not be taken for a duplicate then.
			r.left, r.result.Run = true, ""
			continue
		}
		if e := ring.entries[keyName{r.Flow, r.Key}]; e != nil && r.Ordered {
			e.used = true
		}
		r.due, r.place = w.now, ready
		switch {
		case r.Event.At.After(w.now):
			r.due, r.place = r.Event.At, scheduled
		case r.Ordered:
			r.place = queued
			touched.add(true, r.Flow, r.Key)
		}
	}
	t.forget(emits, ring)
	t.queueInsert(insertRuns, emits, w.node, &w.now)
}
