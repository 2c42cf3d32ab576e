package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"procaas/engine/store"
)

// Join implements [store.Ledger].
func (m *Store) Join(ctx context.Context, name string, lease time.Duration) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	now, node := m.now(), store.NodeNumber(int64(len(m.nodes)+1))
	m.nodes[node] = &memoryNode{
		NodeInfo: store.NodeInfo{Node: node, Name: name, Started: now, Seen: now}, until: now.Add(lease),
	}
	return node, nil
}

// Beat implements [store.Ledger].
func (m *Store) Beat(ctx context.Context, node int64, lease time.Duration, bundle string) (store.Beat, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return store.Beat{}, err
	}
	n := m.nodes[node]
	if n == nil {
		return store.Beat{}, store.ErrForgotten
	}
	if n.gone {
		return store.Beat{Beats: n.Beats}, store.ErrFenced
	}
	now := m.now()
	n.Seen, n.Bundle, n.until = now, bundle, now.Add(lease)
	n.Beats++
	for _, other := range m.nodes {
		if !other.gone && other.until.Before(now) {
			other.gone = true
		}
	}
	b := store.Beat{
		Now: now, Beats: n.Beats, Revision: m.revision(), Causes: m.causes(),
		Outages: m.fallback.revision, Decided: m.fallback.decided,
	}
	for _, other := range m.nodes {
		if !other.gone {
			b.Nodes++
		}
	}
	for _, r := range m.order {
		if r.node == 0 {
			continue
		}
		if m.nodes[r.node].gone {
			m.takeBack(r, true)
			continue
		}
		b.Running++
		if r.node == node {
			b.Owned++
			if r.cancel != nil {
				b.Cancelled = append(b.Cancelled, r.ID)
			}
			if r.move != "" {
				b.Moves = append(b.Moves, store.Move{Run: r.ID, Bundle: r.move})
			}
		}
	}
	for _, r := range m.idle {
		if m.isReady(r, now) {
			b.Ready++
		}
		if left := r.due.Sub(now); left > 0 && (b.Next == 0 || left < b.Next) {
			b.Next = left
		}
	}
	return b, nil
}

// Leave implements [store.Ledger].
func (m *Store) Leave(ctx context.Context, node int64, keep []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	n := m.nodes[node]
	if n == nil || n.gone {
		return nil // its runs are released already
	}
	n.gone, n.left = keep == nil, keep == nil
	for _, r := range m.order {
		if r.node == node && !slices.Contains(keep, r.ID) {
			m.takeBack(r, false)
		}
	}
	m.hint()
	return nil
}

// Nodes implements [store.Ledger].
func (m *Store) Nodes(ctx context.Context) ([]store.NodeInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []store.NodeInfo
	for _, n := range slices.Sorted(maps.Keys(m.nodes)) {
		info := m.nodes[n].NodeInfo
		if m.nodes[n].left {
			continue
		}
		info.Alive = !m.nodes[n].gone && m.nodes[n].until.After(m.now())
		for _, r := range m.order {
			if r.node == n {
				info.Runs++
			}
		}
		out = append(out, info)
	}
	slices.SortStableFunc(out, func(a, b store.NodeInfo) int {
		if a.Alive == b.Alive {
			return 0
		}
		if a.Alive {
			return -1
		}
		return 1
	})
	return out, ctx.Err()
}
