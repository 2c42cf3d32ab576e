package sqlite_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"procaas/engine/model"
	"procaas/engine/sqlite"
	"procaas/engine/sqlstore"
	"procaas/engine/store"
	"procaas/schemas"
)

func intake(id string) model.Intake {
	return model.Intake{
		ID: id, Event: model.Event{ID: id, Type: "made"}, Flow: "orders", Key: id, Ordered: true, Dedup: true, Pipeline: "made",
	}
}

// wantOpenError opens a store in vain.
func wantOpenError(t *testing.T, path string, words ...string) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err == nil {
		t.Fatal("the store was opened", s.Close())
	}
	for _, w := range append(words, path) {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("want an error with %q, have %v", w, err)
		}
	}
}

func TestOpenRefusesAFileInUse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	wantOpenError(t, path, "in use by another process")
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	wantOpenError(t, link, "in use by another process")
	if _, err := sqlite.Migrate(t.Context(), path); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("want migrate to refuse a file in use, have %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path)
}

func TestOpenRefusesAnotherSchema(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "with %20 and ? and #.db")
	migrations, err := schemas.SQLite.ReadDir("sqlite")
	if err != nil {
		t.Fatal(err)
	}
	var newest int64 // numbers may have gaps
	if _, err := fmt.Sscanf(migrations[len(migrations)-1].Name(), "%d_", &newest); err != nil {
		t.Fatal(err)
	}
	newest = max(newest, sqlstore.HorizonVersion) // which is no file
	wantOpenError(t, path, fmt.Sprintf("schema has version 0, want %d", newest), "run procaas store migrate")
	for _, want := range [][2]int64{{0, newest}, {newest, newest}} {
		done, err := sqlite.Migrate(t.Context(), path)
		if err != nil || len(done) != 1 || [2]int64{done[0].From, done[0].To} != want {
			t.Fatalf("migrate: want %v, have %v, %v", want, done, err)
		}
	}
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the file has another name: %v", err)
	}
	newer(t, path)
	wantOpenError(t, path, fmt.Sprintf("newer than %d", newest), "use a newer procaas")
}

// newer notes a migration that this program does not know.
func newer(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("insert into procaas_schema (version_id, is_applied) values (999, true)"); err != nil {
		t.Fatal(err)
	}
}

func TestOpenTakesTheRunsOfTheProcessBeforeOver(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	before, err := s.Join(t.Context(), "before", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	in := intake("a")
	in.Own = true
	if _, err := s.Accept(t.Context(), before, []model.Intake{in}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	node, err := s.Join(t.Context(), "after", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := s.Claim(t.Context(), node, 10, "")
	if err != nil || len(runs) != 1 || runs[0].ID != "a" || node <= before {
		t.Fatalf("want node %d to give run a at once, have node %d with %v, %v", before, node, runs, err)
	}
}

func TestCallsAfterCloseFail(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Accept(t.Context(), 0, []model.Intake{intake("a")}); err == nil {
		t.Error("accepted after Close")
	}
	if _, err := s.Run(t.Context(), "a"); err == nil || errors.Is(err, store.ErrNotFound) {
		t.Errorf("want a failure of Run after Close, have %v", err)
	}
}

// A write that fails must not spoil those that share its transaction.
func TestWritesOfOneTransactionDoNotSpoilEachOther(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	if _, err := s.Accept(t.Context(), 0, []model.Intake{intake("taken")}); err != nil {
		t.Fatal(err)
	}
	bad := intake("new")
	bad.ID = "taken" // the run's id, not the event's
	type result struct {
		good bool
		err  error
	}
	results := make(chan result)
	for i := range 40 {
		in := intake(string(rune('A' + i)))
		if i%2 == 0 {
			in = bad
		}
		go func() {
			_, err := s.Accept(t.Context(), 0, []model.Intake{intake(in.Event.ID + "-first"), in})
			results <- result{i%2 == 1, err}
		}()
	}
	for range 40 {
		if r := <-results; r.good != (r.err == nil) {
			t.Errorf("good batch: %v, error: %v", r.good, r.err)
		}
	}
	if _, err := s.Run(t.Context(), "new-first"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a part of a failed batch is there: %v", err)
	}
	if runs, _, err := s.List(t.Context(), store.RunFilter{Limit: 1000}); err != nil || len(runs) != 41 {
		t.Errorf("want the runs of 20 good batches and one, have %d, %v", len(runs), err)
	}
}

// Whoever else has an account on the machine must not read what is stored.
func TestFilesAreTheirOwnersAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	check := func(when string) {
		t.Helper()
		files, err := os.ReadDir(dir)
		if err != nil || len(files) < 4 {
			t.Fatalf("%s: want the file, its log, its index and its lock, have %v, %v", when, files, err)
		}
		for _, f := range files {
			if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: want %s to be -rw-------, have %v, %v", when, f.Name(), info.Mode(), err)
			}
		}
	}
	path := filepath.Join(dir, "store.db")
	s := open(t, path)
	if _, err := s.SetConfig(t.Context(), "A", []byte("1"), -1, store.Actor{Name: "ann"}); err != nil {
		t.Fatal(err)
	}
	check("new")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files { // as earlier releases have left them
		if err := os.Chmod(filepath.Join(dir, f.Name()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	again := open(t, path)
	if _, err := again.SetConfig(t.Context(), "A", []byte("2"), -1, store.Actor{Name: "ann"}); err != nil {
		t.Fatal(err)
	}
	check("of an earlier release")
}
