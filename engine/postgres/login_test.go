package postgres_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/postgres"
)

// TestAPasswordMayChangeWhileANodeRuns changes a password on the server and in the password file, and
// ends all connections.
func TestAPasswordMayChangeWhileANodeRuns(t *testing.T) {
	t.Parallel()
	db := enginetest.OwnPostgres(t)
	admin := connect(t, db.URL)
	var hba string
	if err := admin.QueryRow(t.Context(), "show hba_file").Scan(&hba); err != nil {
		t.Fatal(err)
	}
	run(t, admin, "create role app login password 'one'")
	run(t, admin, "create schema app authorization app")
	run(t, admin, fmt.Sprintf("copy (values ('host all app all scram-sha-256'), ('host all all all trust')) to '%s'", hba))
	run(t, admin, "select pg_reload_conf()")
	file := filepath.Join(t.TempDir(), "pgpass")
	keep := func(password string) {
		if err := os.WriteFile(file, []byte("*:*:*:app:"+password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keep("one")
	u, err := url.Parse(with(t, db.URL, "passfile", file))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User("app")
	s := open(t, u.String())
	accept(t, s, intake("a"))

	run(t, admin, "alter role app password 'two'")
	run(t, admin, "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'app'")
	patience.Until(t, "the server refuses the login", func() bool {
		_, err := s.Nodes(t.Context())
		return err != nil && strings.Contains(err.Error(), "password authentication failed")
	})
	keep("two")
	patience.Until(t, "the node logs in with the new password", func() bool { _, err := s.Nodes(t.Context()); return err == nil })
	accept(t, s, intake("b"))
}

func TestOpenRefusesADatabaseThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	db := enginetest.OwnPostgres(t)
	run(t, connect(t, db.URL), "create database ascii encoding 'SQL_ASCII' template template0 lc_collate 'C' lc_ctype 'C'")
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/ascii"
	_, err = postgres.Open(t.Context(), u.String(), postgres.Options{Migrate: true})
	if err == nil || !strings.Contains(err.Error(), "SQL_ASCII, want UTF8") || postgres.IsAway(err) {
		t.Errorf("want the encoding refused for good, have %v", err)
	}
	if _, err := postgres.Migrate(t.Context(), u.String()); err == nil || !strings.Contains(err.Error(), "want UTF8") {
		t.Errorf("want no tables made, have %v", err)
	}
}

func TestErrorsOfAPoolerThatDoNotPass(t *testing.T) {
	t.Parallel()
	for message, away := range map[string]bool{
		"unsupported startup parameter: search_path": false,
		"no such database: orders":                   false,
		"no such user":                               false,
		"query_wait_timeout":                         true,
		"server login has been failing, try again":   true,
	} {
		if have := postgres.IsAway(&pgconn.PgError{Code: "08P01", Severity: "FATAL", Message: message}); have != away {
			t.Errorf("%s: want away %t, have %t", message, away, have)
		}
	}
}
