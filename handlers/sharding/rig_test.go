package sharding_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"procaas/dsl/tree"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/postgres"
	"procaas/engine/store"
	"procaas/handlers/sharding/language"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfer"
	"procaas/handlers/sharding/transfers"
)

// A rig is a service whose maps live in a schema of the test cluster, with two shards
// that are databases of their own there.
type rig struct {
	*shardmap.Service
	t      testing.TB
	shards map[string]string // URLs of their masters
	dsn    string

	now time.Time // of handlers; zero for that of the machine

	declared []*language.ShardMap
	docs     store.Documents // which have the transfers; nil for none

	transfers []transfers.ShardTransfer // without docs
}

const tables = `create table messages (user_id bigint, id bigint, folder text not null default '', body text,
	primary key (user_id, id, folder));
	create table labels (user_id bigint, id bigint, primary key (user_id, id))`

// newRig makes shards s1 and s2 of maps that text describes. HOST1 and HOST2 in it are
// their addresses, and CONNECT how to connect: each rig has databases of its own.
func newRig(t testing.TB, text string) *rig {
	t.Helper()
	var servers [2]*enginetest.Cluster
	for i, start := range logicalClusters {
		c, err := start()
		if err != nil {
			t.Fatal(err)
		}
		servers[i] = c
	}
	return newRigOn(t, text, servers)
}

// newRigOn is newRig on servers of the caller's.
func newRigOn(t testing.TB, text string, servers [2]*enginetest.Cluster) *rig {
	t.Helper()
	r := &rig{t: t, shards: map[string]string{}}
	database := "rig_" + strings.ToLower(rand.Text())
	if strings.Contains(text, "two-phase: true") {
		r.dsn = preparingDatabase(t, database+"_map")
		if _, err := postgres.Migrate(t.Context(), r.dsn); err != nil {
			t.Fatal(err)
		}
	} else {
		r.dsn = enginetest.MigratedPostgres(t)
	}
	r.shards["map"] = r.dsn
	if strings.Contains(text, "ADMIN") {
		text = strings.ReplaceAll(text, "ADMIN", "connect: {database: "+database+
			", user: postgres, admin: procaas, parameters: {sslmode: disable}}")
		for _, c := range servers {
			r.shards["server"] = c.URL
			r.exec("server", "do $$ begin create role procaas superuser login; exception when duplicate_object or unique_violation "+
				"then null; end $$")
		}
	}
	text = strings.ReplaceAll(text, "CONNECT", "connect: {database: "+database+", user: postgres, parameters: {sslmode: disable}}")
	for i, c := range servers {
		shard := fmt.Sprintf("s%d", i+1)
		r.shards[shard] = c.URL
		r.exec(shard, "create database "+database)
		r.shards[shard] = strings.Replace(c.URL, "/postgres?", "/"+database+"?", 1)
		t.Cleanup(func() {
			// it is the master still
			if strings.HasPrefix(r.shards[shard], strings.TrimSuffix(c.URL, "/postgres?sslmode=disable")) {
				r.shards[shard] = c.URL
				r.exec(shard, "drop database "+database+" with (force)")
			}
		})
		text = strings.ReplaceAll(text, fmt.Sprintf("HOST%d", i+1), c.Addr())
		r.exec(shard, tables)
	}
	r.declared = parseMaps(t, text)
	s, err := shardmap.Open(t.Context(), shardmap.Options{
		DSN: r.dsn, Maps: r.declared, Patience: time.Minute, Audit: postgres.WriteAudit,
		Transfers: func(ctx context.Context, shardMap string) ([]transfers.ShardTransfer, error) {
			if r.docs == nil {
				return r.transfers, nil
			}
			return transfers.ReadShardTransfers(ctx, r.docs, shardMap)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	r.Service = s
	return r
}

// preparingDatabase makes a database whose server prepares transactions.
func preparingDatabase(t testing.TB, name string) string {
	t.Helper()
	c, err := logicalClusters[0]()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, shards: map[string]string{"server": c.URL}}
	r.exec("server", "create database "+name)
	t.Cleanup(func() { r.exec("server", "drop database "+name+" with (force)") })
	return strings.Replace(c.URL, "/postgres?", "/"+name+"?", 1)
}

// logicalClusters are two servers for the shards of all tests. They end with the process.
var logicalClusters = []func() (*enginetest.Cluster, error){
	sync.OnceValues(logicalCluster), sync.OnceValues(logicalCluster),
}

func logicalCluster() (*enginetest.Cluster, error) {
	ctx, cancel := patience.Context(context.Background(), time.Minute)
	defer cancel()
	c, err := enginetest.StartPostgres(context.Background())
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, c.URL)
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{
		"wal_level": "logical", "max_prepared_transactions": "20", "fsync": "off",
		"shared_buffers": "'32MB'",
	} {
		if _, err := conn.Exec(ctx, "alter system set "+name+" = "+value); err != nil {
			return nil, err
		}
	}
	if err := conn.Close(ctx); err != nil {
		return nil, err
	}
	if err := c.Restart(ctx, enginetest.StopFast); err != nil {
		return nil, err
	}
	for { // the server from before may answer for a moment still
		var level string
		conn, err := pgx.Connect(ctx, c.URL)
		if err == nil {
			err = conn.QueryRow(ctx, "show wal_level").Scan(&level)
			_ = conn.Close(ctx)
		}
		if err == nil && level == "logical" {
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("wal_level is %q: %w", level, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func parseMaps(t testing.TB, text string) []*language.ShardMap {
	t.Helper()
	return language.ShardMapsOf(enginetest.LoadIn(t, tree.NewLanguage(language.Section()), text))
}

func (r *rig) exec(shard, sql string, args ...any) {
	r.t.Helper()
	if err := r.try(shard, sql, args...); err != nil {
		r.t.Fatalf("%s: %v", shard, err)
	}
}

// version returns the major version of the server of a shard.
func (r *rig) version(shard string) (major int) {
	r.t.Helper()
	ctx, cancel := patience.Context(r.t.Context(), time.Minute)
	defer cancel()
	c, err := pgx.Connect(ctx, r.shards[shard])
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(ctx))
	if err := c.QueryRow(ctx, "select current_setting('server_version_num')::int / 10000").Scan(&major); err != nil {
		r.t.Fatal(err)
	}
	return major
}

func (r *rig) try(shard, sql string, args ...any) error {
	ctx, cancel := patience.Context(context.WithoutCancel(r.t.Context()), time.Minute)
	defer cancel()
	c, err := pgx.Connect(ctx, r.shards[shard])
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	if len(args) == 0 {
		_, err = c.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	} else {
		_, err = c.Exec(ctx, sql, args...)
	}
	return err
}

func (r *rig) themap(id string) *shardmap.Map {
	r.t.Helper()
	m, err := r.Map(id)
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

func (r *rig) enroll(id string) *shardmap.Map {
	r.t.Helper()
	m := r.themap(id)
	for _, shard := range []string{"s1", "s2"} {
		e, err := r.Enroll(r.t.Context(), m, shard)
		if err != nil || len(e.Reasons) > 0 {
			r.t.Fatalf("enroll %s: %v %v", shard, e.Reasons, err)
		}
	}
	return m
}

// guard calls the guard on a shard in a transaction of its own, and returns its SQLSTATE.
func (r *rig) guard(shard string, p shardmap.Placement) string {
	r.t.Helper()
	return sqlState(r.t, r.try(shard, "select procaas.guard($1, $2, $3)", p.Map, p.Key, p.Epoch))
}

func sqlState(t testing.TB, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var failure *pgconn.PgError
	if !errors.As(err, &failure) {
		t.Fatal(err)
	}
	return failure.Code
}

// ask reads one value of a shard.
func (r *rig) ask(shard, sql string, into any) {
	r.t.Helper()
	c, err := pgx.Connect(r.t.Context(), r.shards[shard])
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(r.t.Context()))
	if err := c.QueryRow(r.t.Context(), sql).Scan(into); err != nil {
		r.t.Fatalf("%s: %s: %v", shard, sql, err)
	}
}

// where returns the condition of the rows of a placement in a table, as s1 has it.
func (r *rig) where(m *shardmap.Map, table *language.ShardTable, placement string) string {
	r.t.Helper()
	rows, ok, err := m.Rows(r.t.Context(), table, placement)
	if err != nil {
		r.t.Fatal(err)
	}
	if !ok {
		return "false"
	}
	where, err := transfer.Condition(r.t.Context(), r.dial("s1"), rows)
	if err != nil {
		r.t.Fatal(err)
	}
	return where
}

// dial returns a connection to a shard, or to the map, which ends with the test.
func (r *rig) dial(shard string) *pgx.Conn {
	r.t.Helper()
	c, err := pgx.Connect(r.t.Context(), r.shards[shard])
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close(context.Background()) }) // its server may be gone
	return c
}
