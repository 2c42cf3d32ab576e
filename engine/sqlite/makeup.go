package sqlite

import (
	"context"

	"procaas/engine/model"
	"procaas/engine/store"
)

const (
	findPastRun  = "select seq, pipeline, status, version, generation, coalesce(left_out, '') from history where id = ?"
	bringBackRun = `insert into runs (seq, id, flow, key, ordered, block, place, version, generation, pipeline, bundle, priority,
	accepted, started, due, deadline, event, checkpoint)
	select seq, id, flow, key, 0, 0, 'ready', version + 1, generation + 1, pipeline, bundle, ?2, accepted, started, ?3, ?3, event, ?4
	from history where seq = ?1`
)

// MakeUp implements [store.Runs].
func (s *Store) MakeUp(ctx context.Context, m store.MakeUp, by store.Actor) error {
	return s.writer.do(ctx, func(t *tx) error {
		var seq, version int64
		var r store.AuditedRun
		var left string
		found, err := t.row(findPastRun, []any{m.Run}, &seq, &r.Pipeline, &r.Status, &version, &r.Generation, &left)
		if err != nil {
			return err
		}
		if !found {
			if _, known, err := t.find(m.Run); err != nil || known {
				return errOr(err, store.ErrConflict)
			}
			return store.ErrNotFound
		}
		if r.Status != model.Succeeded || version != m.Version || !model.HasLeftOut(left, m.Path) {
			return store.ErrConflict
		}
		if err := t.exec(bringBackRun, seq, m.Priority, t.now.UnixMicro(), m.Checkpoint); err != nil {
			return err
		}
		t.ready = true
		if err := t.exec(deletePast, seq); err != nil {
			return err
		}
		return t.audit(r.MadeUp(m, by))
	})
}

func errOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}
