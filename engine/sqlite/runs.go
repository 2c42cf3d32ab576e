package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"strconv"

	"procaas/engine"
)

// The columns of a record, in the order of scanRecord. The history's come in
// the same order, so that both are read alike.
const (
	hotColumns = `seq, id, event, flow, key, ordered, place, pipeline, bundle, checkpoint, version, generation, node,
	accepted, started, ended, due, failed_path, error, '' as reason`
	pastColumns = `seq, id, event, flow, key, ordered, status, pipeline, bundle, checkpoint, version, generation, 0,
	accepted, started, ended, null, failed_path, error, reason`
)

type record struct {
	engine.RunRecord
	seq int64
}

func scanRecord(s interface{ Scan(...any) error }) (r record, err error) {
	var event []byte
	var at place
	var accepted, started, ended, due sql.NullInt64
	if err := s.Scan(&r.seq, &r.ID, &event, &r.Flow, &r.Key, &r.Ordered, &at, &r.Pipeline, &r.Bundle, &r.Checkpoint,
		&r.Version, &r.Generation, &r.Node, &accepted, &started, &ended, &due,
		&r.FailedPath, &r.Error, &r.Reason); err != nil {
		return r, err
	}
	r.Status, r.Blocked = at.status(), at == queued
	r.Accepted, r.Started, r.Ended = fromMicros(accepted), fromMicros(started), fromMicros(ended)
	if at == parked || at == scheduled {
		r.Due = fromMicros(due)
	}
	r.Event, err = engine.DecodeEvent(event)
	return r, err
}

const findRecord = "select " + hotColumns + " from runs where id = ?1 union all select " + pastColumns + " from history where id = ?1"

// Run implements [engine.Runs].
func (s *Store) Run(ctx context.Context, id string) (engine.RunRecord, error) {
	r, err := scanRecord(s.read.QueryRowContext(ctx, findRecord, id))
	if errors.Is(err, sql.ErrNoRows) {
		err = engine.ErrNotFound
	}
	return r.RunRecord, err
}

// List implements [engine.Runs].
func (s *Store) List(ctx context.Context, f engine.RunFilter) ([]engine.RunRecord, string, error) {
	before := int64(math.MaxInt64)
	if f.Cursor != "" {
		var err error
		if before, err = strconv.ParseInt(f.Cursor, 36, 64); err != nil {
			return nil, "", engine.ErrCursor
		}
	}
	limit := min(max(f.Limit, 1), 1000)
	query, args := listQuery(f, before, limit+1)
	r, err := s.read.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, "", err
	}
	all, err := collect(r, func(r *sql.Rows) (record, error) { return scanRecord(r) })
	if err != nil {
		return nil, "", err
	}
	next := ""
	if len(all) > limit {
		all = all[:limit]
		next = strconv.FormatInt(all[limit-1].seq, 36)
	}
	runs := make([]engine.RunRecord, len(all))
	for i, r := range all {
		runs[i] = r.RunRecord
	}
	return runs, next, nil
}

// listQuery builds the query of a listing. Each table is read from its newest
// run backwards, no further than needed.
func listQuery(f engine.RunFilter, before int64, limit int) (string, []any) {
	hot, past := "where seq < ?", "where seq < ?"
	args := []any{before}
	for _, c := range []struct{ column, value string }{{"pipeline", f.Pipeline}, {"flow", f.Flow}, {"key", f.Key}} {
		if c.value != "" {
			hot += " and " + c.column + " = ?"
			past += " and " + c.column + " = ?"
			args = append(args, c.value)
		}
	}
	pastArgs := slices.Clone(args)
	switch f.Status {
	case "":
	case engine.Waiting:
		hot, past = hot+" and place in ('ready', 'queued', 'scheduled', 'deferred')", past+" and false"
	case engine.Failed:
		hot, past = hot+" and place in ('blocked', 'failed')", past+" and false"
	case engine.Running:
		hot, past = hot+" and place = 'running'", past+" and false"
	case engine.Parked:
		hot, past = hot+" and place in ('parked', 'held')", past+" and false"
	default:
		hot, past = hot+" and false", past+" and status = ?"
		pastArgs = append(pastArgs, f.Status)
	}
	query := "select * from (select " + hotColumns + " from runs " + hot + " order by seq desc limit ?)" +
		" union all select * from (select " + pastColumns + " from history " + past + " order by seq desc limit ?)" +
		" order by 1 desc limit ?"
	args = append(args, limit)
	args = append(args, pastArgs...)
	return query, append(args, limit, limit)
}

const (
	countKey = `select count(*) from runs where flow = ? and key = ?
	and place in ('ready', 'running', 'parked', 'held', 'queued', 'scheduled', 'deferred')`
	findBlocked = "select id from runs where flow = ? and key = ? and ordered and place in ('held', 'blocked')"
)

// Entity implements [engine.Runs].
func (s *Store) Entity(ctx context.Context, flow, key string) (e engine.EntityRecord, err error) {
	e.Flow, e.Key = flow, key
	err = s.read.QueryRowContext(ctx, readKey, flow, key).Scan(&e.State, &e.Shared)
	if errors.Is(err, sql.ErrNoRows) {
		return e, engine.ErrNotFound
	}
	if err != nil {
		return e, err
	}
	if err := s.read.QueryRowContext(ctx, countKey, flow, key).Scan(&e.Waiting); err != nil {
		return e, err
	}
	err = s.read.QueryRowContext(ctx, findBlocked, flow, key).Scan(&e.Blocked)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return e, err
	}
	e.Runs, _, err = s.List(ctx, engine.RunFilter{Flow: flow, Key: key, Limit: latest})
	for i := range e.Runs {
		e.Runs[i].Checkpoint = nil
	}
	return e, err
}

// latest is how many runs an entity shows.
const latest = 50

const (
	findPast  = "select 1 from history where id = ?"
	reviveRun = `update runs set generation = generation + 1, failed_path = '', error = '', ended = null,
	place = ? where seq = ?`
)

// Retry implements [engine.Runs].
func (s *Store) Retry(ctx context.Context, id string) error {
	return s.writer.do(ctx, func(t *tx) error {
		r, err := t.steer(id)
		if err != nil {
			return err
		}
		if r.place.status() != engine.Failed && r.place != held {
			return engine.ErrConflict
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

const askCancel = "update runs set cancel = coalesce(cancel, ?) where seq = ?"

// Cancel implements [engine.Runs].
func (s *Store) Cancel(ctx context.Context, id, reason string) error {
	return s.writer.do(ctx, func(t *tx) error {
		r, err := t.steer(id)
		if err != nil {
			return err
		}
		if r.place == running {
			return t.exec(askCancel, reason, r.seq)
		}
		return t.end(r, engine.Stopped, reason)
	})
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
		return r, engine.ErrConflict
	}
	return r, engine.ErrNotFound
}
