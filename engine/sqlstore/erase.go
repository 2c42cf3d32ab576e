package sqlstore

import (
	"context"
	"fmt"

	"procaas/engine/store"
)

const (
	countKey = `select
	(select count(*) from runs where flow = $1 and key = $2 and place || '' not in ('failed', 'blocked')),
	(select count(*) from runs where flow = $1 and key = $2 and place || '' in ('failed', 'blocked')),
	(select count(*) from history where flow = $1 and key = $2),
	(select count(*) from keys where flow = $1 and key = $2)`
	lastEnded = "select coalesce(max(seq), 0) from history where flow = $1 and key = $2"

	eraseEntity = "delete from keys where flow = $1 and key = $2"
	eraseFailed = "delete from runs where flow = $1 and key = $2 and place || '' in ('failed', 'blocked') returning id, event"
	eraseEnded  = `delete from history where flow = $1 and key = $2 and seq {any of} (
		select seq from history where flow = $1 and key = $2 and seq <= $3 order by seq limit $4)) returning id, event`

	// The latest firing of a trigger stays, because it says when the trigger last fired.
	eraseEvent = `delete from events where source = $1 and id = $2 and run = $3
	and not (source like 'procaas/trigger/%' and id = (select max(m.id) from events m where m.source = $1))`
	// No index helps. It is for a run whose event cannot be read.
	eraseEventsOf = "delete from events where run = $1"
)

// eraseAtOnce is how many runs go in one transaction, which other writes may wait for.
const eraseAtOnce = 500

// KeyData implements [store.Eraser].
func (s *Store) KeyData(ctx context.Context, flow, key string) (d store.KeyData, err error) {
	err = find(ctx, s.db, countKey, []any{flow, key}, &d.Unfinished, &d.Failed, &d.Ended, &d.Entities)
	return d, err
}

// EraseKey implements [store.Eraser]. The first transaction ends the life of the key: what is accepted after it is another
// one. So the others need no lock, and remove only what was accepted before.
func (s *Store) EraseKey(ctx context.Context, flow, key string) (gone store.KeyData, err error) {
	var last int64
	err = s.db.Write(ctx, func(t Tx) error {
		gone = store.KeyData{}
		if err := t.LockToErase(ctx, flow, key); err != nil {
			return err
		}
		var now store.KeyData
		t.Queue(countKey, []any{flow, key}, &now.Unfinished, &now.Failed, &now.Ended, &now.Entities)
		t.Queue(lastEnded, []any{flow, key}, &last)
		if err := t.Send(ctx); err != nil {
			return err
		}
		if now.Unfinished > 0 {
			return fmt.Errorf("%d runs are unfinished: %w", now.Unfinished, store.ErrConflict)
		}
		entity := t.Queue(eraseEntity, []any{flow, key})
		failed, events, err := eraseRuns(ctx, t, eraseFailed, flow, key)
		gone = store.KeyData{Failed: failed, Entities: int(entity.Rows), Events: events}
		return err
	})
	if err != nil {
		return store.KeyData{}, fmt.Errorf("erase a key: %w", err)
	}
	for n := eraseAtOnce; n == eraseAtOnce; {
		var events int
		err := s.db.Write(ctx, func(t Tx) (err error) {
			n, events, err = eraseRuns(ctx, t, eraseEnded, flow, key, last, eraseAtOnce)
			return err
		})
		if err != nil {
			return gone, fmt.Errorf("erase ended runs of a key: %w", err)
		}
		gone.Ended += n
		gone.Events += events
	}
	return gone, nil
}

// eraseRuns removes runs by a statement, with the ids of their events.
func eraseRuns(ctx context.Context, t Tx, statement string, args ...any) (runs, events int, err error) {
	type erased struct {
		id    string
		event []byte
	}
	var all []erased
	t.Query(statement, args, func(r Row) error {
		var one erased
		err := r.Scan(&one.id, &one.event)
		all = append(all, one)
		return err
	})
	if err := t.Send(ctx); err != nil {
		return 0, 0, err
	}
	var gone []*Result
	for _, one := range all {
		ev, err := store.DecodeEvent(one.event)
		if err != nil {
			gone = append(gone, t.Queue(eraseEventsOf, []any{one.id}))
			continue
		}
		gone = append(gone, t.Queue(eraseEvent, []any{ev.Namespace(), ev.ID, one.id}))
		ev.Inner = true // a migration has noted the id of an older event there, too
		gone = append(gone, t.Queue(eraseEvent, []any{ev.Namespace(), ev.ID, one.id}))
	}
	if err := t.Send(ctx); err != nil {
		return 0, 0, err
	}
	for _, r := range gone {
		events += int(r.Rows)
	}
	return len(all), events, nil
}
