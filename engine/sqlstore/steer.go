package sqlstore

import (
	"context"
	"fmt"

	"procaas/engine/model"
	"procaas/engine/store"
)

// A Steered is a run that an operator changes. The run and its key are locked.
type Steered struct {
	store.AuditedRun
	ID        string
	Seq       int64
	Flow, Key string
	Ordered   bool // it is in the order of the key
	Place     model.Place

	version   int64
	bundle    string // empty if the run has not begun
	order     string // an operator's earlier order
	cancelled bool   // its node was asked to end it
}

const (
	lockRun = `select seq, flow, key, ordered, place, pipeline, generation, failed_path, error_class, error,
	version, bundle, coalesce(move, ''), cancel is not null from runs where id = $1 {lock}`
	findPast = "select 1 from history where id = $1 limit 1"
)

// steer changes a run for an operator.
func (s *Store) steer(ctx context.Context, what, id string, first func(context.Context, Tx, string) error,
	do func(Tx, *Steered) (store.Audited, error),
) error {
	err := s.db.Write(ctx, func(t Tx) error {
		if first != nil {
			if err := first(ctx, t, id); err != nil {
				return err
			}
		}
		if err := t.LockKeyOf(ctx, id); err != nil {
			return err
		}
		r := Steered{ID: id}
		found := t.Queue(lockRun, []any{id}, &r.Seq, &r.Flow, &r.Key, &r.Ordered, &r.Place, &r.Pipeline, &r.Generation, &r.FailedPath,
			&r.ErrorClass, &r.Error, &r.version, &r.bundle, &r.order, &r.cancelled)
		past := t.Queue(findPast, []any{id}, new(int))
		if err := t.Send(ctx); err != nil {
			return err
		}
		switch {
		case found.Rows == 0 && past.Rows == 0:
			return store.ErrNotFound
		case found.Rows == 0:
			return store.ErrConflict
		case r.Place == model.PlaceAway:
			return store.ErrMoving
		}
		r.Status = r.Place.Status()
		record, err := do(t, &r)
		if err != nil {
			return err
		}
		return Audit(ctx, t, record)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

const reviveRun = `update runs set generation = generation + 1, failed_path = '', error = '', error_class = '', ended = null, since = null,
	losses = 0, place = $2 where id = $1`

// Retry implements [store.Runs].
func (s *Store) Retry(ctx context.Context, id string, by store.Actor) error {
	return s.steer(ctx, "retry", id, unignore, func(t Tx, r *Steered) (store.Audited, error) {
		if r.Status != model.Failed && r.Place != model.PlaceHeld {
			return store.Audited{}, store.ErrConflict
		}
		to := model.PlaceReady
		if r.Place == model.PlaceFailed && r.Ordered {
			to = model.PlaceQueued // the later runs of its key continued without it
		} else {
			t.HasReady()
		}
		t.Queue(reviveRun, []any{id, to})
		t.Reorder(r)
		return r.Retried(id, by), nil
	})
}

const (
	// Like a failed run that the later runs of its key have passed, as they will again.
	unignoreRun = `insert into runs (seq, id, flow, key, ordered, block, place, version, generation, pipeline, priority, accepted,
	due, deadline, labels, event)
	{with seq} select seq, id, flow, key, ordered, false, 'failed', version, generation, pipeline, coalesce({priority}, 0),
	accepted, accepted, accepted, labels, event from history where id = $1 and status = 'ignored'`
	forgetIgnored = "delete from history where id = $1 and status = 'ignored'"
	unignoreKey   = "insert into keys (flow, key) select flow, key from runs where id = $1 and ordered on conflict do nothing"
)

// unignore restores an ignored run to its state before it began, for a retry.
func unignore(ctx context.Context, t Tx, id string) error {
	back := t.Queue(unignoreRun, []any{id})
	if err := t.Send(ctx); err != nil || back.Rows == 0 {
		return err
	}
	t.Queue(forgetIgnored, []any{id})
	t.Queue(unignoreKey, []any{id})
	return t.Send(ctx)
}

// Cancel implements [store.Runs].
func (s *Store) Cancel(ctx context.Context, id string, by store.Actor, tell store.Tell) error {
	c := canceller{by: by, tell: tell}
	return s.steer(ctx, "cancel", id, c.prepare, c.cancel)
}

// A canceller cancels a run for an operator.
type canceller struct {
	by     store.Actor
	tell   store.Tell
	accept func(from *Steered) error // the events of tell
}

func (c *canceller) prepare(ctx context.Context, t Tx, _ string) (err error) {
	c.accept, err = t.Prepare(ctx, c.tell.Events)
	return err
}

const askCancel = "update runs set cancel = coalesce(cancel, $2) where id = $1"

// cancel ends the run, or asks its node to.
func (c *canceller) cancel(t Tx, r *Steered) (store.Audited, error) {
	if r.Place == model.PlaceRunning {
		t.Queue(askCancel, []any{r.ID, Text(c.by.Reason)})
		return r.Cancelled(r.ID, c.by), nil
	}
	if err := c.tell.Fits(r.Generation); err != nil {
		return store.Audited{}, err
	}
	t.End(r, model.Cancelled, c.by.Reason)
	return r.Cancelled(r.ID, c.by), c.accept(r)
}

const askUndo = "update runs set move = $2, place = $3, losses = 0 where id = $1"

// Undo implements [store.Runs].
func (s *Store) Undo(ctx context.Context, id string, by store.Actor, tell store.Tell) error {
	c := canceller{by: by, tell: tell}
	return s.steer(ctx, "undo", id, c.prepare, func(t Tx, r *Steered) (store.Audited, error) {
		if r.bundle == "" || r.cancelled || r.Status == model.Failed {
			return c.cancel(t, r)
		}
		record := r.Undone(id, by)
		if r.Status == model.Parked {
			t.HasReady()
			r.Place = model.PlaceReady
		}
		t.Queue(askUndo, []any{id, model.UndoOrder(Text(by.Reason)), r.Place})
		return record, nil
	})
}

const (
	moveRun = "update runs set bundle = $2, move = null where id = $1"
	askMove = "update runs set move = $2 where id = $1"
)

// Move implements [store.Runs].
func (s *Store) Move(ctx context.Context, m store.Move, version int64, by store.Actor) (asked bool, err error) {
	err = s.steer(ctx, "move", m.Run, nil, func(t Tx, r *Steered) (record store.Audited, err error) {
		_, undo := model.UndoReason(r.order)
		asked = r.Place == model.PlaceRunning
		switch {
		case r.bundle == "", undo:
			return record, store.ErrConflict
		case asked:
			t.Queue(askMove, []any{m.Run, m.Bundle})
		case r.version != version:
			return record, store.ErrStale
		default:
			t.Queue(moveRun, []any{m.Run, m.Bundle})
		}
		return r.Moved(m, r.bundle, by), nil
	})
	return asked && err == nil, err
}

const (
	lockPast     = "select pipeline, status, version, generation, coalesce(left_out, '') from history where id = $1 {lock past}"
	isHot        = "select 1 from runs where id = $1"
	bringBackRun = `insert into runs (seq, id, flow, key, ordered, block, place, version, generation, pipeline, bundle, priority,
	accepted, started, due, deadline, labels, event, checkpoint)
	{with seq} select seq, id, flow, key, false, false, 'ready', version + 1, generation + 1, pipeline, bundle, $2,
	accepted, started, {now}, {now}, labels, event, $3 from history where id = $1`
	forgetPast = "delete from history where id = $1"
)

// MakeUp implements [store.Runs].
func (s *Store) MakeUp(ctx context.Context, m store.MakeUp, by store.Actor) error {
	err := s.db.Write(ctx, func(t Tx) error {
		var r store.AuditedRun
		var version int64
		var left string
		past := t.Queue(lockPast, []any{m.Run}, &r.Pipeline, &r.Status, &version, &r.Generation, &left)
		hot := t.Queue(isHot, []any{m.Run}, new(int))
		if err := t.Send(ctx); err != nil {
			return err
		}
		switch {
		case past.Rows == 0 && hot.Rows == 0:
			return store.ErrNotFound
		case past.Rows == 0, r.Status != model.Succeeded, version != m.Version, !model.HasLeftOut(left, m.Path, ""):
			return store.ErrConflict
		}
		t.Queue(bringBackRun, []any{m.Run, m.Priority, m.Checkpoint})
		t.Queue(forgetPast, []any{m.Run})
		t.HasReady()
		return Audit(ctx, t, r.MadeUp(m, by))
	})
	if err != nil {
		return fmt.Errorf("make up: %w", err)
	}
	return nil
}
