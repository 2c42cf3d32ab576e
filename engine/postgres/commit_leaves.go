package postgres

import (
	"time"

	"procaas/engine/model"
	"procaas/engine/sqlstore"
)

// saveLeaves needs no condition, because the transaction has locked the runs and compared their versions. A run that is parked for the
// same cause as before keeps the time since when it waits, so that people see how long it has been stuck.
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

// leaves are the columns of changes that release a run, one value per change in each. saveLeaves names
// them c, in the order of its parameters.
type leaves struct {
	id, bundle, pipeline []string
	checkpoint           [][]byte
	path, problem, place []string
	due                  []*time.Time
	begun                []bool
	class, cause, move   []string
	awaits               []*string
	heard                []int64
	progress             []bool
}

// add adds a change to all columns.
func (l *leaves) add(c *step, now time.Time) {
	l.id = append(l.id, c.Run)
	l.bundle = append(l.bundle, c.Bundle)
	l.pipeline = append(l.pipeline, c.Pipeline)
	l.checkpoint = append(l.checkpoint, sqlstore.Blob(c.Checkpoint))
	l.path = append(l.path, c.FailedPath)
	l.problem = append(l.problem, sqlstore.Text(c.Error))
	l.place = append(l.place, string(c.PlaceAfter(c.ordered, c.block, c.move, now)))
	l.due = append(l.due, toNull(c.Due))
	l.begun = append(l.begun, c.Status != model.Waiting || c.Bundle != "") // otherwise it waits as if it had never begun
	l.class = append(l.class, c.ErrorClass)
	l.cause = append(l.cause, c.Cause)
	order, _ := c.Next(c.move)
	l.move = append(l.move, order)
	l.awaits = append(l.awaits, awaitsOf(c.Change))
	l.heard = append(l.heard, c.Heard)
	l.progress = append(l.progress, c.Progress)
}

// queueLeaves saves the changes that release a run without ending it for good.
func (w *work) queueLeaves(t *tx, changes []*step) {
	if len(changes) == 0 {
		return
	}
	var l leaves
	for _, c := range changes {
		l.add(c, w.now)
	}
	t.queue(saveLeaves, l.id, l.bundle, l.pipeline, l.checkpoint, l.path, l.problem, l.place, l.due, l.begun, l.class, l.cause, l.move,
		l.awaits, l.heard, l.progress).QueryRow(t.noteReady)
}
