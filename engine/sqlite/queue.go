package sqlite

import (
	"database/sql"
	"fmt"

	"procaas/engine/model"
	"procaas/engine/store"
)

type place = model.Place

const (
	ready     = model.PlaceReady
	running   = model.PlaceRunning
	parked    = model.PlaceParked
	held      = model.PlaceHeld
	blocked   = model.PlaceBlocked
	queued    = model.PlaceQueued
	scheduled = model.PlaceScheduled
	failed    = model.PlaceFailed
)

// A row has the data needed to move a run.
type row struct {
	seq        int64
	id         string
	flow, key  string
	ordered    bool
	block      bool
	place      place
	node       int64
	version    int64
	checkpoint bool // it has one
	cancel     sql.NullString
	move       string // an operator's order; empty for none
	cause      string // the cause of its last park
	since      sql.NullInt64
	kept       bool // its event is kept, or was until its time
}

const (
	rowColumns = "seq, id, flow, key, ordered, block, place, node, version, bundle <> '', cancel, coalesce(move, ''), cause, since, error_class = 'kept'"
	findRow    = "select " + rowColumns + " from runs where id = ?"
)

func (t *tx) find(id string) (r row, found bool, err error) {
	found, err = t.row(findRow, []any{id},
		&r.seq, &r.id, &r.flow, &r.key, &r.ordered, &r.block, &r.place, &r.node, &r.version, &r.checkpoint, &r.cancel, &r.move, &r.cause,
		&r.since, &r.kept)
	return r, found, err
}

const (
	// The condition is that of the index runs_active, to the letter. SQLite would make a table of a list of places, each time.
	findActive = `select seq, awaits is not null from runs where flow = ? and key = ?
	and ordered and (place = 'ready' or place = 'running' or place = 'parked' or place = 'held' or place = 'blocked')`
	findOvertakable = `select seq from runs where flow = ? and key = ?
	and ordered and place = 'ready' and bundle = ''`
	findFirst = "select min(seq) from runs where flow = ? and key = ? and place = 'queued'"
	setPlace  = "update runs set place = ? where seq = ?"
)

// promote makes the first queued run of a key ready, if no other one is in flight. A run that is ready but has not begun gives way to an
// earlier one, which may be back from a retry or from a deferral.
//
// This holds after each transaction: of the ordered runs of a key, at most one is ready, running, parked, held or blocked, and if some are
// queued, there is one. So everything that ends or releases a run, or queues one, must end with promote.
func (t *tx) promote(flow, key string) error {
	var first sql.NullInt64
	if _, err := t.row(findFirst, []any{flow, key}, &first); err != nil || !first.Valid {
		return err
	}
	var active, idle int64
	var listens bool
	busy, err := t.row(findActive, []any{flow, key}, &active, &listens)
	if err != nil {
		return err
	}
	if busy {
		waits, err := t.row(findOvertakable, []any{flow, key}, &idle)
		if err != nil || !waits || idle < first.Int64 {
			return err
		}
		if err := t.exec(setPlace, queued, idle); err != nil {
			return err
		}
	}
	t.ready = true
	return t.exec(setPlace, ready, first.Int64)
}

// enter makes a run ready, or queues it in its key. It may be earlier than the run in flight, which then gives way if it has not begun.
func (t *tx) enter(r row) error {
	if !r.ordered {
		t.ready = true
		return t.exec(setPlace, ready, r.seq)
	}
	if err := t.exec(setPlace, queued, r.seq); err != nil {
		return err
	}
	if err := t.promote(r.flow, r.key); err != nil {
		return err
	}
	return t.stir(r.flow, r.key)
}

// A death counts against a suspected run only if the run was under trial.
const giveBack = `update runs set place = 'ready', node = 0, losses = losses + (? and (tried or losses < ?)), tried = 0 where seq = ?`

// release takes a running run from its node, which has died or continues without it. A cancelled
// run ends here, because nothing else would end it.
func (t *tx) release(r row, died bool) error {
	t.ready = true
	if err := t.exec(giveBack, died, model.SuspectedFrom, r.seq); err != nil || !r.ordered {
		return err
	}
	return t.promote(r.flow, r.key)
}

const (
	// ?2 says that the owner ends the run with a last change.
	insertHistory = `insert into history (seq, id, flow, key, ordered, status, version, generation, pipeline, bundle,
	accepted, started, ended, failed_path, error, error_class, reason, labels, event, checkpoint, left_out)
	select seq, id, flow, key, ordered, ?1, version + ?2, generation, iif(?2, ?3, pipeline), iif(?2, ?4, bundle),
	accepted, started, ?5, iif(?2, ?6, failed_path), iif(?2, ?7, error), iif(?2, ?8, error_class), ?9, labels, event, iif(?2, ?10, checkpoint),
	nullif(?11, '') from runs where seq = ?12`
	deleteRun = "delete from runs where seq = ?"

	// insertAlone has all conditions of the end of a run that has no place in the order of a key, so the run need not be read before.
	insertAlone = `insert into history (seq, id, flow, key, ordered, status, version, generation, pipeline, bundle,
	accepted, started, ended, failed_path, error, error_class, reason, labels, event, checkpoint, left_out)
	select seq, id, flow, key, ordered, 'succeeded', version + 1, generation, ?, ?, accepted, started, ?, '', '', '', '', labels, event, ?,
	nullif(?, '') from runs where id = ? and version = ? and node = ? and not ordered`
	deleteEnded = "delete from runs where id = ?"
)

// endAlone moves such a run to the history. It returns false if the run has another state than the change requires.
func (t *tx) endAlone(node int64, c *model.Change) (bool, error) {
	n, err := t.count(insertAlone, c.Pipeline, c.Bundle, t.now.UnixMicro(), blob(c.Checkpoint), model.FormatLeftOut(c.LeftOut),
		c.Run, c.Version, node)
	if err != nil || n == 0 {
		return false, err
	}
	return true, t.exec(deleteEnded, c.Run)
}

// move moves a run to the history, with the owner's last change, or nil.
func (t *tx) move(seq int64, status model.Status, reason string, last *model.Change) error {
	c := model.Change{}
	if last != nil {
		c = *last
	}
	if err := t.exec(insertHistory, status, last != nil, c.Pipeline, c.Bundle, t.now.UnixMicro(), c.FailedPath, c.Error, c.ErrorClass,
		reason, blob(c.Checkpoint), model.FormatLeftOut(c.LeftOut), seq); err != nil {
		return err
	}
	return t.exec(deleteRun, seq)
}

// end moves a run to the history and promotes the next run of its key. A run is never in both tables.
func (t *tx) end(r row, status model.Status, reason string, last *model.Change) error {
	if err := t.move(r.seq, status, reason, last); err != nil {
		return err
	}
	if !r.ordered {
		return nil
	}
	return t.promote(r.flow, r.key)
}

const (
	readKey    = "select state, shared from keys where flow = ? and key = ?"
	writeKey   = "update keys set state = ?, shared = ? where flow = ? and key = ?"
	undeferAll = "update runs set place = 'queued' where flow = ? and key = ? and place = 'deferred'"
)

func (t *tx) entity(ordered bool, flow, key string) (e store.EntityState, err error) {
	if ordered {
		_, err = t.row(readKey, []any{flow, key}, &e.State, &e.Shared)
	}
	return e, err
}

// advance writes how a run has changed its entity. A new state brings back the runs that were
// deferred.
func (t *tx) advance(r row, state string, shared []byte) error {
	if state == "" && len(shared) == 0 {
		return nil
	}
	e, err := t.entity(r.ordered, r.flow, r.key)
	if err != nil {
		return err
	}
	if state == "" {
		state = e.State
	}
	if shared, err = store.MergeShared(e.Shared, shared); err != nil {
		return fmt.Errorf("shared state of key %q of flow %s: %w", r.key, r.flow, err)
	}
	if err := t.exec(writeKey, state, shared, r.flow, r.key); err != nil || state == e.State {
		return err
	}
	return t.exec(undeferAll, r.flow, r.key)
}
