package enginetest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest/cluster"
	"procaas/engine/enginetest/patience"
	"procaas/engine/pgkit"
	"procaas/engine/sqlstore"
	"procaas/schemas"
)

// A Cluster is a private PostgreSQL server of a test.
type Cluster = cluster.Cluster

// A Stop is a way to stop a server. See package cluster.
type Stop = cluster.Stop

// These are the ways to stop a server.
const (
	StopFast      = cluster.StopFast
	StopImmediate = cluster.StopImmediate
)

// StartPostgres starts a separate server. Most tests share one with [Postgres].
func StartPostgres(ctx context.Context, settings ...string) (*Cluster, error) {
	return cluster.Start(ctx, settings...)
}

// OwnPostgres starts a server for one test, which ends with it.
func OwnPostgres(t testing.TB, settings ...string) *Cluster {
	t.Helper()
	return stopped(t)(StartPostgres(t.Context(), settings...))
}

// Needs skips a test that needs a program which the servers of this run are known not to have. PROCAAS_TEST_WITHOUT names these
// programs, and only the matrix of versions sets it: anywhere else, a program that is missing fails the test.
func Needs(t testing.TB, program string) {
	t.Helper()
	if slices.Contains(strings.Fields(os.Getenv("PROCAAS_TEST_WITHOUT")), program) {
		t.Skipf("these servers come without %s", program)
	}
}

// StandbyOf starts a standby of a server. It ends with the test. See [Needs].
func StandbyOf(t testing.TB, primary *Cluster) *Cluster {
	t.Helper()
	Needs(t, "pg_basebackup")
	return stopped(t)(primary.Standby(t.Context()))
}

// stopped stops a started server at the end of the test.
func stopped(t testing.TB) func(*Cluster, error) *Cluster {
	return func(c *Cluster, err error) *Cluster {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Stop(); err != nil {
				t.Errorf("stop PostgreSQL: %v", err)
			}
		})
		return c
	}
}

// Postgres returns the URL of an empty schema in a PostgreSQL cluster for tests. The schema is
// dropped at the end of the test.
func Postgres(t testing.TB) string {
	t.Helper()
	dsn, drop, err := ScratchPostgres(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := drop(); err != nil {
			t.Fatal(err)
		}
	})
	return dsn
}

// MigratedPostgres is [Postgres] with the tables of a store, for tests that need many: a database of its own, which is a copy of one
// that is migrated once. These tables refuse rows that no statement of the engine may write. The database is dropped at the end of the test.
func MigratedPostgres(t testing.TB) string {
	t.Helper()
	dsn, err := migratedOnce()
	if err != nil {
		t.Fatalf("migrate: %v", err)
	}
	server, err := sharedCluster()
	if err != nil {
		t.Fatal(err)
	}
	name := "test_" + strings.ToLower(rand.Text())
	if err := execute(t.Context(), server.URL, "create database "+name+" template "+dsn.Path[1:]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// A process that a test has killed may have left sessions.
		if err := execute(context.Background(), server.URL, "drop database "+name+" with (force)"); err != nil {
			t.Fatal(err)
		}
	})
	u := *dsn
	u.Path = "/" + name
	return u.String()
}

// migratedOnce makes the database that is copied, once for each server, tables and day, and returns its URL. Nobody can connect to it.
var migratedOnce = sync.OnceValues(func() (*url.URL, error) {
	const schema = "store"
	server, err := sharedCluster()
	if err != nil {
		return nil, err
	}
	u, err := within(server, schema)
	if err != nil {
		return nil, err
	}
	ctx, cancel := patience.Context(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, server.URL)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	var today time.Time
	if err := conn.QueryRow(ctx, "select date_trunc('day', now(), 'UTC')").Scan(&today); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(allMigrations()))
	name := fmt.Sprintf("migrated_%x_%s", sum[:8], today.UTC().Format("20060102"))
	u.Path = "/" + name
	// Packages are tested at the same time, and one of them makes it for all. One that is not whole has another name.
	var there bool
	if _, err := conn.Exec(ctx, "select pg_advisory_lock(hashtext($1))", name); err != nil {
		return nil, err
	}
	if err := conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", name).Scan(&there); err != nil || there {
		return u, err
	}
	const begun = "begun"
	for _, sql := range []string{"drop database if exists " + begun + " with (force)", "create database " + begun} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	made := *u
	made.Path = "/" + begun
	if err := migrate(ctx, made.String(), schema, today.UTC()); err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, "alter database "+begun+" allow_connections false")
	if err == nil {
		_, err = conn.Exec(ctx, "alter database "+begun+" rename to "+name)
	}
	return u, err
})

// migrate makes the tables of a store, and the partitions of a day and the two after it.
func migrate(ctx context.Context, dsn, schema string, day time.Time) (err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	for _, sql := range []string{"create schema " + schema, allMigrations()} {
		if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			return err
		}
	}
	for _, table := range []pgkit.Days{"history", "task_history"} {
		for i := range 3 {
			if err := table.Make(ctx, conn, day.AddDate(0, 0, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// execute runs a statement on a database.
func execute(ctx context.Context, dsn, sql string) error {
	ctx, cancel := patience.Context(ctx, time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return fmt.Errorf("test cluster: %w", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("test cluster: %w", err)
	}
	return nil
}

// within returns the URL of a schema of the server.
func within(server *Cluster, schema string) (*url.URL, error) {
	u, err := url.Parse(server.URL)
	if err != nil {
		return nil, fmt.Errorf("%s: want a URL such as postgres://127.0.0.1:5432/postgres: %w", cluster.Env, err)
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u, nil
}

// guards make a wrong statement an error in tests. Stores do without them, because the server reads constraints anew with
// each execution.
const guards = `
alter table runs
	add constraint runs_place check (place in
		('ready', 'running', 'parked', 'held', 'blocked', 'queued', 'scheduled', 'deferred', 'failed', 'away')),
	add constraint runs_owner check ((place = 'running') = (node <> 0));
alter table history add constraint history_status check (status in ('succeeded', 'cancelled', 'ignored'));
`

// allMigrations joins the migrations and the guards, and records that all were made.
var allMigrations = sync.OnceValue(func() string {
	var all strings.Builder
	var versions []string
	files, err := schemas.Postgres.ReadDir("postgres")
	if err != nil {
		panic("enginetest: " + err.Error()) // they are embedded
	}
	for _, f := range files {
		text, err := schemas.Postgres.ReadFile("postgres/" + f.Name())
		if err != nil {
			panic("enginetest: " + err.Error())
		}
		all.Write(text)
		version, _, _ := strings.Cut(f.Name(), "_")
		last, err := strconv.Atoi(version)
		if err != nil {
			panic("enginetest: " + err.Error())
		}
		versions = append(versions, fmt.Sprintf("(%d, true)", last))
	}
	all.WriteString(guards)
	versions = append(versions, fmt.Sprintf("(%d, true)", sqlstore.HorizonVersion)) // is no file, and does nothing to an empty audit
	fmt.Fprintf(&all, `
create table procaas_schema (id integer primary key generated by default as identity, version_id bigint not null,
	is_applied boolean not null, tstamp timestamp not null default now());
insert into procaas_schema (version_id, is_applied) values (0, true), %s;`, strings.Join(versions, ", "))
	return all.String()
})

// ScratchPostgres is [Postgres] for examples, which have no test. Call drop at the end.
func ScratchPostgres(ctx context.Context) (dsn string, drop func() error, err error) {
	server, err := sharedCluster()
	if err != nil {
		return "", nil, err
	}
	schema := "test_" + strings.ToLower(rand.Text())
	u, err := within(server, schema)
	if err != nil {
		return "", nil, err
	}
	if err := execute(ctx, server.URL, "create schema "+schema); err != nil {
		return "", nil, err
	}
	// ctx may have ended when it is dropped.
	return u.String(), func() error {
		return execute(context.WithoutCancel(ctx), server.URL, "drop schema "+schema+" cascade")
	}, nil
}

// sharedCluster starts the cluster of this process once. The cluster ends with the process; see
// [StartPostgres]. Keeping it here keeps its pipe open.
var sharedCluster = sync.OnceValues(func() (*Cluster, error) {
	if dsn := os.Getenv(cluster.Env); dsn != "" {
		return &Cluster{URL: dsn}, nil
	}
	return StartPostgres(context.Background())
})
