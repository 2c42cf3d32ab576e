package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"procaas/engine/enginetest"
	"procaas/engine/postgres"
	"procaas/engine/store"
)

// worksWith is a migration that only adds to tables.
func worksWith(version int, sql string) string {
	return fmt.Sprintf("-- procaas: works with %d\n%s", version, sql)
}

// openAs opens a store as the program of one release does.
func openAs(t *testing.T, dsn string, tables store.Tables) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{Migrate: true, Addons: []store.Tables{tables}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Nodes of two neighbouring releases work on one store, forward and back. Tables that the older one cannot use wait for its end.
func TestNeighbouringReleasesShareTables(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	beats := func(s *postgres.Store, node int64) error {
		_, err := s.Beat(t.Context(), node, time.Hour, "")
		return err
	}
	first := marks(makeMarks)
	second := marks(makeMarks, worksWith(1, growMarks))
	third := marks(makeMarks, worksWith(1, growMarks), worksWith(2, "alter table marks drop column run;"))

	older := openAs(t, dsn, first)
	olderNode := join(t, older)
	newer := openAs(t, dsn, second) // it migrates beside the older node
	newerNode := join(t, newer)
	again := openAs(t, dsn, first) // back
	for what, err := range map[string]error{
		"older": beats(older, olderNode), "newer": beats(newer, newerNode), "older that starts": beats(again, join(t, again)),
	} {
		if err != nil {
			t.Errorf("%s: want both releases at work, have %v", what, err)
		}
	}

	_, err := postgres.Migrate(t.Context(), dsn, third)
	for _, want := range []string{fmt.Sprintf("node %d (", olderNode), "nodes must know version 2", "Nothing was changed"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, have %v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), fmt.Sprintf("node %d (", newerNode)) {
		t.Errorf("want the node that may stay not named, have %v", err)
	}
	if err := errors.Join(beats(older, olderNode), again.Close()); err != nil {
		t.Errorf("want the refusal to change nothing, have %v", err)
	}

	c := connect(t, dsn)
	run(t, c, "update leases set lease_until = clock_timestamp() where node <> $1", newerNode)
	if _, err := postgres.Migrate(t.Context(), dsn, third); err != nil {
		t.Fatalf("want tables that all live nodes can use, have %v", err)
	}
	if err := beats(newer, newerNode); err != nil {
		t.Errorf("want the release before to stay, have %v", err)
	}
	if err := beats(older, olderNode); err == nil || !strings.Contains(err.Error(), "use a newer procaas") {
		t.Errorf("want the release before that refused, have %v", err)
	}
	if _, err := postgres.Open(t.Context(), dsn, postgres.Options{Addons: []store.Tables{first}}); err == nil {
		t.Error("the release before that has opened the store")
	}

	// A migration of which nobody has said who can live with it.
	run(t, c, "insert into procaas_schema_marks (version_id, is_applied) values (4, true)")
	if err := beats(newer, newerNode); err == nil || !strings.Contains(err.Error(), "use a newer procaas") {
		t.Errorf("want tables of unknown kind refused, have %v", err)
	}
}

// A migration lets others through while a transaction keeps it from a table.
func TestMigrationsDoNotBlockWhoComesBehind(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	older := openAs(t, dsn, marks(makeMarks))
	node := join(t, older)
	long, err := connect(t, dsn).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := long.Exec(t.Context(), "select count(*) from marks"); err != nil {
		t.Fatal(err)
	}
	migrated := make(chan error, 1)
	go func() {
		_, err := postgres.Migrate(t.Context(), dsn, marks(makeMarks, worksWith(1, growMarks)))
		migrated <- err
	}()
	c := connect(t, dsn)
	const waits = `select exists (select from pg_locks where not granted and relation = to_regclass('marks')
		and database = (select oid from pg_database where datname = current_database()))`
	for _, want := range []bool{true, false, true} {
		(&crew{t: t}).eventually(fmt.Sprintf("a migration waits: %v", want), func() (have bool) {
			return c.QueryRow(t.Context(), waits).Scan(&have) == nil && have == want
		})
	}
	var marks int
	if err := c.QueryRow(t.Context(), "select count(*) from marks").Scan(&marks); err != nil {
		t.Error(err)
	}
	if _, err := older.Beat(t.Context(), node, time.Hour, ""); err != nil {
		t.Error(err)
	}
	if err := long.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Error(err)
	}
}
