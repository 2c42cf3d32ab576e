package memory

import (
	"context"
	"maps"
	"slices"
	"strings"

	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/engine/triggers"
)

// Trim implements [store.Trimmer].
func (m *Store) Trim(ctx context.Context, keep store.Retention) (more bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	now := m.now()
	m.remove(func(r *memoryRun) bool { return r.isPast() && keep.IsPast(r.pipeline, now.Sub(r.ended)) })
	maps.DeleteFunc(m.events, func(k eventKey, r *memoryRun) bool {
		age := now.Sub(r.accepted)
		unfinished := m.runs[r.ID] != nil && !r.isPast()
		return !unfinished && keep.Keep > 0 && age >= keep.Keep && keep.IsPast(r.pipeline, age) && !m.isLastFiring(k)
	})
	return false, nil
}

// TrimRuns implements [store.Trimmer].
func (m *Store) TrimRuns(ctx context.Context, pipeline string, keep int) (more bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	ended := 0
	for _, r := range m.order {
		if r.pipeline == pipeline && r.isPast() {
			ended++
		}
	}
	m.remove(func(r *memoryRun) bool {
		old := r.pipeline == pipeline && r.isPast() && ended > keep
		if old {
			ended--
		}
		return old
	})
	return false, nil
}

// remove forgets the runs that a function chooses. It is asked for each once, oldest first.
func (m *Store) remove(chosen func(*memoryRun) bool) {
	gone := map[*memoryRun]bool{}
	of := func(r *memoryRun) bool { return gone[r] }
	for _, r := range m.order {
		if chosen(r) {
			gone[r] = true
			delete(m.runs, r.ID)
		}
	}
	m.order = slices.DeleteFunc(m.order, of)
	for _, e := range m.entities {
		e.runs = slices.DeleteFunc(e.runs, of)
	}
}

// isPast reports whether the run has ended for good.
func (r *memoryRun) isPast() bool { return r.status.Ended() && r.status != model.Failed }

// isLastFiring reports whether an event says when its trigger fired last.
func (m *Store) isLastFiring(k eventKey) bool {
	return strings.HasPrefix(k.source, triggers.TriggerSource) && k.id == m.lastEvent(k.source)
}
