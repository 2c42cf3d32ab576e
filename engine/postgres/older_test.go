package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest"
	"procaas/engine/postgres"
	"procaas/engine/sqlstore"
)

// earlier lets the tables look as if the last migrations had not been made, beginning with one that more than adds to them, and all
// nodes did not know them. It returns the last of them.
func earlier(t *testing.T, c *pgx.Conn) (version int64) {
	t.Helper()
	if err := c.QueryRow(t.Context(), "select max(version_id) from procaas_schema").Scan(&version); err != nil {
		t.Fatal(err)
	}
	run(t, c, "delete from procaas_schema where version_id >= $1", sqlstore.FloorVersion)
	run(t, c, "delete from schema_floor")
	run(t, c, "update nodes set knows = '{}'")
	return version
}

// While a node of an earlier release lives, neither a command nor a start changes the tables.
func TestMigrationIsRefusedWhileOlderNodesLive(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	s, c := open(t, dsn), connect(t, dsn)
	node, err := s.Join(t.Context(), "host-7", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.Migrate(t.Context(), dsn); err != nil {
		t.Errorf("want nothing to refuse while the tables are up to date, have %v", err)
	}
	newest := earlier(t, c)
	_, migrate := postgres.Migrate(t.Context(), dsn)
	_, start := postgres.Open(t.Context(), dsn, postgres.Options{Migrate: true})
	for what, err := range map[string]error{"migrate": migrate, "start": start} {
		for _, want := range []string{fmt.Sprintf("node %d (host-7, until ", node), fmt.Sprintf("version %d", newest),
			"Stop them all", "Nothing was changed"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: want %q, have %v", what, want, err)
			}
		}
	}
	var version int64
	if err := c.QueryRow(t.Context(), "select max(version_id) from procaas_schema").Scan(&version); err != nil || version >= newest {
		t.Errorf("want the version before %d, have %d, %v", newest, version, err)
	}
	run(t, c, "update leases set lease_until = clock_timestamp()")
	if _, err := postgres.Migrate(t.Context(), dsn); err != nil && strings.Contains(err.Error(), "alive") {
		t.Errorf("want a node whose lease has ended ignored, have %v", err)
	}
}

// A node that starts while another process migrates waits for it, and then does not join the newer
// tables. A node that slept during the migration does not renew its lease.
func TestOlderNodesDoNotUseNewerTables(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	s, c := open(t, dsn), connect(t, dsn)
	slept := join(t, s)
	before, err := s.Beat(t.Context(), slept, time.Minute, "")
	if err != nil {
		t.Fatal(err)
	}

	migration, err := connect(t, dsn).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migration.Exec(t.Context(), "select pg_advisory_xact_lock(hashtext(current_schema))"); err != nil {
		t.Fatal(err)
	}
	joined := make(chan error)
	go func() {
		_, err := s.Join(t.Context(), "late", time.Minute)
		joined <- err
	}()
	(&crew{t: t}).eventually("the node waits for the migration", func() (waits bool) {
		const waiting = `select exists (select from pg_locks where locktype = 'advisory' and not granted
			and database = (select oid from pg_database where datname = current_database())
			and objid = hashtext(current_schema)::bigint & 4294967295)`
		return c.QueryRow(t.Context(), waiting).Scan(&waits) == nil && waits
	})
	if _, err := migration.Exec(t.Context(), "insert into procaas_schema (version_id, is_applied) values (999, true)"); err != nil {
		t.Fatal(err)
	}
	if err := migration.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-joined; err == nil || !strings.Contains(err.Error(), "use a newer procaas") {
		t.Errorf("want the node refused, have %v", err)
	}
	if _, err := s.Beat(t.Context(), slept, time.Minute, ""); err == nil || !strings.Contains(err.Error(), "use a newer procaas") {
		t.Errorf("want the node that slept refused, have %v", err)
	}
	var beats int64
	if err := c.QueryRow(t.Context(), "select beats from leases where node = $1", slept).Scan(&beats); err != nil || beats != before.Beats {
		t.Errorf("want the lease not renewed after %d beats, have %d, %v", before.Beats, beats, err)
	}
}
