package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"procaas/engine/model"
	"procaas/engine/sqlstore"
	"procaas/engine/store"
)

const (
	findOwn  = "select flow, key, ordered from runs where id = $1"
	findPast = "select exists (select from history where id = $1)"
	lockOwn  = "select place, pipeline, generation, failed_path, error_class, bundle <> '', cancel is not null from runs where id = $1 " +
		"for no key update"
	revive = `update runs set generation = generation + 1, failed_path = '', error = '', error_class = '', ended = null, since = null, losses = 0, place = $2
	where id = $1`
	readMoving = "select version, bundle, coalesce(move, '') from runs where id = $1"
	moveRun    = "update runs set bundle = $2, move = null where id = $1"
	askMove    = "update runs set move = $2 where id = $1"
	askUndo    = "update runs set move = $2, place = $3, losses = 0 where id = $1"
	askCancel  = "update runs set cancel = coalesce(cancel, $2) where id = $1"
)

// unignore brings a run back that was ignored, as it was before it began: as one that has failed
// and was passed by the later runs of its key.
const unignore = `with back as (delete from history where id = $1 and status = 'ignored'
		returning seq, id, flow, key, ordered, version, generation, pipeline, accepted, event),
	made as (insert into keys (flow, key) select flow, key from back where ordered on conflict do nothing)
	insert into runs (seq, id, flow, key, ordered, block, place, version, generation, pipeline, priority, accepted, due, deadline, event)
	overriding system value
	select seq, id, flow, key, ordered, false, 'failed', version, generation, pipeline,
	coalesce((convert_from(event, 'UTF8')::json ->> 'priority')::bigint, 0), accepted, accepted, accepted, event from back`

// Retry implements [store.Runs].
func (s *Store) Retry(ctx context.Context, id string, by store.Actor) error {
	err := s.steerAfter(ctx, id, unignore, func(t *tx, r steered, keys *keySet) error {
		if r.Status != model.Failed && r.at != held {
			return store.ErrConflict
		}
		to := ready
		if r.at == failed && len(keys.keys) > 0 {
			to = queued // the later runs of its key went on without it
		}
		if to == ready {
			t.readyAt(headOfQueue)
		}
		t.queue(revive, id, to)
		t.queueReorder(keys)
		return t.audit(ctx, r.Retried(id, by))
	})
	if err != nil {
		return fmt.Errorf("retry: %w", err)
	}
	return nil
}

// Cancel implements [store.Runs].
func (s *Store) Cancel(ctx context.Context, id string, by store.Actor) error {
	err := s.steer(ctx, id, func(t *tx, r steered, keys *keySet) error { return t.cancel(ctx, id, r, keys, by) })
	if err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	return nil
}

// Undo implements [store.Runs].
func (s *Store) Undo(ctx context.Context, id string, by store.Actor) error {
	err := s.steer(ctx, id, func(t *tx, r steered, keys *keySet) error {
		if !r.begun || r.cancelled || r.at == failed || r.at == blocked {
			return t.cancel(ctx, id, r, keys, by)
		}
		if r.at == parked || r.at == held {
			t.readyAt(headOfQueue)
			r.at = ready
		}
		t.queue(askUndo, id, model.UndoOrder(sqlstore.Text(by.Reason)), r.at)
		return t.audit(ctx, r.Undone(id, by))
	})
	if err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	return nil
}

// cancel ends a run, or asks its node to.
func (t *tx) cancel(ctx context.Context, id string, r steered, keys *keySet, by store.Actor) error {
	if r.at == running {
		t.queue(askCancel, id, sqlstore.Text(by.Reason))
	} else {
		t.queueEnds([]ending{{id: id, status: model.Cancelled, reason: by.Reason}})
		t.queuePromote(keys)
	}
	return t.audit(ctx, r.Cancelled(id, by))
}

// Move implements [store.Runs].
func (s *Store) Move(ctx context.Context, m store.Move, version int64, by store.Actor) (asked bool, err error) {
	err = s.steer(ctx, m.Run, func(t *tx, r steered, _ *keySet) error {
		var have int64
		var bundle, order string
		t.queue(readMoving, m.Run).QueryRow(value(&have, &bundle, &order))
		if err := t.send(ctx); err != nil {
			return err
		}
		_, undo := model.UndoReason(order)
		switch asked = r.at == running; {
		case bundle == "", undo:
			return store.ErrConflict
		case asked:
			t.queue(askMove, m.Run, m.Bundle)
		case have != version:
			return store.ErrStale
		default:
			t.queue(moveRun, m.Run, m.Bundle)
		}
		return t.audit(ctx, r.Moved(m, bundle, by))
	})
	if err != nil {
		return false, fmt.Errorf("move: %w", err)
	}
	return asked, nil
}

// A steered run is one that an operator changes.
type steered struct {
	store.AuditedRun
	at        place
	begun     bool
	cancelled bool // its node is asked to end it
}

func scanSteered(row pgx.CollectableRow) (r steered, err error) {
	err = row.Scan(&r.at, &r.Pipeline, &r.Generation, &r.FailedPath, &r.ErrorClass, &r.begun, &r.cancelled)
	r.Status = r.at.Status()
	return r, err
}

// steer changes a run for an operator, with its key and itself locked.
func (s *Store) steer(ctx context.Context, id string, do func(*tx, steered, *keySet) error) error {
	return s.steerAfter(ctx, id, "", do)
}

// steerAfter does so after a statement about the run; empty for none.
func (s *Store) steerAfter(ctx context.Context, id, first string, do func(*tx, steered, *keySet) error) error {
	return s.tx(ctx, func(t *tx) error {
		keys := &keySet{}
		if first != "" {
			t.queue(first, id)
		}
		t.queue(findOwn, id).Query(func(rows pgx.Rows) error {
			var flow, key string
			var ordered bool
			_, err := pgx.ForEachRow(rows, []any{&flow, &key, &ordered}, func() error {
				keys.add(ordered, flow, key)
				return nil
			})
			return err
		})
		if err := t.send(ctx); err != nil {
			return err
		}
		t.queueLock(keys)
		var own []steered
		ended := false
		t.queue(lockOwn, id).Query(rows(&own, scanSteered))
		t.queue(findPast, id).QueryRow(value(&ended))
		if err := t.send(ctx); err != nil {
			return err
		}
		switch {
		case len(own) > 0 && own[0].at == away:
			return store.ErrMoving
		case len(own) > 0:
			return do(t, own[0], keys)
		case ended:
			return store.ErrConflict
		default:
			return store.ErrNotFound
		}
	})
}
