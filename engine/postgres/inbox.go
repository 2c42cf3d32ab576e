package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"procaas/engine/model"
	"procaas/engine/sqlstore"
	"procaas/engine/store"
)

// An intake is an incoming event with the data that the store reads for it.
type intake struct {
	model.Intake
	event  []byte
	due    time.Time
	place  place // ended for a run that is stored with its end
	node   int64
	result store.Accepted
	left   bool  // it is not stored
	from   *step // the step that emits it; nil for an event from outside
}

func intakes(runs []model.Intake) ([]*intake, error) {
	all := make([]*intake, len(runs))
	for i, r := range runs {
		text, err := store.EncodeEvent(r.Event)
		if err != nil {
			return nil, err
		}
		all[i] = &intake{Intake: r, event: text, result: store.Accepted{Run: r.ID}}
	}
	return all, nil
}

// Accept implements [store.Inbox].
//
// An event and its run are one transaction, so an acknowledged event has exactly one run. If the answer is lost, the sender repeats the
// event, and its id finds the run. Events without an id of the sender cannot be found again, and are stored twice then.
func (s *Store) Accept(ctx context.Context, node int64, runs []model.Intake) ([]store.Accepted, error) {
	if len(runs) == 0 {
		return []store.Accepted{}, nil
	}
	var in []*intake
	err := s.db.tx(ctx, func(t *tx) (err error) {
		if in, err = intakes(runs); err != nil {
			return err
		}
		here, _, err := t.fence(ctx, in)
		switch {
		case err != nil || len(here) == 0:
			return err
		case isPlain(here):
			return t.acceptPlain(ctx, node, here)
		}
		return t.accept(ctx, node, here)
	})
	if err != nil {
		return nil, fmt.Errorf("accept: %w", err)
	}
	results := make([]store.Accepted, len(in))
	for i, r := range in {
		results[i] = r.result
	}
	return results, nil
}

// isPlain reports whether events can be accepted without reading anything: they have no order, their
// senders chose no id, and they are due at once.
func isPlain(in []*intake) bool {
	return !slices.ContainsFunc(in, func(r *intake) bool { return r.Ordered || r.Dedup || !r.Event.At.IsZero() })
}

// acceptPlain stores events in one round trip. The time of acceptance is that of the transaction,
// so it need not be known before.
func (t *tx) acceptPlain(ctx context.Context, node int64, in []*intake) error {
	var accepted []time.Time
	t.lockNode(node)
	(&keyring{}).place(in, node, time.Time{})
	ended := t.queueEnded(in, node, nil)
	if q := t.queueInsert(insertPlain, in, node, nil); q != nil {
		q.Query(rows(&accepted, pgx.RowTo[time.Time]))
	}
	if err := t.commit(ctx); err != nil {
		return err
	}
	if len(accepted) == 0 && len(*ended) == 0 {
		return store.ErrFenced
	}
	for _, r := range in {
		if r.place == ready {
			t.readyAt(r.position(accepted[0]))
		}
		if c := r.result.Claimed; c != nil {
			c.Accepted = accepted[0].UTC()
		}
	}
	return nil
}

// accept stores events in two round trips. The first one locks their ids and their keys and reads what these decide. Two events of one id
// wait for each other there, and so do two of one key: the order of acceptance is the order of these locks.
func (t *tx) accept(ctx context.Context, node int64, in []*intake) error {
	t.lockNode(node)
	news := t.queueEvents(in)
	keys := t.queueKeys(in)
	t.queueKept(keys, in)
	at := t.readNode(node) // after the locks of keys: a run begins after the one before has ended
	if err := t.send(ctx); err != nil {
		return err
	}
	if node != 0 && !at.live {
		return store.ErrFenced
	}
	if node != 0 && at.serving != "" {
		for _, r := range in {
			r.Bundle = model.VersionFor(at.serving, r.Flow, r.Key)
		}
	}
	again := leaveKnown(in, *news)
	keys.place(in, node, at.now)
	t.forget(in, keys)
	t.queueFind(again)
	if len(again) > 0 {
		t.queue(writeNothing)
	}
	t.queueEnded(in, node, &at.now)
	t.queueInsert(insertRuns, in, node, &at.now)
	t.queueStir(keys.heard(in))
	if err := sqlstore.Audit(ctx, t, reruns(in)...); err != nil {
		return err
	}
	return t.commit(ctx)
}

// writeNothing makes a transaction that may only read wait for the standby when it commits. An event
// that was accepted before may be on the primary only, because the first transaction was cancelled
// while it waited. Standbys ignore what it writes.
const writeNothing = "select pg_logical_emit_message(true, 'procaas', '')"

// reruns lists the audit records of events that rerun runs.
func reruns(in []*intake) (records []store.Audited) {
	for _, r := range in {
		if record, is := store.Rerun(r.Intake); is && !r.left {
			records = append(records, record)
		}
	}
	return records
}

// heard lists the keys whose parked runs wait for one of the events.
func (k *keyring) heard(in []*intake) *keySet {
	keys := &keySet{}
	for _, r := range in {
		if !r.left && r.place == queued && k.of(r.Intake).listens {
			keys.add(true, r.Flow, r.Key)
		}
	}
	return keys
}

const (
	// All get one time, since each new time changes the index events_accepted.
	insertEvents = `insert into events (source, id, run, hash, accepted)
	select e.source, e.id, e.run, e.hash, (select clock_timestamp())
	from unnest($1::text[], $2::text[], $3::text[], $4::text[]) with ordinality as e (source, id, run, hash, at)
	order by e.source, e.id, e.at
	on conflict do nothing returning run`
	insertEventsOfCell = `insert into events (source, id, run, hash, slot, accepted)
	select e.source, e.id, e.run, e.hash, e.slot, (select clock_timestamp())
	from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int[]) with ordinality as e (source, id, run, hash, slot, at)
	order by e.source, e.id, e.at
	on conflict do nothing returning run`
	findEvents = `select i.at, e.run, e.hash
	from unnest($1::text[], $2::text[]) with ordinality as i (source, id, at)
	join events e on e.source = any (array[i.source]) and e.id = any (array[i.id])`
	deleteEvents = `delete from events e using unnest($1::text[], $2::text[]) as u (source, id)
	where e.source = any (array[u.source]) and e.id = any (array[u.id])`
)

// queueEvents stores the ids of events. They are inserted in their order, so that two transactions with the same ids cannot wait for each
// other in a circle. After send, the result has the runs of the new ones.
func (t *tx) queueEvents(in []*intake) *[]string {
	var news []string
	var sources, ids, runs, hashes []string
	var slots []int
	for _, r := range in {
		if r.Dedup {
			sources, ids = append(sources, r.Event.Namespace()), append(ids, r.Event.ID)
			runs, hashes = append(runs, r.ID), append(hashes, r.Hash)
			if t.cell {
				slots = append(slots, store.InboxSlot(r.Key))
			}
		}
	}
	switch {
	case len(ids) == 0:
	case t.cell:
		t.queue(insertEventsOfCell, sources, ids, runs, hashes, slots).Query(rows(&news, pgx.RowTo[string]))
	default:
		t.queue(insertEvents, sources, ids, runs, hashes).Query(rows(&news, pgx.RowTo[string]))
	}
	return &news
}

// leaveKnown marks the events that were accepted before as not stored, and returns them. news has
// the runs of the others.
func leaveKnown(in []*intake, news []string) (again []*intake) {
	fresh := make(map[string]bool, len(news))
	for _, run := range news {
		fresh[run] = true
	}
	for _, r := range in {
		r.left = r.Dedup && !fresh[r.ID]
		if r.left {
			again = append(again, r)
		}
		delete(fresh, r.ID) // the same event twice in a batch is a repetition
	}
	return again
}

// queueFind reads the runs of events that were accepted before. An event without one was refused in
// this batch.
func (t *tx) queueFind(again []*intake) {
	if len(again) == 0 {
		return
	}
	var sources, ids []string
	for _, r := range again {
		r.result = store.Accepted{Err: store.ErrRejected}
		sources, ids = append(sources, r.Event.Namespace()), append(ids, r.Event.ID)
	}
	t.queue(findEvents, sources, ids).Query(func(rows pgx.Rows) error {
		var i int
		var run, hash string
		_, err := pgx.ForEachRow(rows, []any{&i, &run, &hash}, func() error {
			r := again[i-1]
			r.result = store.Accepted{Run: run, Duplicate: hash == r.Hash}
			if !r.result.Duplicate {
				r.result.Err = store.ErrConflict
			}
			return nil
		})
		return err
	})
}

// place decides the place of each event, in the order of the batch. Each event is decided as if those before it were stored already: the
// first ordered one of a key is in flight, and the next one queues behind it. At most one run of a key is ever in flight.
func (k *keyring) place(in []*intake, node int64, now time.Time) {
	for _, r := range in {
		if r.left {
			continue
		}
		r.due = now
		if r.Event.At.After(now) {
			r.due = r.Event.At
		}
		e := k.of(r.Intake)
		if r.Ordered && r.From != nil {
			later := r.due.After(now)
			r.result.Undecided = later || e.pending
			if !r.result.Undecided && !slices.Contains(r.From, e.State) || later && len(r.From) == 0 {
				r.left, r.result = true, store.Accepted{Err: store.ErrRejected}
				continue
			}
		}
		if r.Keep && !e.busy && !r.due.After(now) && e.kept.IsFull() {
			r.left, r.result = true, store.Accepted{Err: store.ErrFull}
			continue
		}
		switch {
		case r.due.After(now):
			r.place = scheduled
		case e.busy:
			r.place = queued
		default:
			r.place, e.busy = ready, r.Ordered
		}
		e.pending, e.used = e.pending || r.Ordered && r.place != scheduled, true
		if r.place != ready || !r.Own || node == 0 {
			continue
		}
		if r.EndsWith(r.Bundle) {
			r.place, r.result.Ended = ended, true
			continue
		}
		r.place, r.node = running, node
		r.result.Claimed = &store.Claimed{
			ID: r.ID, Event: r.Event, Flow: r.Flow, Key: r.Key, Ordered: r.Ordered, Block: r.Block,
			Accepted: now.UTC(), Pipeline: r.Pipeline, Bundle: r.Bundle, Entity: e.EntityState,
		}
	}
}

// forget removes what was stored for events that are refused after that. A refused event must not be known: its sender may send it again
// when the state of its key allows it.
func (t *tx) forget(in []*intake, keys *keyring) {
	var sources, ids []string
	for _, r := range in {
		if r.left && r.Dedup && r.result.Run == "" {
			sources, ids = append(sources, r.Event.Namespace()), append(ids, r.Event.ID)
		}
	}
	if len(ids) > 0 {
		t.queue(deleteEvents, sources, ids)
	}
	if flows, names := keys.unused(); len(flows) > 0 {
		t.queue(deleteKeys, flows, names)
	}
}

const insertRuns = `insert into runs (id, flow, key, pipeline, ordered, block, place, node, priority,
	accepted, started, due, deadline, bundle, event, labels)
	select id, flow, key, pipeline, ordered, block, place, node, priority,
	coalesce($13::timestamptz, now()), case when node <> 0 then coalesce($13, now()) end,
	coalesce(due, now()), coalesce(due, now()) + tolerance * interval '1 microsecond', bundle, event, labels
	from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bool[], $6::bool[], $7::text[], $8::bigint[],
	$9::bigint[], $10::timestamptz[], $11::bigint[], $12::text[], $14::bytea[],
	$16::text[]) with ordinality as
	i (id, flow, key, pipeline, ordered, block, place, node, priority, due, tolerance, bundle, event, labels, at)
	where $15::bigint = 0 or exists (select from nodes where node = $15 and gone is null)
	order by i.at`

// insertPlain returns the time of acceptance, which is that of the transaction.
const insertPlain = insertRuns + " returning accepted"

// position returns a place in the queue that is not after the run. A run without a due time is due
// when it is accepted.
func (r *intake) position(accepted time.Time) position {
	due := r.due
	if due.IsZero() {
		due = accepted
	}
	return position{-int64(r.Event.Priority), due.Add(r.Patience())}
}

// queueInsert stores the runs, in order, because their numbers are the order of acceptance. Without
// a time it uses that of the transaction. For a node that may not write it stores nothing. The
// caller notes which runs become ready.
func (t *tx) queueInsert(insert string, in []*intake, writer int64, now *time.Time) *pgx.QueuedQuery {
	var id, flow, key, pipeline, bundle, at []string
	var ordered, block []bool
	var node, priority, tolerance []int64
	var due []*time.Time
	var event pgtype.FlatArray[[]byte]
	var labels pgtype.FlatArray[*string] // ends with the last event that has labels; missing ones are null
	for _, r := range in {
		if r.left || r.place == ended {
			continue
		}
		if text := labelsOf(r); text != nil {
			labels = append(append(labels, make([]*string, len(id)-len(labels))...), text)
		}
		id = append(id, r.ID)
		flow = append(flow, r.Flow)
		key = append(key, r.Key)
		pipeline = append(pipeline, r.Pipeline)
		ordered, block, at = append(ordered, r.Ordered), append(block, r.Block), append(at, string(r.place))
		node, priority = append(node, r.node), append(priority, int64(r.Event.Priority))
		due, tolerance = append(due, toNull(r.due)), append(tolerance, r.Patience().Microseconds())
		event = append(event, r.event)
		owned := ""
		if r.node != 0 {
			owned = r.Bundle
		}
		bundle = append(bundle, owned)
		if r.place == ready && now != nil {
			t.readyAt(r.position(*now))
		}
	}
	if len(id) == 0 {
		return nil
	}
	return t.queue(insert, id, flow, key, pipeline, ordered, block, at, node, priority, due, tolerance, bundle, now, event, writer, labels)
}

// insertEnded stores runs that ended before their events were stored, in the order of acceptance. The node's clock may be a little ahead
// or behind, and people must read the times of a run in order.
const insertEnded = `insert into history (seq, accepted, started, ended, version, generation, ordered, status, id, flow, key, pipeline,
	bundle, failed_path, error, error_class, reason, event, checkpoint, left_out, labels)
	select nextval((select pg_get_serial_sequence('runs', 'seq')::regclass)), least(coalesce($2, now()), began),
	least(coalesce($2, now()), began), greatest(clock_timestamp(), began), 1, 0, false, 'succeeded', id, flow, key, pipeline,
	bundle, '', '', '', '', event, checkpoint, left_out, labels
	from (select * from unnest($3::timestamptz[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bytea[], $10::bytea[],
		$11::text[], $12::text[]) with ordinality as
		i (began, id, flow, key, pipeline, bundle, event, checkpoint, left_out, labels, at) order by at) i
	where exists (select from nodes where node = $1 and gone is null) returning id`

// queueEnded stores the runs that are accepted with their end. After it was sent, the result has those that were stored: all, or none if
// the node may not write. Without a time it uses that of the transaction.
func (t *tx) queueEnded(in []*intake, node int64, now *time.Time) *[]string {
	var stored, id, flow, key, pipeline, bundle []string
	var began []time.Time
	var event, checkpoint pgtype.FlatArray[[]byte]
	var left, labels pgtype.FlatArray[*string]
	for _, r := range in {
		if r.left || r.place != ended {
			continue
		}
		e := r.End
		began = append(began, e.Began)
		id, flow, key = append(id, r.ID), append(flow, r.Flow), append(key, r.Key)
		pipeline, bundle = append(pipeline, e.Pipeline), append(bundle, e.Bundle)
		event, checkpoint = append(event, r.event), append(checkpoint, sqlstore.Blob(e.Checkpoint))
		left, labels = append(left, leftOut(&e.Change)), append(labels, labelsOf(r))
	}
	if len(id) > 0 {
		t.queue(insertEnded, node, now, began, id, flow, key, pipeline, bundle, event, checkpoint, left, labels).Query(
			rows(&stored, pgx.RowTo[string]))
	}
	return &stored
}

// labelsOf returns the labels of an event as they are stored; nil for none.
func labelsOf(r *intake) *string {
	if text := model.StoredLabels(r.Event.Labels); text != "" {
		return &text
	}
	return nil
}

// fromNull returns the zero time for null.
func fromNull(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// toNull returns null for the zero time.
func toNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
