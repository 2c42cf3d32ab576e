package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/postgres"
)

// TestAPasswordMayChangeWhileANodeRuns changes a password on the server and where the node reads it, and ends all connections, while
// events come.
func TestAPasswordMayChangeWhileANodeRuns(t *testing.T) {
	t.Parallel()
	db := enginetest.OwnPostgres(t)
	admin := connect(t, db.URL)
	var hba string
	if err := admin.QueryRow(t.Context(), "show hba_file").Scan(&hba); err != nil {
		t.Fatal(err)
	}
	run(t, admin, fmt.Sprintf("copy (values ('host all postgres all trust'), ('host all all all scram-sha-256')) to '%s'", hba))
	run(t, admin, "select pg_reload_conf()")
	file := filepath.Join(t.TempDir(), "password")
	for role, from := range map[string]struct{ param, value, form string }{
		"passfile": {"passfile", file + "-pgpass", "*:*:*:passfile:%s\n"},
		"file":     {"password_file", file, "%s\n"},
		"command":  {"password_command", "cat '" + file + "-command'", "%s"},
	} {
		t.Run(role, func(t *testing.T) {
			place := strings.Trim(strings.TrimPrefix(from.value, "cat "), "'")
			rotate(t, db.URL, role, with(t, db.URL, from.param, from.value), func(password string) {
				if err := os.WriteFile(place, fmt.Appendf(nil, from.form, password), 0o600); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// rotate changes the password of a role under load. The address says where the node reads it, and keep writes it there.
func rotate(t *testing.T, server, role, address string, keep func(password string)) {
	t.Helper()
	admin := connect(t, server)
	run(t, admin, fmt.Sprintf("create role %s login password 'one'", role))
	run(t, admin, fmt.Sprintf("create schema %[1]s authorization %[1]s", role))
	keep("one")
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	s := open(t, u.String())
	accept(t, s, intake("a"))

	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	acknowledged := make(chan int, 1)
	load.Go(func() {
		n := 0
		for ctx.Err() == nil {
			if _, err := s.Accept(ctx, 0, []model.Intake{intake(fmt.Sprint("load", n))}); err == nil {
				n++
			}
		}
		acknowledged <- n
	})
	run(t, admin, fmt.Sprintf("alter role %s password 'two'", role))
	run(t, admin, "select pg_terminate_backend(pid) from pg_stat_activity where usename = $1", role)
	patience.Until(t, "the server refuses the login", func() bool {
		_, err := s.Nodes(t.Context())
		return err != nil && strings.Contains(err.Error(), "password authentication failed")
	})
	keep("two")
	patience.Until(t, "the node logs in with the new password", func() bool { _, err := s.Nodes(t.Context()); return err == nil })
	accept(t, s, intake("b"))
	stop()
	load.Wait()
	var have int
	if err := admin.QueryRow(t.Context(), fmt.Sprintf("select count(*) from %s.runs", role)).Scan(&have); err != nil {
		t.Fatal(err)
	}
	if want := <-acknowledged + 2; have < want {
		t.Errorf("have %d runs, want the %d that were acknowledged", have, want)
	}
}

// TestPasswordsThatCannotBeReadSayWhy opens stores whose address names what gives no password.
func TestPasswordsThatCannotBeReadSayWhy(t *testing.T) {
	t.Parallel()
	for params, want := range map[string]string{
		"password_file=/nowhere/to/be/found": "password_file in the address of the store: open /nowhere",
		"password_command=" + strings.ReplaceAll(url.QueryEscape("echo it is sealed >&2; exit 3"), "+", "%20"): "exit status 3: it is sealed",
		"password_command=true": "want the password, have nothing",
		"password_command=true&password_file=" + url.PathEscape("/etc/passwd"): "want one of password_file and password_command",
	} {
		_, err := postgres.Open(t.Context(), "postgres://app@127.0.0.1:1/x?"+params, postgres.Options{})
		if err == nil || !strings.Contains(err.Error(), want) || postgres.IsAway(err) {
			t.Errorf("%s: have %v, want %q for good", params, err, want)
		}
	}
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
