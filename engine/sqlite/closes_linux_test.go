package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"procaas/engine/enginetest/watched"
	"procaas/engine/model"
	"procaas/engine/sqlite"
	"procaas/engine/store"
)

// A process that closes any descriptor of an open database drops its locks. So a store, and all
// that the process does beside it, opens the files only through SQLite, which knows that.
func TestNothingClosesAFileOfAnOpenStore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	if err := open(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	files := watched.Closes(t, filepath.Dir(path))
	s := open(t, path)
	for _, again := range []func() error{
		func() error { _, err := sqlite.Open(t.Context(), path, sqlite.Options{}); return err },
		func() error { _, _, err := sqlite.Migrate(t.Context(), path); return err },
	} {
		if again() == nil {
			t.Fatal("want the file refused: it is in use")
		}
	}
	node, err := s.Join(t.Context(), "n", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		if _, err := s.Accept(t.Context(), node, []model.Intake{intake(id)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.List(t.Context(), store.RunFilter{Limit: 10}); err != nil {
		t.Fatal(err)
	}
	if closed := files(path, path+"-wal", path+"-shm", path+"-lock"); len(closed) > 0 {
		t.Errorf("closed while the store is open: %q", closed)
	}
}
