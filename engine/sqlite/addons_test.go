package sqlite_test

import (
	"database/sql"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"procaas/engine/sqlite"
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
		t.SQLite = fs.FS(files)
	}
	return t
}

const (
	makeMarks = "create table marks (run text primary key references runs (id));"
	growMarks = "alter table marks add column weight integer;"
)

// Migrations of an add-on come behind those of the store, as a whole or not at all, and count by themselves.
func TestTablesOfAddons(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	if _, err := sqlite.Migrate(t.Context(), path); err != nil { // an earlier version of the program has made it
		t.Fatal(err)
	}
	wantOpenError := func(want string, tables store.Tables) {
		t.Helper()
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{Addons: []store.Tables{tables}})
		if err == nil {
			t.Fatal("the store was opened", s.Close())
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, have %v", want, err)
		}
	}
	open := func(o sqlite.Options) {
		t.Helper()
		s, err := sqlite.Open(t.Context(), path, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	wantOpenError("schema has version 0 for the marks, want 1: run procaas store migrate", marks(makeMarks))
	open(sqlite.Options{Migrate: true, Addons: []store.Tables{marks(makeMarks)}})

	if done, err := sqlite.Migrate(t.Context(), path, marks(makeMarks, growMarks+" insert into nowhere values (1);")); err == nil {
		t.Errorf("want an error, have %v", done)
	}
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	var grown int
	if err := db.QueryRow("select count(*) from pragma_table_info('marks') where name = 'weight'").Scan(&grown); err != nil || grown > 0 {
		t.Errorf("want nothing of the migration that failed, have %d, %v", grown, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	wantOpenError("schema has version 1 for the marks, want 2", marks(makeMarks, growMarks))
	done, err := sqlite.Migrate(t.Context(), path, marks(makeMarks, growMarks))
	if err != nil || len(done) != 2 || done[0].From != done[0].To || done[1] != (store.Migration{Of: "marks", From: 1, To: 2}) {
		t.Errorf("want only the second migration of the add-on made, have %v, %v", done, err)
	}

	wantOpenError("schema has version 2 for the marks, newer than 1, the last that this procaas knows", marks(makeMarks))
	wantOpenError("schema has version 2 for the marks, newer than 0, the last that this procaas knows", marks())
	open(sqlite.Options{}) // a program without the add-on
}

// The program of the release before opens a file whose tables were only added to, and the next one opens it again.
func TestNeighbouringReleasesShareAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	openAs := func(tables store.Tables) error {
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{Migrate: true, Addons: []store.Tables{tables}})
		if err != nil {
			return err
		}
		return s.Close()
	}
	first := marks(makeMarks)
	second := marks(makeMarks, "-- procaas: works with 1\n"+growMarks)
	third := marks(makeMarks, "-- procaas: works with 1\n"+growMarks, "alter table marks add column size integer;")
	for i, tables := range []store.Tables{first, second, first, second, third} {
		if err := openAs(tables); err != nil {
			t.Errorf("start %d: %v", i+1, err)
		}
	}
	if err := openAs(second); err == nil || !strings.Contains(err.Error(), "use a newer procaas") {
		t.Errorf("want tables of which nobody has said who can use them refused, have %v", err)
	}
}
