package memory

import (
	"context"

	"procaas/engine/store"
)

// A memoryLimit has the buckets of a limit, by value.
type memoryLimit struct {
	room    store.LimitRoom
	buckets map[string]*store.TokenBucket
}

// sweep removes the buckets that no longer count.
func (l *memoryLimit) sweep(now int64) {
	for value, b := range l.buckets {
		if !b.Counts(now) {
			delete(l.buckets, value)
		}
	}
}

// TakeTokens implements [store.Limits].
func (m *data) TakeTokens(ctx context.Context, asks []store.TokenAsk, rows int) ([]store.Token, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	now := m.clock().UnixNano()
	for _, l := range m.limits {
		l.sweep(now)
	}
	out := make([]store.Token, len(asks))
	for i := range asks {
		a := &asks[i]
		l := m.limits[a.Limit]
		if l == nil {
			l = &memoryLimit{buckets: map[string]*store.TokenBucket{}}
			m.limits[a.Limit] = l
		}
		b := l.buckets[a.Value]
		if b == nil && a.Back == 0 && len(l.buckets) < rows {
			b = &store.TokenBucket{}
			l.buckets[a.Value] = b
		}
		switch {
		case b != nil:
			out[i] = b.Answer(a, now)
		case a.Back == 0:
			out[i] = l.room.Turn(a, rows, now)
		}
	}
	return out, nil
}

// SweepLimits implements [store.Limits].
func (m *data) SweepLimits(ctx context.Context) (map[string]int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, kept := m.clock().UnixNano(), map[string]int{}
	for path, l := range m.limits {
		l.sweep(now)
		kept[path] = len(l.buckets)
		if len(l.buckets) == 0 && l.room.Away <= now {
			delete(m.limits, path)
		}
	}
	return kept, ctx.Err()
}
