package sqlite

import (
	"context"

	"procaas/engine/model"
	"procaas/engine/store"
)

const (
	findPast  = "select 1 from history where id = ?"
	reviveRun = `update runs set generation = generation + 1, failed_path = '', error = '', error_class = '', ended = null, since = null, losses = 0,
	place = ? where seq = ?`
)

// Retry implements [store.Runs].
func (s *Store) Retry(ctx context.Context, id string, by store.Actor) error {
	return s.writer.do(ctx, func(t *tx) error {
		if err := t.unignore(id); err != nil {
			return err
		}
		r, err := t.steer(id)
		if err != nil {
			return err
		}
		if r.place.Status() != model.Failed && r.place != held {
			return store.ErrConflict
		}
		if err := t.auditRun(r, by, store.AuditedRun.Retried); err != nil {
			return err
		}
		to := ready
		if r.place == failed && r.ordered {
			to = queued // the later runs of its key went on without it
		}
		t.ready = t.ready || to == ready
		if err := t.exec(reviveRun, to, r.seq); err != nil || !r.ordered {
			return err
		}
		return t.promote(r.flow, r.key)
	})
}

const (
	// As one that has failed, and that the later runs of its key have passed, as they do again.
	unignoreRun = `insert into runs (seq, id, flow, key, ordered, block, place, version, generation, pipeline, priority, accepted, due, deadline, event)
	select seq, id, flow, key, ordered, 0, 'failed', version, generation, pipeline, coalesce(event ->> 'priority', 0), accepted, accepted, accepted, event
	from history where id = ? and status = 'ignored'`
	forgetIgnored = "delete from history where id = ? and status = 'ignored'"
	unignoreKey   = "insert into keys (flow, key) select flow, key from runs where id = ? and ordered on conflict do nothing"
)

// unignore brings a run back that was ignored, as it was before it began, for a retry.
func (t *tx) unignore(id string) error {
	n, err := t.count(unignoreRun, id)
	if err != nil || n == 0 {
		return err
	}
	if err := t.exec(forgetIgnored, id); err != nil {
		return err
	}
	return t.exec(unignoreKey, id)
}

const askCancel = "update runs set cancel = coalesce(cancel, ?) where seq = ?"

// Cancel implements [store.Runs].
func (s *Store) Cancel(ctx context.Context, id string, by store.Actor) error {
	return s.writer.do(ctx, func(t *tx) error {
		r, err := t.steer(id)
		if err != nil {
			return err
		}
		return t.cancel(r, by)
	})
}

func (t *tx) cancel(r row, by store.Actor) error {
	if err := t.auditRun(r, by, store.AuditedRun.Cancelled); err != nil {
		return err
	}
	if r.place == running {
		return t.exec(askCancel, by.Reason, r.seq)
	}
	return t.end(r, model.Cancelled, by.Reason)
}

const askUndo = "update runs set move = ?, losses = 0 where seq = ?"

// Undo implements [store.Runs].
func (s *Store) Undo(ctx context.Context, id string, by store.Actor) error {
	return s.writer.do(ctx, func(t *tx) error {
		r, err := t.steer(id)
		if err != nil {
			return err
		}
		if !r.canUndo() {
			return t.cancel(r, by)
		}
		if err := t.auditRun(r, by, store.AuditedRun.Undone); err != nil {
			return err
		}
		if r.place == parked || r.place == held {
			t.ready = true
			if err := t.exec(setPlace, ready, r.seq); err != nil {
				return err
			}
		}
		return t.exec(askUndo, model.UndoOrder(by.Reason), r.seq)
	})
}

// isUndone tells whether an operator wants that the run undoes what it has done.
func (r *row) isUndone() bool {
	_, undo := model.UndoReason(r.move)
	return undo
}

// canUndo tells whether a run has begun, and may undo what it has done.
func (r *row) canUndo() bool {
	return r.checkpoint && r.place != failed && r.place != blocked && !r.cancel.Valid
}

const (
	readBundle = "select bundle from runs where seq = ?"
	moveRun    = "update runs set bundle = ?, move = null where seq = ?"
	askMove    = "update runs set move = ? where seq = ?"
)

// Move implements [store.Runs].
func (s *Store) Move(ctx context.Context, m store.Move, version int64, by store.Actor) (asked bool, err error) {
	err = s.writer.do(ctx, func(t *tx) error {
		r, err := t.steer(m.Run)
		if err != nil {
			return err
		}
		var bundle string
		if _, err := t.row(readBundle, []any{r.seq}, &bundle); err != nil {
			return err
		}
		write := moveRun
		switch asked = r.place == running; {
		case bundle == "", r.isUndone():
			return store.ErrConflict
		case asked:
			write = askMove
		case r.version != version:
			return store.ErrStale
		}
		if err := t.auditRun(r, by, func(a store.AuditedRun, _ string, by store.Actor) store.Audited {
			return a.Moved(m, bundle,
				by)
		}); err != nil {
			return err
		}
		return t.exec(write, m.Bundle, r.seq)
	})
	return asked, err
}

// steer finds a run that an operator may still change.
func (t *tx) steer(id string) (row, error) {
	r, found, err := t.find(id)
	if err != nil || found {
		return r, err
	}
	var one int
	found, err = t.row(findPast, []any{id}, &one)
	if err != nil {
		return r, err
	}
	if found {
		return r, store.ErrConflict
	}
	return r, store.ErrNotFound
}

const readAudited = "select pipeline, generation, failed_path, error_class from runs where seq = ?"

// auditRun writes down what an operator does to a run, before it is done.
func (t *tx) auditRun(r row, by store.Actor, record func(store.AuditedRun, string, store.Actor) store.Audited) error {
	a := store.AuditedRun{Status: r.place.Status()}
	if _, err := t.row(readAudited, []any{r.seq}, &a.Pipeline, &a.Generation, &a.FailedPath, &a.ErrorClass); err != nil {
		return err
	}
	return t.audit(record(a, r.id, by))
}
