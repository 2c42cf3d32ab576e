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

// This file writes the changes that need no decision, which are most of them.

// isCheckpoint reports whether a change only advances its run: it stays with its node, and nothing
// else changes.
func isCheckpoint(c *model.Change) bool {
	return c.Status == model.Running && len(c.Emit) == 0 && len(c.Take) == 0
}

// saveCheckpoints has all conditions of a change in itself: the version, the owner, no cancel, and a node that is not gone. So it needs
// no read and no lock before it. It returns the runs that it has saved, and all others are refused.
const saveCheckpoints = `update runs r set version = r.version + 1, bundle = c.bundle, pipeline = c.pipeline, checkpoint = c.checkpoint,
	losses = case when c.progress then 0 else r.losses end, tried = c.trial or r.tried and not c.progress
	from unnest($2::text[], $3::bigint[], $4::text[], $5::text[], $6::bytea[], $7::bool[], $8::bool[]) as
	c (id, version, bundle, pipeline, checkpoint, progress, trial)
	where r.id = any (array[c.id]) and r.version = c.version and r.node = $1 and r.cancel is null
	and exists (select from nodes where node = $1 and gone is null)
	returning r.id`

// endPlain does not look at cancel: a run that has succeeded before it heard of the cancel has succeeded.
//
// The ended run was the only run of its key in flight, so the next one may start. The update cannot
// see its row any more, because the row comes from the delete.
var endPlain = `with e as (
		select * from unnest($2::text[], $3::bigint[], $4::text[], $5::text[], $6::bytea[], $7::text[]) as
		e (id, version, bundle, pipeline, checkpoint, left_out)),
	gone as (
		delete from runs r using e where r.id = any (array[e.id]) and r.version = e.version and r.node = $1
		and exists (select from nodes where node = $1 and gone is null)
		returning r.seq, r.accepted, r.started, r.version + 1 as version, r.generation, r.ordered, r.id, r.flow, r.key,
		e.pipeline, e.bundle, r.event, e.checkpoint, e.left_out, r.labels),
	next as (
		update runs r set place = 'ready' from gone where gone.ordered and r.seq = any (array[` + firstQueued("gone") + `])
		returning r.priority, r.deadline),
	kept as (
		insert into history (seq, accepted, started, version, generation, ordered, id, flow, key, pipeline, bundle,
			event, checkpoint, left_out, labels, status, failed_path, error, error_class, reason, ended)
		select gone.*, 'succeeded', '', '', '', '', clock_timestamp() from gone)
	select id, (select min(- priority) from next), (select min(deadline) from next) from gone`

// endAlone is endPlain for runs that have no place in the order of a key.
const endAlone = `with gone as (
		delete from runs r using unnest($2::text[], $3::bigint[], $4::text[], $5::text[], $6::bytea[], $7::text[]) as
			e (id, version, bundle, pipeline, checkpoint, left_out)
		where r.id = any (array[e.id]) and r.version = e.version and r.node = $1 and not r.ordered
		and exists (select from nodes where node = $1 and gone is null)
		returning r.seq, r.accepted, r.started, r.version + 1, r.generation, r.ordered, r.id, r.flow, r.key,
		e.pipeline, e.bundle, r.event, e.checkpoint, e.left_out, r.labels)
	insert into history (seq, accepted, started, version, generation, ordered, id, flow, key, pipeline, bundle,
		event, checkpoint, left_out, labels, status, failed_path, error, error_class, reason, ended)
	select gone.*, 'succeeded', '', '', '', '', clock_timestamp() from gone returning id`

// commitPlain writes independent changes in one round trip. Most commits are of this kind. The
// statements themselves write nothing for a node that may not write.
//
// A change that was not written is refused as stale. Only then is it worth another round trip to find out whether the node is gone,
// because such a node must stop at once.
func (w *work) commitPlain(ctx context.Context, t *tx) error {
	t.lockNode(w.node)
	w.queuePlainEnds(t)
	w.queueCheckpoints(t)
	if err := t.commit(ctx); err != nil {
		return err
	}
	if w.refuseUnsaved() == 0 {
		return nil
	}
	var live bool
	if err := t.conn.QueryRow(ctx, isLive, w.node).Scan(&live); err != nil {
		return fmt.Errorf("after the commit: %w", err) // not wrapped, because something may have been written
	}
	if !live {
		return store.ErrFenced
	}
	return nil
}

// queuePlainEnds moves runs to the history and promotes the next runs of their keys.
func (w *work) queuePlainEnds(t *tx) {
	var ids, bundles, pipelines []string
	var versions []int64
	var checkpoints pgtype.FlatArray[[]byte]
	var left pgtype.FlatArray[*string]
	var keys keySet
	unknown := []string{} // runs whose keys the change does not say; nil would be null
	alone := true
	for i := range w.steps {
		if c := &w.steps[i]; c.Status == model.Succeeded {
			alone = alone && c.Alone
			keys.add(!c.Alone, c.Flow, c.Key)
			if c.Flow == "" {
				unknown = append(unknown, c.Run)
			}
			ids, versions = append(ids, c.Run), append(versions, c.Version)
			bundles, pipelines = append(bundles, c.Bundle), append(pipelines, c.Pipeline)
			checkpoints, left = append(checkpoints, sqlstore.Blob(c.Checkpoint)), append(left, leftOut(c.Change))
		}
	}
	if len(ids) == 0 {
		return
	}
	if alone {
		t.queue(endAlone, w.node, ids, versions, bundles, pipelines, checkpoints, left).Query(rows(&w.ended, pgx.RowTo[string]))
		return
	}
	t.queue(lockKeysOf, unknown, keys.flows, keys.keys)
	t.queue(endPlain, w.node, ids, versions, bundles, pipelines, checkpoints, left).Query(func(rows pgx.Rows) error {
		var id string
		var rank *int64
		var at *time.Time
		_, err := pgx.ForEachRow(rows, []any{&id, &rank, &at}, func() error {
			w.ended = append(w.ended, id)
			if rank != nil {
				t.readyAt(position{*rank, *at})
			}
			return nil
		})
		return err
	})
}

// refuseUnsaved refuses the checkpoints and ends whose runs had another state, and returns their
// number.
func (w *work) refuseUnsaved() (refused int) {
	saved := make(map[string]bool, len(w.steps))
	for _, id := range slices.Concat(w.saved, w.ended) {
		saved[id] = true
	}
	for i := range w.steps {
		if c := &w.steps[i]; c.refused == nil && !c.found && !saved[c.Run] {
			c.refused = store.ErrStale
			refused++
		}
	}
	return refused
}

// queueCheckpoints saves the changes that leave their runs with the node.
func (w *work) queueCheckpoints(t *tx) {
	var ids, bundles, pipelines []string
	var versions []int64
	var checkpoints pgtype.FlatArray[[]byte]
	var progress, trial []bool
	for i := range w.steps {
		if c := &w.steps[i]; c.refused == nil && c.Status == model.Running {
			progress, trial = append(progress, c.Progress), append(trial, c.Trial)
			ids, versions = append(ids, c.Run), append(versions, c.Version)
			bundles, pipelines = append(bundles, c.Bundle), append(pipelines, c.Pipeline)
			checkpoints = append(checkpoints, sqlstore.Blob(c.Checkpoint))
		}
	}
	if len(ids) > 0 {
		t.queue(saveCheckpoints, w.node, ids, versions, bundles, pipelines, checkpoints, progress,
			trial).Query(rows(&w.saved, pgx.RowTo[string]))
	}
}
