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
	if !keep.Archived {
		m.remove(func(r *memoryRun) bool { return r.isPast() && keep.IsPast(r.pipeline, now.Sub(r.ended)) })
	}
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

// Past implements [store.Trimmer].
func (m *Store) Past(ctx context.Context, keep store.Retention, limit int, bytes int64) (out []store.RunRecord, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, later, size := m.now(), map[string]int{}, int64(0)
	surplus := map[*memoryRun]bool{}
	for _, r := range slices.Backward(m.order) {
		if last, ok := keep.Last[r.pipeline]; ok && r.isPast() {
			surplus[r] = later[r.pipeline] >= last
			later[r.pipeline]++
		}
	}
	for _, r := range m.order {
		if !r.isPast() || !surplus[r] && !keep.IsPast(r.pipeline, now.Sub(r.ended)) {
			continue
		}
		record := m.record(r)
		size += int64(len(r.row) + len(record.Checkpoint))
		if len(out) == limit || len(out) > 0 && size > bytes {
			break
		}
		out = append(out, record)
	}
	return out, ctx.Err()
}

// Forget implements [store.Trimmer].
func (m *Store) Forget(ctx context.Context, runs []store.RunRecord) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	versions := map[string]int64{}
	for _, r := range runs {
		versions[r.ID] = r.Version
	}
	m.remove(func(r *memoryRun) bool {
		version, chosen := versions[r.ID]
		return chosen && r.isPast() && r.version == version
	})
	return nil
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
