package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/sqlite"
	"procaas/engine/store"
)

// Nothing is said to be stored while the file, or its log, is not where it was opened; and the
// node says so. When it is put back, all goes on.
func TestStoreWhoseFileIsGoneAcknowledgesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file string
		harm func(path string) error
	}{
		"removed":     {"", func(string) error { return nil }},
		"replaced":    {"", func(path string) error { return os.WriteFile(path, []byte("another"), 0o600) }},
		"log removed": {"-wal", func(string) error { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "store.db")
			s := open(t, path)
			node := enginetest.Start(t, engine.Options{Store: s.Ports(), Bundle: enginetest.Load(t, "pipelines: []")})
			submit := func() error {
				_, err := s.Accept(t.Context(), 0, []model.Intake{{ID: time.Now().String(), Event: model.Event{Type: "t"}}})
				return err
			}
			if err := submit(); err != nil {
				t.Fatal(err)
			}
			file := path + c.file
			if err := errors.Join(os.Rename(file, path+".away"), c.harm(file)); err != nil {
				t.Fatal(err)
			}
			if err := submit(); !errors.Is(err, store.ErrLost) {
				t.Errorf("want the event refused, have %v", err)
			}
			patience.Until(t, "the node says so", func() bool { return errors.Is(node.Healthy(t.Context()), store.ErrLost) })
			if err := os.Rename(path+".away", file); err != nil {
				t.Fatal(err)
			}
			if err := submit(); err != nil {
				t.Errorf("want events taken in again, have %v", err)
			}
			patience.Until(t, "the node is ready again", func() bool { return node.Healthy(t.Context()) == nil })
		})
	}
}

// A store opens anew where its file was.
func TestStoreOpensAnewWhereItsFileWas(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	first := open(t, path)
	if err := errors.Join(os.Remove(path), first.Close()); err != nil {
		t.Fatal(err)
	}
	second, err := sqlite.Open(t.Context(), path, sqlite.Options{Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}
