package sqlite_test

import (
	"path/filepath"
	"testing"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/sqlite"
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
	enginetest.Conformance(t, func(t *testing.T) engine.Store {
		return open(t, filepath.Join(t.TempDir(), "store.db"))
	})
}
