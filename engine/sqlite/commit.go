package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"procaas/engine/model"
	"procaas/engine/store"
)

// Commit implements [store.Ledger].
//
// All changes that are not refused are written together. One writer means that what a change reads stays true until it has written, so
// there are no locks. The version and the owner of the run are compared all the same: the node may have lost the run in between.
func (s *Store) Commit(ctx context.Context, node int64, changes []model.Change) ([]error, error) {
	emits := make([][][]byte, len(changes))
	seen := make(map[string]bool, len(changes))
	for i, c := range changes {
		if seen[c.Run] {
			return nil, fmt.Errorf("%w: run %s occurs twice in one commit", store.ErrRefused, c.Run)
		}
		seen[c.Run] = true
		var err error
		if emits[i], err = encodeEvents(c.Emit); err != nil {
			return nil, err
		}
	}
	errs := make([]error, len(changes))
	err := s.writer.do(ctx, func(t *tx) error {
		if err := t.live(node); err != nil {
			return err
		}
		for i, c := range changes {
			refused, err := t.change(node, c, emits[i])
			if err != nil {
				return fmt.Errorf("commit run %s: %w", c.Run, err)
			}
			errs[i] = refused
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return errs, nil
}

const (
	saveRunning = `update runs set version = version + 1, bundle = ?, pipeline = ?, checkpoint = ?,
	losses = iif(?, 0, losses), tried = ? or tried and not ?
	where id = ? and version = ? and node = ? and place = 'running' and cancel is null`
	save = `update runs set version = version + 1, bundle = ?, pipeline = ?, checkpoint = ?,
	failed_path = ?, error = ?, error_class = ?, place = ?, node = 0, cancel = null, move = ?, losses = iif(?, 0, losses), tried = 0,
	due = coalesce(?, due), cause = ?, awaits = ?, heard = ?, ended = ?, started = iif(?, started, null), since = ?
	where seq = ?`
	saveTaken = `update runs set version = version + 1, bundle = ?, pipeline = ?, checkpoint = ?,
	failed_path = '', error = '', error_class = '' where seq = ?`
)

// change applies one change. refused is [store.ErrStale] or [store.ErrCancelled], and nothing is written then, not even the events that it
// emits: the run's present owner emits them.
func (t *tx) change(node int64, c model.Change, emits [][]byte) (refused, err error) {
	if c.Status == model.Running && len(c.Take) == 0 {
		// Most changes need only this statement.
		n, err := t.count(saveRunning, c.Bundle, c.Pipeline, blob(c.Checkpoint), c.Progress, c.Trial, c.Progress, c.Run, c.Version, node)
		if err != nil {
			return nil, err
		}
		if n == 1 {
			return nil, t.emit(c.Emit, emits)
		}
	}
	if c.Alone && c.IsPlainEnd() {
		if ended, err := t.endAlone(node, &c); err != nil || ended {
			return nil, err
		}
	}
	r, found, err := t.find(c.Run)
	if err != nil {
		return nil, err
	}
	if !found || r.node != node || r.version != c.Version {
		return store.ErrStale, nil
	}
	final := c.Status.Ended() && c.Status != model.Failed
	if r.cancel.Valid && !final {
		return store.ErrCancelled, nil
	}
	taken, ok, err := t.canTake(r, c.Take)
	if err != nil || !ok {
		return store.ErrStale, err
	}
	if err := t.take(taken, c.Take); err != nil {
		return nil, err
	}
	switch {
	case final:
		err = t.finish(r, c)
	case c.Status == model.Running:
		err = t.exec(saveTaken, c.Bundle, c.Pipeline, blob(c.Checkpoint), r.seq)
	default:
		err = t.leaveNode(r, c)
	}
	if err == nil {
		err = t.wake(c.Wakes)
	}
	if err != nil {
		return nil, err
	}
	return nil, t.emit(c.Emit, emits)
}

// finish writes the last change of a run. The entity comes before the end: a new state queues the deferred runs of the key again, and the
// end promotes the first of all that queue. If somebody has cancelled the run, the reason that people read is that of the cancel.
func (t *tx) finish(r row, c model.Change) error {
	if r.ordered && c.Status == model.Succeeded {
		if err := t.advance(r, c.State, c.Shared); err != nil {
			return err
		}
	}
	reason := c.Reason
	if c.Status == model.Cancelled && r.cancel.Valid {
		reason = r.cancel.String
	}
	return t.end(r, c.Status, reason, &c)
}

// leaveNode writes a change that releases a run without ending it for good. The next run of the key may start, unless this one still is the
// run of the key in flight: parked, held or blocked.
func (t *tx) leaveNode(r row, c model.Change) error {
	to := c.PlaceAfter(r.ordered, r.block, r.move, t.now)
	order, _ := c.Next(r.move)
	due, ended := micros(c.Due), micros(t.now)
	ended.Valid = to == failed || to == blocked
	begun := c.Status != model.Waiting || c.Bundle != ""
	if err := t.exec(save, c.Bundle, c.Pipeline, blob(c.Checkpoint), c.FailedPath, c.Error, c.ErrorClass, to,
		sql.NullString{String: order, Valid: order != ""},
		c.Progress, due, c.Cause, awaitsOf(c), c.Heard, ended, begun, t.waits(r, c), r.seq); err != nil {
		return err
	}
	t.ready = t.ready || to == ready
	if to == parked {
		return t.parkFor(r, c)
	}
	if r.ordered && to != held && to != blocked {
		return t.promote(r.flow, r.key)
	}
	return nil
}

// waits returns since when a released run waits.
func (t *tx) waits(r row, c model.Change) int64 {
	if c.Cause != "" && c.Cause == r.cause && r.since.Valid {
		return r.since.Int64
	}
	return t.now.UnixMicro()
}

// emit stores the events of a change in the same transaction: a crash leaves both or none. No state refuses them, because their run has
// done its work already.
func (t *tx) emit(runs []model.Intake, events [][]byte) error {
	for i, r := range runs {
		r.From, r.Keep = nil, false
		if _, err := t.accept(0, r, events[i]); err != nil {
			return fmt.Errorf("emit event %q: %w", r.Event.ID, err)
		}
	}
	return nil
}

// blob stores an empty value as null.
func blob(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}
