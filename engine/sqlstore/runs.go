package sqlstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// These are the columns of a record, in the order of scanRecord. Both tables use the same order. %s
// is the checkpoint.
const (
	hotColumns = `seq, id, event, flow, key, ordered, {place}, pipeline, bundle, coalesce(move, ''), %s, version, generation, node,
	accepted, started, ended, due, failed_path, error, error_class, '' as reason`
	pastColumns = `seq, id, event, flow, key, ordered, status, pipeline, bundle, '', %s, version, generation, cast(0 as bigint),
	accepted, started, ended, cast(null as {time}), failed_path, error, error_class, reason`

	checkpoint   = "checkpoint"
	noCheckpoint = "{no checkpoint}"
)

// A Record is a run with its number. Numbers have the order of acceptance.
type Record struct {
	store.RunRecord
	Seq int64
}

// Cursor returns the cursor of the place after the record in a listing.
func (r *Record) Cursor() string { return strconv.FormatInt(r.Seq, 36) }

func scanRecord(row Row, decode func([]byte) (model.Event, error)) (r Record, err error) {
	var event []byte
	var place model.Place
	var due time.Time
	if err := row.Scan(&r.Seq, &r.ID, &event, &r.Flow, &r.Key, &r.Ordered, &place, &r.Pipeline, &r.Bundle, &r.Move, &r.Checkpoint,
		&r.Version, &r.Generation, &r.Node, at(&r.Accepted), at(&r.Started), at(&r.Ended), at(&due),
		&r.FailedPath, &r.Error, &r.ErrorClass, &r.Reason); err != nil {
		return r, err
	}
	r.Status, r.Blocked = place.Status(), place == model.PlaceQueued
	r.Blocks = r.Ordered && (place == model.PlaceBlocked || place == model.PlaceHeld)
	if place == model.PlaceParked || place == model.PlaceScheduled {
		r.Due = due
	}
	r.Bundle = model.VersionFor(r.Bundle, r.Flow, r.Key)
	if r.Event, err = decode(event); err != nil {
		r.Damage = store.DamagedRun(r.ID, "the event", err) // others of a listing are sound
	}
	return r, nil
}

// findRecord reads both tables in one statement, so that a run that moves to the history meanwhile
// is found in one of them.
var findRecord = "select " + fmt.Sprintf(hotColumns, checkpoint) + " from runs where id = $1 union all select " +
	fmt.Sprintf(pastColumns, checkpoint) + " from history where id = $1"

// Run implements [store.Runs].
func (s *Store) Run(ctx context.Context, id string) (run store.RunRecord, err error) {
	found := false
	err = s.db.Read(ctx, findRecord, []any{id}, func(row Row) error {
		r, err := scanRecord(row, store.DecodeEvent)
		run, found = r.RunRecord, true
		return err
	})
	if err == nil && !found {
		err = store.ErrNotFound
	}
	return run, err
}

const readEntity = `select state, shared,
	(select count(*) from runs where flow = $1 and key = $2
		and place in ('ready', 'running', 'parked', 'held', 'queued', 'scheduled', 'deferred')),
	coalesce((select id from runs where flow = $1 and key = $2 and ordered and place in ('held', 'blocked')), '')
	from keys where flow = $1 and key = $2`

// latest is how many runs of an entity are shown.
const latest = 50

// Entity implements [store.Runs].
func (s *Store) Entity(ctx context.Context, flow, key string) (e store.EntityRecord, err error) {
	e.Flow, e.Key = flow, key
	if err := find(ctx, s.db, readEntity, []any{flow, key}, &e.State, &e.Shared, &e.Waiting, &e.Blocked); err != nil {
		return e, err
	}
	records, _, err := s.records(ctx, store.RunFilter{Flow: flow, Key: key, Limit: latest, Brief: true}, noCheckpoint)
	for _, r := range records {
		e.Runs = append(e.Runs, r.RunRecord)
	}
	return e, err
}
