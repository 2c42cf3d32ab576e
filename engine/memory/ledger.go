package memory

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// Claim implements [store.Ledger].
func (m *Store) Claim(ctx context.Context, node int64, limit int, bundle string) ([]store.Claimed, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n := m.nodes[node]; n == nil || n.gone {
		return nil, store.ErrFenced
	}
	// It reads all runs without an owner. A memory store is for tests and small jobs, so no index
	// is worth its upkeep.
	now := m.now()
	var ready []*memoryRun
	for _, r := range m.idle {
		if m.isReady(r, now) {
			ready = append(ready, r)
		}
	}
	slices.SortFunc(ready, func(a, b *memoryRun) int {
		return cmp.Or(cmp.Compare(b.Event.Priority, a.Event.Priority),
			a.deadline().Compare(b.deadline()), cmp.Compare(a.seq, b.seq))
	})
	var out []store.Claimed
	bytes := 0
	for _, r := range ready[:min(limit, len(ready))] {
		if bytes >= store.ClaimBytes {
			break
		}
		bytes += len(r.row) + len(r.checkpoint)
		c := m.give(r, node, bundle)
		c.Turn = r.deadline().Add(-r.Event.DelayTolerance)
		out = append(out, c)
	}
	return out, nil
}

// deadline returns when a run becomes late.
func (r *memoryRun) deadline() time.Time {
	due := r.accepted
	if r.Event.At.After(due) {
		due = r.Event.At
	}
	return due.Add(r.Patience())
}

// Commit implements [store.Ledger].
func (m *Store) Commit(ctx context.Context, node int64, changes []model.Change) ([]error, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if n := m.nodes[node]; n == nil || n.gone {
		return nil, store.ErrFenced
	}
	// Everything that can fail comes before the first change. A commit is all or nothing, except
	// for changes that are refused individually.
	rows := make([][][]byte, len(changes))
	seen := map[string]bool{}
	for i, c := range changes {
		var err error
		if rows[i], err = encode(c.Emit); err != nil {
			return nil, err
		}
		if seen[c.Run] {
			return nil, fmt.Errorf("run %s occurs twice in one commit", c.Run)
		}
		seen[c.Run] = true
	}
	errs := make([]error, len(changes))
	for i, c := range changes {
		r := m.runs[c.Run]
		switch {
		case r == nil || r.node != node || r.version != c.Version:
			errs[i] = store.ErrStale
		case r.cancel != nil && c.Status != model.Succeeded && c.Status != model.Cancelled && c.Status != model.Ignored:
			errs[i] = store.ErrCancelled // a run that has ended otherwise keeps its end
		case !m.canTake(r, c.Take):
			errs[i] = store.ErrStale
		default:
			m.apply(r, c, rows[i])
		}
	}
	return errs, nil
}

// apply writes one change.
func (m *Store) apply(r *memoryRun, c model.Change, emits [][]byte) {
	r.version++
	if c.Progress {
		r.losses = 0
	}
	r.tried = c.Status == model.Running && (c.Trial || r.tried && !c.Progress)
	r.checkpoint, r.bundle, r.pipeline = bytes.Clone(c.Checkpoint), c.Bundle, c.Pipeline
	r.failedPath = c.FailedPath
	r.failure = c.Error
	r.class = c.ErrorClass
	r.reason = c.Reason
	r.awaits, r.heard = nil, 0
	for _, t := range c.Take {
		taken := m.runs[t.Run]
		taken.reason = t.Reason
		m.end(taken, model.Succeeded)
	}
	if c.Status == model.Cancelled && r.cancel != nil {
		r.reason = *r.cancel
	}
	order, _ := c.Next(r.move)
	to := c.PlaceAfter(r.Ordered, r.Block, r.move, m.now())
	if c.Status != model.Running {
		r.move = order
		if r.since.IsZero() || c.Cause == "" || c.Cause != r.waits {
			r.waits, r.since = c.Cause, m.now()
		}
	}
	switch {
	case c.Status == model.Running:
	case c.Status.Ended() && (c.Status != model.Failed || to != model.PlaceReady):
		r.leftOut = model.FormatLeftOut(c.LeftOut)
		m.end(r, c.Status)
	default:
		r.node = 0
		r.status = to.Status()
		r.aside = to == model.PlaceDeferred
		m.idle[r.ID] = r
		if c.Status == model.Waiting && len(c.Checkpoint) == 0 {
			r.started = time.Time{}
		}
		if to == model.PlaceScheduled {
			r.due = c.Due.UTC().Truncate(time.Microsecond)
		}
		if r.status == model.Parked {
			r.due, r.cause = c.Due.UTC().Truncate(time.Microsecond), c.Cause // zero stays zero
			r.awaits, r.heard = c.Awaits, c.Heard
			if slices.ContainsFunc(c.Calls, m.isOver) {
				r.due = m.now() // that run ended before this one was parked, so it has not woken it
			}
		}
	}
	if c.Status == model.Succeeded && r.Ordered {
		m.moveEntity(r, c)
	}
	if caller := m.runs[c.Wakes]; caller != nil && caller.status == model.Parked && !caller.isHeld() {
		caller.due = m.now()
		m.hint()
	}
	for i, in := range c.Emit {
		in.From, in.Keep = nil, false
		m.accept(in, emits[i])
	}
	if c.Status != model.Running || len(c.Emit) > 0 {
		m.hint()
	}
}

// canTake reports whether the events that a run has taken are still pending.
func (m *Store) canTake(r *memoryRun, take []model.Taken) bool {
	for _, t := range take {
		other := m.runs[t.Run]
		if other == nil || other == r || other.Flow != r.Flow || other.Key != r.Key || other.status != model.Waiting || other.bundle != "" {
			return false
		}
	}
	return true
}

// isOver reports whether a run has ended or failed.
func (m *Store) isOver(id string) bool {
	r := m.runs[id]
	return r == nil || r.status.Ended()
}

// moveEntity writes what a run leaves to the later events of its key.
func (m *Store) moveEntity(r *memoryRun, c model.Change) {
	e := m.entities[entityKey{r.Flow, r.Key}]
	if c.State != "" && c.State != e.State {
		e.State = c.State
		for _, other := range e.live {
			other.aside = false // the new state may have a transition for a deferred event
		}
	}
	if len(c.Shared) == 0 {
		return
	}
	names := map[string]json.RawMessage{}
	for _, part := range [][]byte{e.Shared, c.Shared} {
		if len(part) > 0 {
			if err := json.Unmarshal(part, &names); err != nil {
				panic("memory: shared state is no JSON object: " + err.Error())
			}
		}
	}
	e.Shared, _ = json.Marshal(names)
}
