package postgres

import (
	"time"

	"procaas/engine/model"
	"procaas/engine/sqlstore"
)

var saveLeaves = readying(`update runs r set version = r.version + 1, bundle = c.bundle, pipeline = c.pipeline,
	checkpoint = c.checkpoint, failed_path = c.failed_path, error = c.error, error_class = c.error_class,
	place = c.place, node = 0, cancel = null, move = nullif(c.move, ''),
	due = coalesce(c.due, r.due), cause = c.cause, awaits = c.awaits, listens = c.awaits is not null, heard = c.heard,
	since = case when r.cause = c.cause and c.cause <> '' then coalesce(r.since, clock_timestamp()) else clock_timestamp() end,
	ended = case when c.place in ('failed', 'blocked') then clock_timestamp() end,
	started = case when c.begun then r.started end, losses = case when c.progress then 0 else r.losses end, tried = false
	from unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::text[],
	$8::timestamptz[], $9::bool[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bigint[], $15::bool[]) as
	c (id, bundle, pipeline, checkpoint, failed_path, error, place, due, begun, error_class, cause, move, awaits, heard, progress)
	where r.id = any (array[c.id])`)

// queueLeaves saves the changes that release a run without ending it for good.
func (w *work) queueLeaves(t *tx, leaves []*step) {
	if len(leaves) == 0 {
		return
	}
	var id, bundle, pipeline, path, problem, class, at, cause []string
	var checkpoint [][]byte
	var due []*time.Time
	var begun, progress []bool
	var moves []string
	var awaits []*string
	var heard []int64
	for _, c := range leaves {
		to := c.PlaceAfter(c.ordered, c.block, c.move, w.now)
		id, bundle, pipeline = append(id, c.Run), append(bundle, c.Bundle), append(pipeline, c.Pipeline)
		path, problem, class = append(path, c.FailedPath), append(problem, sqlstore.Text(c.Error)), append(class, c.ErrorClass)
		at, cause = append(at, string(to)), append(cause, c.Cause)
		checkpoint, due = append(checkpoint, sqlstore.Blob(c.Checkpoint)), append(due, toNull(c.Due))
		awaits, heard, progress = append(awaits, awaitsOf(c.Change)), append(heard, c.Heard), append(progress, c.Progress)
		order, _ := c.Next(c.move)
		begun, moves = append(begun, c.Status != model.Waiting || c.Bundle != ""), append(moves, order)
	}
	t.queue(saveLeaves, id, bundle, pipeline, checkpoint, path, problem, at, due, begun, class, cause, moves, awaits, heard,
		progress).QueryRow(t.noteReady)
}
