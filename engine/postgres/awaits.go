package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"procaas/engine/model"
	"procaas/engine/sqlstore"
)

// This file wakes parked runs for events of their keys, and for the ends of other runs.

// A kept run is one that waits for its turn like others, but beside the order of its key.
const isPending = "(place = 'queued' or place = 'scheduled' and error_class = 'kept') and bundle = ''"

const findPending = `select id, seq, event, error_class = 'kept' from runs where flow = $1 and key = $2 and ` + isPending + ` and seq > $3
	and event_type(event) = any ($4::text[]) order by seq limit $5`

// Pending implements [store.Inbox].
func (s *Store) Pending(ctx context.Context, flow, key string, types []string, after int64, limit int) (out []model.Pending, err error) {
	r, err := s.db.pool.Query(ctx, findPending, flow, key, after, types, limit)
	if err != nil {
		return nil, fmt.Errorf("pending events: %w", err)
	}
	err = scanAll(r, func(row sqlstore.Row) error { return sqlstore.AppendPending(&out, row) })
	return out, err
}

const (
	// The event of a queued run is read only if the run in flight waits for events, which is rare.
	lockTaken = `select id, flow, key from runs where id = any ($1::text[]) and ` + isPending + `
	order by seq + 0 for no key update`
)

// These make runs ready. The lookup of stir locks its rows, so the run is still parked at the
// write, and its place is not checked twice.
var (
	stir = readying(`update runs r set place = 'ready'
	from unnest($1::text[], $2::text[]) as k (flow, key), lateral (select p.seq from runs p
		where p.flow = k.flow and p.key = k.key and p.ordered and p.place = 'parked' and p.awaits is not null
		and exists (select from runs q where q.flow = k.flow and q.key = k.key and q.place = 'queued' and q.bundle = ''
			and q.seq > p.heard and p.awaits::jsonb ? event_type(q.event) offset 0)
		for no key update) p
	where r.seq = any (array[p.seq])`)
	wakeParked  = readying("update runs r set place = 'ready' where id = any ($1::text[]) and place = 'parked'")
	wakeCallers = readying(`update runs r set place = 'ready' from unnest($1::text[], $2::text[]) as c (id, called)
	where r.id = any (array[c.id]) and r.place = 'parked'
	and not exists (select from runs q where q.id = c.called and q.place not in ('failed', 'blocked') offset 0)`)
)

// queueStir makes the parked run of each key ready if an event that it waits for is pending. The
// keys are locked.
func (t *tx) queueStir(k *keySet) {
	if len(k.keys) > 0 {
		t.queue(stir, k.flows, k.keys).QueryRow(t.noteReady)
	}
}

// queueTaken locks the runs whose events are taken by changes. An event that a parked run takes must never also start its own run. So that
// run is locked while it still queues, and ends in the transaction that saves what the parked run made of the event.
func (w *work) queueTaken(t *tx) {
	var ids []string
	for i := range w.steps {
		for _, taken := range w.steps[i].Take {
			ids = append(ids, taken.Run)
		}
	}
	if len(ids) == 0 {
		return
	}
	w.pending = map[string]keyName{}
	t.queue(lockTaken, ids).Query(func(rows pgx.Rows) error {
		var id string
		var n keyName
		_, err := pgx.ForEachRow(rows, []any{&id, &n.flow, &n.key}, func() error { w.pending[id] = n; return nil })
		return err
	})
}

// canTake reports whether the events that a run has taken are still pending.
func (w *work) canTake(c *step) bool {
	for _, taken := range c.Take {
		if n, ok := w.pending[taken.Run]; !ok || n != (keyName{c.flow, c.key}) {
			return false
		}
	}
	return true
}

// queueWakes makes runs ready whose wait has ended, also those that were parked just now. It comes last: an event may have arrived, or a
// called run may have ended, after the run decided to wait and before it was parked. Nobody else would wake it then.
func (w *work) queueWakes(t *tx, news bool, touched *keySet) {
	var wakes, callers, called []string
	for i := range w.steps {
		c := &w.steps[i]
		if c.refused != nil {
			continue
		}
		if c.Wakes != "" && c.Status.Ended() {
			wakes = append(wakes, c.Wakes)
		}
		if c.Status != model.Parked {
			continue
		}
		news = news || len(c.Awaits) > 0
		for _, id := range c.Calls {
			callers, called = append(callers, c.Run), append(called, id)
		}
	}
	if len(wakes) > 0 {
		t.queue(wakeParked, wakes).QueryRow(t.noteReady)
	}
	if len(called) > 0 {
		t.queue(wakeCallers, callers, called).QueryRow(t.noteReady)
	}
	if news {
		t.queueStir(touched)
	}
}

// awaitsOf returns the types of events that a run waits for in their stored form.
func awaitsOf(c *model.Change) *string {
	if len(c.Awaits) == 0 || c.Status != model.Parked {
		return nil
	}
	names, err := json.Marshal(c.Awaits)
	if err != nil {
		return nil // strings always encode
	}
	text := string(names)
	return &text
}
