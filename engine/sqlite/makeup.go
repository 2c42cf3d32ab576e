package sqlite

import (
	"context"

	"procaas/engine"
	"procaas/engine/model"
)

const (
	findPastRun  = "select seq, pipeline, status, version, generation, coalesce(left_out, '') from history where id = ?"
	bringBackRun = `insert into runs (seq, id, flow, key, ordered, block, place, version, generation, pipeline, bundle, priority,
	accepted, started, due, deadline, event, checkpoint)
	select seq, id, flow, key, 0, 0, 'ready', version + 1, generation + 1, pipeline, bundle, ?2, accepted, started, ?3, ?3, event, ?4
	from history where seq = ?1`
)

// MakeUp implements [engine.Runs].
func (s *Store) MakeUp(ctx context.Context, m engine.MakeUp, by engine.Actor) error {
	return s.writer.do(ctx, func(t *tx) error {
		var seq, version int64
		var r engine.AuditedRun
		var left string
		found, err := t.row(findPastRun, []any{m.Run}, &seq, &r.Pipeline, &r.Status, &version, &r.Generation, &left)
		if err != nil {
			return err
		}
		if !found {
			if _, known, err := t.find(m.Run); err != nil || known {
				return errOr(err, engine.ErrConflict)
			}
			return engine.ErrNotFound
		}
		if r.Status != model.Succeeded || version != m.Version || !model.HasLeftOut(left, m.Path) {
			return engine.ErrConflict
		}
		if err := t.exec(bringBackRun, seq, m.Priority, t.now.UnixMicro(), m.Checkpoint); err != nil {
			return err
		}
		t.ready = true
		if err := t.exec(deletePast, seq); err != nil {
			return err
		}
		_, err = t.audit(r.MadeUp(m, by))
		return err
	})
}

func errOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}
