package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"procaas/engine/model"
	"procaas/engine/store"
)

const (
	// The partition is found by when the run ended.
	lockPast     = "select seq, ended, pipeline, status, version, generation, coalesce(left_out, '') from history where id = $1 for update"
	isHot        = "select exists (select from runs where id = $1)"
	bringBackRun = `with gone as (delete from history where seq = $1 and ended = $2 returning *)
	insert into runs (seq, id, flow, key, ordered, block, place, version, generation, pipeline, bundle, priority,
		accepted, started, due, deadline, event, checkpoint)
	overriding system value
	select seq, id, flow, key, false, false, 'ready', version + 1, generation + 1, pipeline, bundle, $3,
		accepted, started, now(), now(), event, $4 from gone`
)

// MakeUp implements [store.Runs].
func (s *Store) MakeUp(ctx context.Context, m store.MakeUp, by store.Actor) error {
	err := s.tx(ctx, func(t *tx) error {
		var past []pastRun
		hot := false
		t.queue(lockPast, m.Run).Query(rows(&past, scanPast))
		t.queue(isHot, m.Run).QueryRow(value(&hot))
		if err := t.send(ctx); err != nil {
			return err
		}
		switch {
		case len(past) == 0 && hot:
			return store.ErrConflict
		case len(past) == 0:
			return store.ErrNotFound
		}
		r := past[0]
		if r.Status != model.Succeeded || r.version != m.Version || !model.HasLeftOut(r.left, m.Path) {
			return store.ErrConflict
		}
		t.queue(bringBackRun, r.seq, r.ended, m.Priority, m.Checkpoint)
		t.readyAt(headOfQueue)
		return t.audit(ctx, r.MadeUp(m, by))
	})
	if err != nil {
		return fmt.Errorf("make up: %w", err)
	}
	return nil
}

// A pastRun is one that has ended, as far as it is needed to bring it back.
type pastRun struct {
	store.AuditedRun
	seq, version int64
	ended        any
	left         string
}

func scanPast(row pgx.CollectableRow) (r pastRun, err error) {
	err = row.Scan(&r.seq, &r.ended, &r.Pipeline, &r.Status, &r.version, &r.Generation, &r.left)
	return r, err
}

// leftOut is what a change leaves out as it is kept; nil for nothing.
func leftOut(c *model.Change) *string {
	if len(c.LeftOut) == 0 {
		return nil
	}
	text := model.FormatLeftOut(c.LeftOut)
	return &text
}
