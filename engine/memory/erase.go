package memory

import (
	"context"
	"maps"
	"slices"

	"procaas/engine/model"
	"procaas/engine/store"
)

// KeyData implements [store.Eraser].
func (m *Store) KeyData(ctx context.Context, flow, key string) (store.KeyData, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.keyData(flow, key), ctx.Err()
}

func (m *Store) keyData(flow, key string) (d store.KeyData) {
	if m.entities[entityKey{flow, key}] != nil {
		d.Entities = 1
	}
	for _, r := range m.order {
		switch {
		case r.Flow != flow || r.Key != key:
		case !r.status.Ended():
			d.Unfinished++
		case r.status == model.Failed:
			d.Failed++
		default:
			d.Ended++
		}
	}
	return d
}

// EraseKey implements [store.Eraser].
func (m *Store) EraseKey(ctx context.Context, flow, key string) (store.KeyData, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	gone := m.keyData(flow, key)
	switch {
	case ctx.Err() != nil:
		return store.KeyData{}, ctx.Err()
	case gone.Unfinished > 0:
		return store.KeyData{}, store.ErrConflict
	}
	of := func(r *memoryRun) bool { return r.Flow == flow && r.Key == key }
	maps.DeleteFunc(m.events, func(k eventKey, r *memoryRun) bool {
		if !of(r) || m.isLastFiring(k) {
			return false
		}
		gone.Events++
		return true
	})
	maps.DeleteFunc(m.runs, func(_ string, r *memoryRun) bool { return of(r) })
	maps.DeleteFunc(m.idle, func(_ string, r *memoryRun) bool { return of(r) })
	m.order = slices.DeleteFunc(m.order, of)
	delete(m.entities, entityKey{flow, key})
	return gone, nil
}

// Scrub implements [store.Eraser].
func (m *Store) Scrub(ctx context.Context, _ bool) ([]string, error) { return nil, ctx.Err() }
