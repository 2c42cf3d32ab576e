package memory

import (
	"cmp"
	"context"
	"slices"

	"procaas/engine/store"
)

// AddUsage implements [store.Usage].
func (m *data) AddUsage(ctx context.Context, uses []store.Use, oldest string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	m.used = slices.DeleteFunc(m.used, func(u store.Use) bool { return u.Day < oldest })
	for _, u := range uses {
		at, found := slices.BinarySearchFunc(m.used, u, byDayAndPath)
		if !found {
			m.used = slices.Insert(m.used, at, store.Use{Day: u.Day, Path: u.Path})
		}
		m.used[at].Add(u.UseCounts)
	}
	return nil
}

// UsageSince implements [store.Usage].
func (m *data) UsageSince(ctx context.Context, day string, each func(store.Use)) error {
	m.mu.Lock()
	used := slices.Clone(m.used)
	m.mu.Unlock()
	for _, u := range used {
		if u.Day >= day {
			each(u)
		}
	}
	return ctx.Err()
}

// TimedSince implements [store.Usage].
func (m *data) TimedSince(ctx context.Context, day string, each func(store.Use)) error {
	return m.UsageSince(ctx, day, func(u store.Use) {
		if u.Timed > 0 {
			each(u)
		}
	})
}

func byDayAndPath(a, b store.Use) int {
	return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Path, b.Path))
}
