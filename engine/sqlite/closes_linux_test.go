package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
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
		func() error { _, err := sqlite.Migrate(t.Context(), path); return err },
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

// A file has one store, even if the file beside it is removed, and by each path that leads to it.
// Whoever tries takes nothing from the store that has the file.
func TestOpenRefusesTheSameFileByAnyPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, link := filepath.Join(dir, "store.db"), filepath.Join(dir, "link.db")
	s := open(t, path)
	if err := errors.Join(os.Remove(path+"-lock"), os.Link(path, link)); err != nil {
		t.Fatal(err)
	}
	log, err := os.Stat(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, link} {
		wantOpenError(t, name, "in use by another process", "another path")
		if _, err := sqlite.Migrate(t.Context(), name); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("want migrate to refuse %s, have %v", name, err)
		}
		// SQLite's locks are gone, because this process has closed the file. The store's own hold.
		sqlite3(t, path, "select count(*) from runs")
		if now, err := os.Stat(path + "-wal"); err != nil || !os.SameFile(log, now) {
			t.Fatalf("the log is gone or another one: %v", err)
		}
		if _, err := s.Accept(t.Context(), 0, []model.Intake{intake(name)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + "-wal"); !os.IsNotExist(err) {
		t.Errorf("want the log copied into the file at the end, have %v", err)
	}
	open(t, link)
}
