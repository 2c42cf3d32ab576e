package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"procaas/engine/model"
	"procaas/engine/sqlstore"
)

// This file wakes parked runs for events of their keys, and for the ends of other runs.

const (
	findPending = `select id, seq, event, error_class = 'kept' from runs where flow = ? and key = ?
	and (place = 'queued' or place = 'scheduled' and error_class = 'kept') and bundle = '' and seq > ?
	and iif(json_valid(cast(event as text)), json_extract(cast(event as text), '$.type'), '') in (select value from json_each(?))
	order by seq limit ?`
	findListening = `select seq, awaits, heard from runs where flow = ? and key = ?
	and ordered and place = 'parked' and awaits is not null`
)

// Pending implements [store.Inbox].
func (s *Store) Pending(ctx context.Context, flow, key string, types []string, after int64, limit int) (out []model.Pending, err error) {
	names, err := json.Marshal(types)
	if err != nil {
		return nil, err
	}
	r, err := s.read.QueryContext(ctx, findPending, flow, key, after, string(names), limit)
	if err != nil {
		return nil, err
	}
	err = scanAll(r, func(row sqlstore.Row) error { return sqlstore.AppendPending(&out, row) })
	return out, err
}

// stir makes the parked run of a key ready if an event that it waits for is pending.
func (t *tx) stir(flow, key string) error {
	var seq, heard, position int64
	var awaits string
	listens, err := t.row(findListening, []any{flow, key}, &seq, &awaits, &heard)
	if err != nil || !listens {
		return err
	}
	var id string
	var event []byte
	var kept bool
	found, err := t.row(findPending, []any{flow, key, heard, awaits, 1}, &id, &position, &event, &kept)
	if err != nil || !found {
		return err
	}
	t.ready = true
	return t.exec(setPlace, ready, seq)
}

// canTake reports whether the events that a run has taken are still pending, and returns their runs. An event has one run, and exactly
// one of both happens to it: that run begins, or another one takes the event. So it must not have begun, and must be of the same key.
func (t *tx) canTake(r row, take []model.Taken) (taken []row, ok bool, err error) {
	for _, taking := range take {
		other, found, err := t.find(taking.Run)
		if err != nil || !found {
			return nil, false, err
		}
		isPending := (other.place == queued || other.place == scheduled && other.kept) && !other.checkpoint
		isOfKey := other.flow == r.flow && other.key == r.key
		if !isPending || !isOfKey {
			return nil, false, nil
		}
		taken = append(taken, other)
	}
	return taken, true, nil
}

// take ends the runs whose events another one has taken.
func (t *tx) take(taken []row, take []model.Taken) error {
	for i, r := range taken {
		if err := t.move(r.seq, model.Succeeded, take[i].Reason, nil); err != nil {
			return fmt.Errorf("take event of run %s: %w", r.id, err)
		}
	}
	return nil
}

const (
	wakeParked = "update runs set place = 'ready' where id = ? and place = 'parked'"
	isLive     = "select 1 from runs where id = ? and place not in ('failed', 'blocked')"
)

// wake makes a run ready that waits for a run that has ended.
func (t *tx) wake(id string) error {
	if id == "" {
		return nil
	}
	n, err := t.count(wakeParked, id)
	t.ready = t.ready || n > 0
	return err
}

// parkFor makes a run that was just parked ready if its wait has already ended. That may have happened after the run decided to wait and
// before it was parked, and nobody else would wake it.
func (t *tx) parkFor(r row, c model.Change) error {
	for _, id := range c.Calls {
		var one int
		if live, err := t.row(isLive, []any{id}, &one); err != nil || !live {
			if err == nil {
				err = t.wake(c.Run)
			}
			return err
		}
	}
	if len(c.Awaits) == 0 {
		return nil
	}
	return t.stir(r.flow, r.key)
}

// awaitsOf returns the types of events that a run waits for in their stored form.
func awaitsOf(c model.Change) any {
	if len(c.Awaits) == 0 || c.Status != model.Parked {
		return nil
	}
	names, err := json.Marshal(c.Awaits)
	if err != nil {
		return nil // strings always encode
	}
	return string(names)
}
