package sharding_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/postgres"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfers"
)

// A standby is promoted that has not got the latest fences: it takes no writes before they
// were compared with the map, and then only those of keys that live there. Another map, which is not
// declared any more, has fences in the same database: that blocks only its own writers.
func TestPromotedMasterTakesNoWritesBeforeItsFencesWereCompared(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	primary, err := logicalCluster()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = primary.Stop() }()
	standby := enginetest.StandbyOf(t, primary)
	other, err := logicalClusters[1]()
	if err != nil {
		t.Fatal(err)
	}
	dsn := enginetest.Postgres(t)
	if _, err := postgres.Migrate(ctx, dsn); err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("HOST1", primary.Addr(), "STANDBY", standby.Addr(), "HOST2", other.Addr()).Replace(`shard-maps:
  - id: mail
    key: user
    connect: {user: postgres, parameters: {sslmode: disable}}
    shards:
      - {id: s1, hosts: [{address: "HOST1", dc: a}, {address: "STANDBY", dc: b}]}
      - {id: s2, hosts: [{address: "HOST2"}]}
  - id: oldmail
    key: user
    connect: {user: postgres, parameters: {sslmode: disable}}
    shards: [{id: old, hosts: [{address: "HOST1", dc: a}, {address: "STANDBY", dc: b}]}]
`)
	declared := parseMaps(t, text)
	s, err := shardmap.Open(ctx, shardmap.Options{DSN: dsn, Maps: declared, Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for id, shard := range map[string]string{"oldmail": "old", "mail": "s1"} {
		m, err := s.Map(id)
		if err != nil {
			t.Fatal(err)
		}
		if e, err := s.Enroll(ctx, m, shard); err != nil || len(e.Reasons) > 0 {
			t.Fatal(e, err)
		}
		if _, err := m.Place(ctx, "stays", shard, nil); err != nil {
			t.Fatal(err)
		}
	}
	// From now on nobody compares the fences of oldmail.
	if err := s.Apply(ctx, declared[:1]); err != nil {
		t.Fatal(err)
	}
	m, err := s.Map("mail")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"moves", "moving"} {
		if _, err := m.Place(ctx, key, "s1", nil); err != nil {
			t.Fatal(err)
		}
	}
	follower := connect(t, standby.URL)
	defer follower.Close(context.WithoutCancel(ctx))
	fences := func() (n int) {
		if err := follower.QueryRow(ctx, "select count(*) from procaas.fences").Scan(&n); err != nil {
			n = 0
		}
		return n
	}
	patience.Until(t, "the standby to have the fences", func() bool { return fences() == 4 })
	patience.Until(t, "a replica to be known", func() bool {
		a, err := s.Resolve(ctx, "mail", transfers.ShardQuestion{Key: "stays", Mode: transfers.ShardReplica, DC: "b"})
		return err == nil && a.Hosts[0].Address == standby.Addr() && a.Hosts[0].Role == "replica"
	})

	// What follows never reaches the standby: the fences of a key that has moved, of one
	// that is frozen for a switch, and of a new one.
	execute(t, follower, "alter system set primary_conninfo = ''")
	execute(t, follower, "select pg_reload_conf()")
	patience.Until(t, "the standby to follow nobody", func() bool {
		var receivers int
		return follower.QueryRow(ctx, "select count(*) from pg_stat_wal_receiver").Scan(&receivers) == nil && receivers == 0
	})
	moved, err := m.BeginTransfer(ctx, shardmap.Begin{Key: "moves", Target: "s2", Transfer: "t1"})
	if err == nil {
		err = m.Switch(ctx, moved)
	}
	if err != nil {
		t.Fatal(err)
	}
	moving, err := m.BeginTransfer(ctx, shardmap.Begin{Key: "moving", Target: "s2", Transfer: "t2"})
	if err != nil {
		t.Fatal(err)
	}
	master := connect(t, primary.URL)
	for _, f := range []shardmap.Fence{
		{Map: "mail", Key: "moves", Epoch: moved.Next, State: shardmap.Moved, Target: "s2"},
		{Map: "mail", Key: "moving", Epoch: moving.Epoch, State: shardmap.Frozen, Owner: moving.Owner},
	} {
		if err := shardmap.WriteFence(ctx, master, f); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Place(ctx, "new", "s1", nil); err != nil {
		t.Fatal(err)
	}
	_ = master.Close(ctx)
	if err := primary.Halt(enginetest.StopImmediate); err != nil {
		t.Fatal(err)
	}

	// In one session from before the promotion on, so that nothing comes between.
	promoted := connect(t, standby.URL)
	defer promoted.Close(context.WithoutCancel(ctx))
	execute(t, promoted, "select pg_promote()")
	guardOf := func(shardMap, key string, epoch int64) string {
		_, err := promoted.Exec(ctx, "select procaas.guard($1, $2, $3)", shardMap, key, epoch)
		return sqlState(t, err)
	}
	guard := func(key string, epoch int64) string { return guardOf("mail", key, epoch) }
	if have := guard("moves", 1); have == "" {
		t.Error("the promoted master takes a write of a key that has moved")
	}
	patience.Until(t, "the promoted master to take writes", func() bool { return guard("stays", 1) == "" })
	for _, c := range []struct {
		key   string
		epoch int64
		want  string
	}{{"moves", 1, "PC001"}, {"moving", 1, ""}, {"moving", moving.Next, "PC001"}, {"new", 1, ""}, {"none", 1, "PC001"}} {
		if have := guard(c.key, c.epoch); have != c.want {
			t.Errorf("guard of %s at epoch %d: %q, want %q", c.key, c.epoch, have, c.want)
		}
	}
	if have := guardOf("oldmail", "stays", 1); have != "PC002" {
		t.Errorf("guard of a map that is not declared any more: %q, want PC002", have)
	}
	if err := m.Switch(ctx, moving); err == nil {
		t.Error("a transfer switched whose freeze was lost")
	}
	patience.Until(t, "the promoted host to be the master", func() bool {
		a, err := s.Resolve(ctx, "mail", transfers.ShardQuestion{Key: "stays"})
		return err == nil && a.Hosts[0].Address == standby.Addr()
	})
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
