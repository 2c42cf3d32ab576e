package sqlite_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"procaas/engine/enginetest/conformance"
	"procaas/engine/enginetest/conformance/tasks"
	"procaas/engine/sqlite"
	"procaas/engine/store"
)

func open(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.Store(t, func(t *testing.T) store.Store {
		return open(t, filepath.Join(t.TempDir(), "store.db")).Ports()
	})
}

func TestCrash(t *testing.T) {
	t.Parallel()
	conformance.Crash(t, func() string { return filepath.Join(t.TempDir(), "store.db") },
		func(ctx context.Context, path string) (store.Store, error) {
			db, err := sqlite.Open(ctx, path, sqlite.Options{Migrate: true})
			if err != nil {
				return store.Store{}, err
			}
			return db.Ports(), nil
		})
}

func BenchmarkStore(b *testing.B) {
	conformance.Benchmark(b, func(b *testing.B) store.Store { return open(b, filepath.Join(b.TempDir(), "store.db")).Ports() })
}

func TestTimersAreOnTime(t *testing.T) {
	t.Parallel()
	conformance.Timers(t, open(t, filepath.Join(t.TempDir(), "timers.db")).Ports())
}

func BenchmarkBacklog(b *testing.B) {
	for _, waiting := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			conformance.BenchmarkBacklog(b, func(b *testing.B) store.Store { return open(b, filepath.Join(b.TempDir(), "store.db")).Ports() },
				waiting)
		})
	}
}

func TestTaskConformance(t *testing.T) {
	t.Parallel()
	tasks.Conformance(t, func(t *testing.T) *store.TaskStore {
		s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "tasks.db"), sqlite.Options{Migrate: true, Fast: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		return s.Tasks()
	})
}

func TestRunsWaitForRoomOnTheDisk(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "full.db"))
	conformance.Full(t, s.Ports(), func(full bool) { s.Fill(t, full) })
}
