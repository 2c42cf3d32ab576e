package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/postgres"
	"procaas/engine/store"
)

// examined returns what [postgres.Examine] says, by name, and what is not fine, in order.
func examined(t *testing.T, dsn string) (all map[string]store.Check, wrong string) {
	t.Helper()
	checks, err := postgres.Examine(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	all = map[string]store.Check{}
	for _, c := range checks {
		all[c.Name] = c
		if c.Level != store.CheckFine {
			wrong += fmt.Sprintf("%s %s: %s\n", c.Level, c.Name, c.Found)
			if c.Remedy == "" {
				t.Errorf("%s has no remedy", c.Name)
			}
		}
	}
	return all, wrong
}

// TestExamineNamesWhatKeepsNodesFromWorking has one server on which an administrator changes one thing after the other.
func TestExamineNamesWhatKeepsNodesFromWorking(t *testing.T) {
	t.Parallel()
	server := enginetest.OwnPostgres(t)
	admin := connect(t, server.URL)
	run(t, admin, "create role app login")
	run(t, admin, "create schema app authorization app")
	app := strings.Replace(server.URL, "postgres@", "app@", 1)

	all, wrong := examined(t, app)
	if wrong != "" {
		t.Errorf("want nothing wrong with an ordinary server, have\n%s", wrong)
	}
	for name, want := range map[string]string{
		"tables": "none yet", "partitions": "rolled back", "skip locked": "rolled back", "notifications": "came back", "role": "app", "schema": "app",
	} {
		if !strings.Contains(all[name].Found, want) {
			t.Errorf("%s: want %q, have %q", name, want, all[name].Found)
		}
	}
	var left int
	if err := admin.QueryRow(t.Context(), "select count(*) from pg_class where relname like 'procaas_%'").Scan(&left); err != nil || left > 0 {
		t.Errorf("want nothing left behind, have %d tables, %v", left, err)
	}

	// The remedy of each finding is what the next line does.
	for _, c := range []struct{ harm, want, mend string }{
		{"alter role app set default_transaction_read_only = on", "refused writing: transactions are read-only", "alter role app reset default_transaction_read_only"},
		{"alter role app set synchronous_commit = off", "refused durability: synchronous_commit is off", "alter role app reset synchronous_commit"},
		{"alter role app set search_path = nowhere", "refused schema: no schema of the search_path exists", "alter role app reset search_path"},
		{"alter schema app owner to postgres; grant usage on schema app to app", "refused schema: the role may not create tables in the schema app",
			"grant create on schema app to app"},
		{"alter role app connection limit 5", "warning connections: 4 of 5 are free for this role; a node opens up to 13, and add-ons more", "alter role app connection limit -1"},
		{"alter role app set default_transaction_isolation = 'serializable'", "warning default_transaction_isolation: transactions are serializable",
			"alter role app reset default_transaction_isolation"},
		{"alter role app set log_statement = 'all'", "warning log_statement: the server logs statements (all)", "alter role app reset log_statement"},
		{"alter role app valid until 'tomorrow'", "warning role: the password of app ends at", "alter role app valid until 'infinity'"},
		// As on a server that has the function, and locks nothing.
		{"create function app.pg_try_advisory_xact_lock(int) returns boolean language sql as 'select true'",
			"refused advisory locks: two connections got the same lock at once", "drop function app.pg_try_advisory_xact_lock(int)"},
		{"alter role app superuser", "warning role: app is a superuser", "alter role app nosuperuser"},
	} {
		run(t, admin, c.harm)
		patience.Until(t, "the server to end the connections of the last examination, which it counts", func() bool {
			var left int
			err := admin.QueryRow(t.Context(), "select count(*) from pg_stat_activity where usename = 'app'").Scan(&left)
			return err == nil && left == 0
		})
		if _, wrong := examined(t, app); !strings.Contains(wrong, c.want) {
			t.Errorf("after %s: want %q, have\n%s", c.harm, c.want, wrong)
		}
		run(t, admin, c.mend)
		if _, wrong := examined(t, app); wrong != "" {
			t.Errorf("after %s: want nothing wrong, have\n%s", c.mend, wrong)
		}
	}

	open(t, app)
	run(t, admin, "select pg_create_physical_replication_slot('nobody_reads', true)")
	all, wrong = examined(t, app)
	for check, want := range map[string]string{
		"tables": "schema has version", "encryption": "not encrypted", "size": "runs stored 0 MiB a day", "log": "MiB of its log for replication slots at most",
	} {
		if wrong != "" || !strings.Contains(all[check].Found, want) {
			t.Errorf("%s: want %q in a store that is fine, have %v\n%s", check, want, all[check], wrong)
		}
	}
	run(t, admin, "select pg_drop_replication_slot('nobody_reads')")
	run(t, admin, "update app.procaas_schema set version_id = 9000 where version_id = (select max(version_id) from app.procaas_schema)")
	if _, wrong := examined(t, app); !strings.Contains(wrong, "refused tables: schema has version 9000, newer than") {
		t.Errorf("want newer tables refused, have\n%s", wrong)
	}
	run(t, admin, "alter table app.runs owner to postgres")
	if _, wrong := examined(t, app); !strings.Contains(wrong, "refused owner: the role does not own 1 tables, such as runs") {
		t.Errorf("want tables of another role refused, have\n%s", wrong)
	}
}

// TestExamineNamesWhoHoldsOthersUp has a session that keeps a lock, and a table that is not cleaned up.
func TestExamineNamesWhoHoldsOthersUp(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	admin, holder := connect(t, dsn), connect(t, dsn)
	run(t, admin, "create table held (id int) with (autovacuum_enabled = false)")
	run(t, holder, "begin; lock table held")
	waits := connect(t, dsn)
	waited := make(chan error, 1)
	go func() {
		_, err := waits.Exec(context.Background(), "select from held")
		waited <- err
	}()
	var wrong string
	patience.Until(t, "the session that waits", func() bool {
		_, wrong = examined(t, dsn)
		return strings.Contains(wrong, "warning waiting: 1 sessions wait for a lock of process")
	})
	run(t, admin, fmt.Sprintf("select pg_terminate_backend(%d)", holder.PgConn().PID()))
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	if _, wrong := examined(t, dsn); strings.Contains(wrong, "waiting") {
		t.Errorf("want nobody to wait, have\n%s", wrong)
	}

	run(t, waits, "insert into held select generate_series(1, 110000); delete from held")
	if err := waits.Close(t.Context()); err != nil { // it tells its counts
		t.Fatal(err)
	}
	patience.Until(t, "the dead rows", func() bool {
		_, wrong = examined(t, dsn)
		return strings.Contains(wrong, "warning growth: the table held has 110000 dead rows, and 0 live ones")
	})
	patience.Until(t, "the end of them", func() bool {
		run(t, admin, "vacuum held") // it leaves rows that transactions of other tests may still see
		_, wrong = examined(t, dsn)
		return !strings.Contains(wrong, "growth")
	})
}
