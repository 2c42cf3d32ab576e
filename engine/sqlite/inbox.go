package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"procaas/engine/model"
	"procaas/engine/sqlstore"
	"procaas/engine/store"
)

// Accept implements [store.Inbox].
//
// An event and its run are written by one function of the writer, so an acknowledged event has exactly one run. The function may run
// twice, see [writer.commit], and sets all results anew.
func (s *Store) Accept(ctx context.Context, node int64, runs []model.Intake) ([]store.Accepted, error) {
	events, err := encodeEvents(runs)
	if err != nil {
		return nil, err
	}
	results := make([]store.Accepted, len(runs))
	err = s.writer.do(ctx, func(t *tx) error {
		if node != 0 {
			if err := t.live(node); err != nil {
				return err
			}
		}
		for i, r := range runs {
			if results[i], err = t.accept(node, r, events[i]); err != nil {
				return fmt.Errorf("accept event %q: %w", r.Event.ID, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// encodeEvents encodes events before the write, because a write blocks all others.
func encodeEvents(runs []model.Intake) ([][]byte, error) {
	events := make([][]byte, len(runs))
	for i, r := range runs {
		text, err := store.EncodeEvent(r.Event)
		if err != nil {
			return nil, err
		}
		events[i] = text
	}
	return events, nil
}

const (
	findEvent   = "select run, hash from events where source = ? and id = ?"
	insertEvent = "insert into events (source, id, run, hash, accepted) values (?, ?, ?, ?, ?)"
	insertKey   = "insert into keys (flow, key) values (?, ?) on conflict do nothing"
	insertRun   = `insert into runs (id, flow, key, ordered, block, place, node, pipeline, bundle,
	priority, accepted, started, due, deadline, labels, event)
	values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, nullif(?, ''), ?)`
)

// accept stores one event. A repeated event gets the answer of the first one, whatever the state of its key allows now. Its id is stored
// only if it is accepted, so that a refused event may come again.
func (t *tx) accept(node int64, r model.Intake, event []byte) (store.Accepted, error) {
	if a, known, err := t.repeated(r); err != nil || known {
		return a, err
	}
	allowed, undecided, err := t.allowed(r)
	if err != nil {
		return store.Accepted{}, err
	} else if !allowed {
		return store.Accepted{Err: store.ErrRejected}, nil
	}
	if full, err := t.isFull(r); err != nil || full {
		return store.Accepted{Err: store.ErrFull}, err
	}
	if r.Dedup {
		if err := t.exec(insertEvent, r.Event.Namespace(), r.Event.ID, r.ID, r.Hash, t.now.UnixMicro()); err != nil {
			return store.Accepted{}, err
		}
	}
	if r.Ordered {
		if err := t.exec(insertKey, r.Flow, r.Key); err != nil {
			return store.Accepted{}, err
		}
	}
	place, listens, err := t.firstPlace(r)
	if err != nil {
		return store.Accepted{}, err
	}
	var owner int64
	var started sql.NullInt64
	bundle := ""
	if place == ready && node != 0 && r.Own {
		place, owner, started = running, node, micros(t.now)
		if bundle, err = t.begins(r); err != nil {
			return store.Accepted{}, err
		}
		if r.EndsWith(bundle) {
			return store.Accepted{Run: r.ID, Ended: true}, t.storeEnded(r, event)
		}
	}
	due := t.now
	if r.Event.At.After(due) {
		due = r.Event.At
	}
	if err := t.exec(insertRun, r.ID, r.Flow, r.Key, r.Ordered, r.Block, place, owner, r.Pipeline, bundle,
		r.Event.Priority, t.now.UnixMicro(), started, due.UnixMicro(),
		due.Add(r.Patience()).UnixMicro(), model.StoredLabels(r.Event.Labels), event); err != nil {
		return store.Accepted{}, err
	}
	t.ready = t.ready || place == ready
	if record, is := store.Rerun(r); is {
		if err := t.share(func(s sqlstore.Tx) error { return sqlstore.Audit(context.Background(), s, record) }); err != nil {
			return store.Accepted{}, err
		}
	}
	if listens {
		if err := t.stir(r.Flow, r.Key); err != nil {
			return store.Accepted{}, err
		}
	}
	if owner == 0 {
		return store.Accepted{Run: r.ID, Undecided: undecided}, nil
	}
	c := &store.Claimed{
		ID: r.ID, Event: r.Event, Flow: r.Flow, Key: r.Key, Ordered: r.Ordered, Block: r.Block,
		Accepted: t.now.Truncate(time.Microsecond), Pipeline: r.Pipeline, Bundle: bundle,
	}
	c.Entity, err = t.entity(r.Ordered, r.Flow, r.Key)
	return store.Accepted{Run: r.ID, Claimed: c, Undecided: undecided}, err
}

const (
	takeSeq     = "update sqlite_sequence set seq = seq + 1 where name = 'runs' returning seq"
	firstSeq    = "insert into sqlite_sequence (name, seq) values ('runs', 1)"
	insertEnded = `insert into history (seq, id, flow, key, ordered, status, version, generation, pipeline, bundle, accepted, started, ended,
	failed_path, error, error_class, reason, labels, event, checkpoint, left_out)
	values (?, ?, ?, ?, false, 'succeeded', 1, 0, ?, ?, ?, ?, ?, '', '', '', '', nullif(?, ''), ?, ?, nullif(?, ''))`
)

// storeEnded stores a run that ended before its event was stored. It takes the next number of a run, which SQLite keeps in a table of its
// own. The node's clock may be a little ahead or behind, and people must read the times of a run in order.
func (t *tx) storeEnded(r model.Intake, event []byte) error {
	seq := int64(1)
	found, err := t.row(takeSeq, nil, &seq)
	if err == nil && !found { // no run was ever stored in the table of runs
		err = t.exec(firstSeq)
	}
	if err != nil {
		return err
	}
	e, accepted, ended := r.End, t.now, t.now
	if e.Began.Before(accepted) {
		accepted = e.Began
	} else {
		ended = e.Began
	}
	return t.exec(insertEnded, seq, r.ID, r.Flow, r.Key, e.Pipeline, e.Bundle, accepted.UnixMicro(), accepted.UnixMicro(), ended.UnixMicro(),
		model.StoredLabels(r.Event.Labels), event, blob(e.Checkpoint), model.FormatLeftOut(e.LeftOut))
}

const findServing = "select serving from definition"

// begins returns the version that a run given to a node at once begins with.
func (t *tx) begins(r model.Intake) (string, error) {
	var serving string
	_, err := t.row(findServing, nil, &serving)
	return model.VersionFor(cmp.Or(serving, r.Bundle), r.Flow, r.Key), err
}

// repeated returns the result of an event that was accepted before.
func (t *tx) repeated(r model.Intake) (a store.Accepted, known bool, err error) {
	if !r.Dedup {
		return a, false, nil
	}
	var hash string
	known, err = t.row(findEvent, []any{r.Event.Namespace(), r.Event.ID}, &a.Run, &hash)
	a.Duplicate = known && hash == r.Hash
	if known && !a.Duplicate {
		a.Err = store.ErrConflict
	}
	return a, known, err
}

// countKept is that of the common part, for the transaction that accepts an event.
const countKept = "select count(*), coalesce(sum(length(event)), 0) from runs where flow = ? and key = ? and place = 'scheduled' " +
	"and error_class = 'kept'"

// isFull reports whether an event would be kept at once, and its key has no room for it.
func (t *tx) isFull(r model.Intake) (bool, error) {
	if !r.Keep || r.Event.At.After(t.now) {
		return false, nil
	}
	var one int64
	var listens bool
	if busy, err := t.row(findActive, []any{r.Flow, r.Key}, &one, &listens); err != nil || busy {
		return false, err
	}
	var k store.Kept
	_, err := t.row(countKept, []any{r.Flow, r.Key}, &k.Events, &k.Bytes)
	return k.IsFull(), err
}

const findAhead = `select 1 from runs where flow = ? and key = ? and ordered and place <> 'failed'
	and not (place = 'scheduled' and due > ?) limit 1`

// allowed asks the automaton. undecided means that the state may still change, by an earlier event
// or until the event is due.
func (t *tx) allowed(r model.Intake) (allowed, undecided bool, err error) {
	if !r.Ordered || r.From == nil {
		return true, false, nil
	}
	if r.Event.At.After(t.now) {
		return len(r.From) > 0, true, nil
	}
	var one int
	if undecided, err = t.row(findAhead, []any{r.Flow, r.Key, t.now.UnixMicro()}, &one); err != nil || undecided {
		return true, undecided, err
	}
	e, err := t.entity(r.Ordered, r.Flow, r.Key)
	return slices.Contains(r.From, e.State), false, err
}

// firstPlace returns where a new run begins. At most one ordered run of a key is in flight, and a new one never overtakes those that
// queue: if none is in flight, none queues, because each end promotes the next. It also returns whether the run
// in flight waits for events.
func (t *tx) firstPlace(r model.Intake) (at place, listens bool, err error) {
	if r.Event.At.After(t.now) {
		return scheduled, false, nil
	}
	if !r.Ordered {
		return ready, false, nil
	}
	var one int64
	busy, err := t.row(findActive, []any{r.Flow, r.Key}, &one, &listens)
	if busy {
		return queued, listens, err
	}
	return ready, false, err
}
