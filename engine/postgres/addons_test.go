package postgres_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"procaas/engine/enginetest"
	"procaas/engine/postgres"
	"procaas/engine/store"
)

// marks returns the tables of an add-on with these migrations.
func marks(migrations ...string) store.Tables {
	files := fstest.MapFS{}
	for i, sql := range migrations {
		files[fmt.Sprintf("%04d_marks.sql", i+1)] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + sql)}
	}
	t := store.Tables{Name: "marks"}
	if len(files) > 0 {
		t.Postgres = fs.FS(files)
	}
	return t
}

const (
	makeMarks = "create table marks (run bigint primary key references runs);" // the store's own tables are there
	growMarks = "alter table marks add column weight bigint;"
)

// Migrations of an add-on come behind those of the store, as a whole or not at all, and count by themselves.
func TestTablesOfAddons(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t) // an earlier version of the program has made it
	wantOpenError := func(want string, tables store.Tables) {
		t.Helper()
		s, err := postgres.Open(t.Context(), dsn, postgres.Options{Addons: []store.Tables{tables}})
		if err == nil {
			t.Fatal("the store was opened", s.Close())
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, have %v", want, err)
		}
	}
	wantOpenError("schema has version 0 for the marks, want 1: run procaas store migrate", marks(makeMarks))

	errs := make(chan error)
	for range 4 {
		go func() {
			s, err := postgres.Open(t.Context(), dsn, postgres.Options{Migrate: true, Addons: []store.Tables{marks(makeMarks)}})
			if err == nil {
				err = s.Close()
			}
			errs <- err
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}

	// The session ends in the middle of the second file.
	dies := growMarks + " select pg_terminate_backend(pg_backend_pid());"
	if done, err := postgres.Migrate(t.Context(), dsn, marks(makeMarks, dies)); err == nil {
		t.Errorf("want an error, have %v", done)
	}
	c := connect(t, dsn)
	var grown bool
	const hasWeight = "select exists (select from pg_attribute where attrelid = 'marks'::regclass and attname = 'weight')"
	if err := c.QueryRow(t.Context(), hasWeight).Scan(&grown); err != nil || grown {
		t.Errorf("want nothing of the migration that failed, have %v, %v", grown, err)
	}
	wantOpenError("schema has version 1 for the marks, want 2", marks(makeMarks, growMarks))
	done, err := postgres.Migrate(t.Context(), dsn, marks(makeMarks, growMarks))
	if err != nil || len(done) != 2 || done[0].From != done[0].To || done[1] != (store.Migration{Of: "marks", From: 1, To: 2}) {
		t.Errorf("want only the second migration of the add-on made, have %v, %v", done, err)
	}

	wantOpenError("schema has version 2 for the marks, newer than 1, the last that this procaas knows", marks(makeMarks))
	wantOpenError("schema has version 2 for the marks, newer than 0, the last that this procaas knows", marks())
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{}) // a program without the add-on
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Nodes of an earlier release keep an add-on's tables as they are, and do not use newer ones.
func TestOlderNodesDoNotUseNewerTablesOfAddons(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{Addons: []store.Tables{marks()}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	node := join(t, s)
	_, err = postgres.Migrate(t.Context(), dsn, marks(makeMarks))
	if want := fmt.Sprintf("node %d ", node); err == nil || !strings.Contains(err.Error(), want) ||
		!strings.Contains(err.Error(), "This program brings version 1 for the marks, and nodes must know version 1") {
		t.Fatalf("want the migration refused and %q named, have %v", want, err)
	}
	run(t, connect(t, dsn), "update leases set lease_until = clock_timestamp()") // the node is paused
	if _, err := postgres.Migrate(t.Context(), dsn, marks(makeMarks)); err != nil {
		t.Fatal(err)
	}
	_, beat := s.Beat(t.Context(), node, time.Minute, "")
	_, late := s.Join(t.Context(), "late", time.Minute)
	for what, err := range map[string]error{"beat": beat, "join": late} {
		if err == nil || errors.Is(err, store.ErrFenced) || !strings.Contains(err.Error(), "use a newer procaas") {
			t.Errorf("%s: want the node refused, have %v", what, err)
		}
	}
}
