package sharding_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/pgkit"
	"procaas/engine/postgres"
	"procaas/handlers/sharding/shardmap"
)

// The drill of docs/operating/move-the-store.md: the store of the map moves to its standby. Answers
// come from memory all the time, no placement is lost, and changes reach other nodes afterwards.
func TestStoreOfTheMapMovesToAnotherServer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	old := enginetest.OwnPostgres(t)
	standby := enginetest.StandbyOf(t, old)
	dsn := fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable&target_session_attrs=read-write", old.Addr(), standby.Addr())
	if _, err := postgres.Migrate(ctx, dsn); err != nil {
		t.Fatal(err)
	}
	shard, err := logicalClusters[0]()
	if err != nil {
		t.Fatal(err)
	}
	declared := parseMaps(t, strings.ReplaceAll(`shard-maps:
  - id: moved-store
    key: user
    connect: {user: postgres, parameters: {sslmode: disable}}
    shards: [{id: s1, hosts: [{address: "HOST"}]}]
`, "HOST", shard.Addr()))
	var nodes [2]*shardmap.Map
	for i := range nodes {
		s, err := shardmap.Open(ctx, shardmap.Options{DSN: dsn, Maps: declared, Patience: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if nodes[i], err = s.Map("moved-store"); err != nil {
			t.Fatal(err)
		}
		if e, err := s.Enroll(ctx, nodes[i], "s1"); err != nil || len(e.Reasons) > 0 {
			t.Fatal(e, err)
		}
	}
	asked, writes := nodes[0], nodes[1]
	if _, err := writes.Place(ctx, "42", "s1", nil); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the key to be known", func() bool { _, known := asked.Cached("42"); return known })

	asking, stop := context.WithCancel(ctx)
	var both sync.WaitGroup
	both.Go(func() {
		for n := 0; asking.Err() == nil; n++ {
			if p, err := asked.Lookup(ctx, "42"); err != nil || p.Shard != "s1" {
				t.Errorf("question %d: %+v, %v", n, p, err)
				return
			}
			clock.Pause(asking, 5*time.Millisecond)
		}
	})
	acked := make(chan string, 10_000)
	both.Go(func() {
		defer close(acked)
		for n := 0; asking.Err() == nil && n < cap(acked); n++ {
			try, cancel := context.WithTimeout(asking, 2*time.Second)
			key := fmt.Sprint("key-", n)
			if p, err := writes.Place(try, key, "s1", nil); err == nil && p.State == shardmap.Ready {
				acked <- key
			}
			cancel()
			clock.Pause(asking, 5*time.Millisecond)
		}
	})
	more := func(n int) {
		until := len(acked) + n
		patience.Until(t, "writes", func() bool { return len(acked) >= until })
	}
	more(20)
	began := time.Now()
	// The server ends only when the standby has all of its log.
	if err := old.Halt(enginetest.StopFast); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(ctx); err != nil {
		t.Fatal(err)
	}
	more(1)
	t.Logf("no key could be placed for %v", time.Since(began).Round(time.Millisecond))
	more(20)
	stop()
	both.Wait()

	conn, err := pgx.Connect(ctx, standby.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	last := ""
	for key := range acked {
		var there bool
		if err := conn.QueryRow(ctx, "select exists (select from shard_placements where key = $1 and state = 'active')", key).
			Scan(&there); err != nil || !there {
			t.Fatalf("the acknowledged key %s is lost: %v", key, err)
		}
		last = key
	}
	patience.Until(t, "the other node to hear of "+last, func() bool { _, known := asked.Cached(last); return known })
}

// A store that was restored into another server has numbers of transactions that are ahead of it.
// Otherwise each look for changes would read all placements again.
func TestRestoredMapCountsAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	m := r.enroll("mail")
	if _, err := m.Place(t.Context(), "42", "s1", nil); err != nil {
		t.Fatal(err)
	}
	r.exec("map", `alter table shard_placements disable trigger all; update shard_placements set changed = '99999999999';
		alter table shard_placements enable trigger all`)
	if err := r.Apply(t.Context(), r.declared); err != nil {
		t.Fatal(err)
	}
	var ahead int
	r.ask("map", "select count(*) from shard_placements where changed > pg_current_xact_id()", &ahead)
	if ahead != 0 {
		t.Errorf("%d placements are ahead of the server", ahead)
	}
}

// The primary of the map's store is away for a while, and the address names its standby, too. Keys are placed again when the primary is
// back: the map keeps no connections to the standby, where it can write nothing.
func TestTheMapLeavesAStandbyOfItsStore(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	primary := enginetest.OwnPostgres(t)
	standby := enginetest.StandbyOf(t, primary)
	dsn := fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable", primary.Addr(), standby.Addr())
	if _, err := postgres.Migrate(ctx, dsn); err != nil {
		t.Fatal(err)
	}
	shard, err := logicalClusters[0]()
	if err != nil {
		t.Fatal(err)
	}
	s, err := shardmap.Open(ctx, shardmap.Options{DSN: dsn, Patience: time.Minute, Maps: parseMaps(t, fmt.Sprintf(`shard-maps:
  - id: left-standby
    key: user
    connect: {user: postgres, parameters: {sslmode: disable}}
    shards: [{id: s1, hosts: [{address: %q}]}]
`, shard.Addr()))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m, err := s.Map("left-standby")
	if err != nil {
		t.Fatal(err)
	}
	if e, err := s.Enroll(ctx, m, "s1"); err != nil || len(e.Reasons) > 0 {
		t.Fatal(e, err)
	}
	key := 0
	place := func() error {
		key++
		_, err := m.Place(ctx, fmt.Sprint(key), "s1", nil)
		return err
	}
	if err := place(); err != nil {
		t.Fatal(err)
	}
	if err := primary.Halt(enginetest.StopFast); err != nil {
		t.Fatal(err)
	}
	for range 20 { // more often than there are connections
		if err := place(); err == nil || pgkit.IsReadOnly(err) {
			t.Fatalf("want no connection to the standby, have %v", err)
		}
	}
	if err := primary.Start(ctx); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "keys to be placed again", func() bool { return place() == nil })
}
