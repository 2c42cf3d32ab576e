package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// Run implements [store.Runs].
func (m *Store) Run(ctx context.Context, id string) (store.RunRecord, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.runs[id]
	if r == nil {
		return store.RunRecord{}, cmp.Or(ctx.Err(), store.ErrNotFound)
	}
	return m.record(r), ctx.Err()
}

// Newer implements [store.Runs].
func (m *Store) Newer(ctx context.Context, of []store.Seen) (news []store.RunRecord, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range of {
		if r := m.runs[s.Run]; r != nil && s.IsNews(r.status, r.version) {
			news = append(news, m.record(r))
		}
	}
	return news, ctx.Err()
}

// record returns the record of a row.
func (m *Store) record(r *memoryRun) store.RunRecord {
	now := m.now()
	due := r.due
	if r.status == model.Waiting && r.isDue(now) {
		due = time.Time{}
	}
	return store.RunRecord{
		ID: r.ID, Event: r.event(), Flow: r.Flow, Key: r.Key, Ordered: r.Ordered, Status: r.status,
		Pipeline: r.pipeline, Bundle: r.bundle, Move: r.move, Checkpoint: bytes.Clone(r.checkpoint),
		Version: r.version, Generation: r.generation, Node: r.node, Accepted: r.accepted,
		Started: r.started, Ended: r.ended, Due: due, FailedPath: r.failedPath,
		Error: r.failure, ErrorClass: r.class, Reason: r.reason,
		Blocked: r.Ordered && r.status == model.Waiting && r.isDue(now) && !r.aside && m.head(r, now) != r,
		Blocks:  m.blocks(r),
	}
}

// blocks reports whether the later runs of a key wait until an operator steers this one.
func (m *Store) blocks(r *memoryRun) bool {
	return r.Ordered && (r.status == model.Failed || r.isHeld()) && slices.Contains(m.entities[entityKey{r.Flow, r.Key}].live, r)
}

// Entity implements [store.Runs].
func (m *Store) Entity(ctx context.Context, flow, key string) (store.EntityRecord, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entities[entityKey{flow, key}]
	if e == nil {
		return store.EntityRecord{}, cmp.Or(ctx.Err(), store.ErrNotFound)
	}
	out := store.EntityRecord{Flow: flow, Key: key, EntityState: e.EntityState}
	for _, r := range e.live {
		if m.blocks(r) {
			out.Blocked = r.ID
		}
		if r.status != model.Failed {
			out.Waiting++
		}
	}
	for _, r := range slices.Backward(e.runs[max(0, len(e.runs)-50):]) {
		record := m.record(r)
		record.Checkpoint = nil
		out.Runs = append(out.Runs, record)
	}
	return out, ctx.Err()
}

// Retry implements [store.Runs].
func (m *Store) Retry(ctx context.Context, id string, by store.Actor) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.runs[id]
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case r == nil:
		return store.ErrNotFound
	case r.status != model.Failed && r.status != model.Ignored && !r.isHeld():
		return store.ErrConflict
	}
	passed := r.status == model.Ignored || r.status == model.Failed && !r.Block // read before the status changes
	m.audit(r.audited().Retried(id, by))
	if r.status == model.Ignored {
		r.bundle = ""
		r.checkpoint = nil
		r.started = time.Time{}
		r.reason = ""
		r.Block = false // it has not begun
	}
	r.status = model.Waiting
	r.ended = time.Time{}
	r.failedPath = ""
	r.failure = ""
	r.class = ""
	r.generation++
	r.losses = 0
	m.idle[r.ID] = r
	if r.Ordered && passed { // the later runs of its key continued without it
		e := m.entities[entityKey{r.Flow, r.Key}]
		m.head(r, m.now()) // a run that has begun keeps its turn
		r.passed = true
		e.live = append(e.live, r)
		slices.SortFunc(e.live, func(a, b *memoryRun) int { return cmp.Compare(a.seq, b.seq) })
	}
	if r.Ordered {
		m.head(r, m.now())
	}
	m.hint()
	return nil
}

// Cancel implements [store.Runs].
func (m *Store) Cancel(ctx context.Context, id string, by store.Actor, tell store.Tell) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.runs[id]
	rows, err := encode(tell.Events)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	case r == nil:
		return store.ErrNotFound
	case r.status.Ended() && r.status != model.Failed:
		return store.ErrConflict
	case r.node == 0 && tell.Fits(r.generation) != nil:
		return store.ErrStale
	}
	m.audit(r.audited().Cancelled(id, by))
	if r.node != 0 {
		if r.cancel == nil {
			r.cancel = &by.Reason
		}
		return nil
	}
	r.reason = by.Reason
	m.end(r, model.Cancelled)
	for i, in := range tell.Events {
		m.accept(in, rows[i])
	}
	m.hint()
	return nil
}

// MakeUp implements [store.Runs].
func (m *Store) MakeUp(ctx context.Context, up store.MakeUp, by store.Actor) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.runs[up.Run]
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case r == nil:
		return store.ErrNotFound
	case r.status != model.Succeeded || r.version != up.Version || !model.HasLeftOut(r.leftOut, up.Path, ""):
		return store.ErrConflict
	}
	m.audit(r.audited().MadeUp(up, by))
	r.status = model.Waiting
	r.ended = time.Time{}
	r.checkpoint = bytes.Clone(up.Checkpoint)
	r.leftOut = ""
	r.version++
	r.generation++
	r.Ordered = false
	m.idle[r.ID] = r
	m.hint()
	return nil
}

// Undo implements [store.Runs].
func (m *Store) Undo(ctx context.Context, id string, by store.Actor, tell store.Tell) error {
	m.mu.Lock()
	r := m.runs[id]
	if ctx.Err() != nil || r == nil || r.bundle == "" || r.status.Ended() || r.cancel != nil {
		m.mu.Unlock()
		return m.Cancel(ctx, id, by, tell)
	}
	defer m.mu.Unlock()
	m.audit(r.audited().Undone(id, by))
	r.move, r.losses = model.UndoOrder(by.Reason), 0
	if r.status == model.Parked {
		r.status = model.Waiting
		r.due = time.Time{}
		r.awaits = nil
		r.cause = ""
	}
	m.hint()
	return nil
}

// Move implements [store.Runs].
func (m *Store) Move(ctx context.Context, move store.Move, version int64, by store.Actor) (asked bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.runs[move.Run]
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case r == nil:
		return false, store.ErrNotFound
	case r.bundle == "", r.status.Ended() && r.status != model.Failed:
		return false, store.ErrConflict
	case r.node == 0 && r.version != version:
		return false, store.ErrStale
	}
	if _, undo := model.UndoReason(r.move); undo {
		return false, store.ErrConflict
	}
	m.audit(r.audited().Moved(move, r.bundle, by))
	if r.node != 0 {
		r.move = move.Bundle
		return true, nil
	}
	r.bundle, r.move = move.Bundle, ""
	return false, nil
}

// audited returns the audit's view of a run.
func (r *memoryRun) audited() store.AuditedRun {
	return store.AuditedRun{
		Pipeline: r.pipeline, Status: r.status, Generation: r.generation, FailedPath: r.failedPath, ErrorClass: r.class, Error: r.failure,
	}
}
