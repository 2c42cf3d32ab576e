package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	shardingremote "procaas/handlers/sharding/remote"
	"procaas/handlers/sharding/transfers"
)

// TestTransferSurvivesKill9 kills a serving node in the middle of the transfer of a
// slot that is written to, and starts it again: the transfer ends, and every
// acknowledged write is where the map says.
func TestTransferSurvivesKill9(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), 5*time.Minute)
	defer cancel()
	shards, dir := twoShards(t), t.TempDir()
	flow, err := os.ReadFile("../../pipelines/sharding/transfer.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(flow), "shard.plan:\n",
		"shard.plan:\n              deadline: 1m\n              ping: 30s\n              lock: 5s\n", 1)
	files := map[string]string{"transfer.yaml": text, "map.yaml": fmt.Sprintf(`shard-maps:
  - id: mail
    key: user
    strategy: slots
    slots: 4
    tables: [{table: mail, key: user_id}]
    connect: {database: postgres, user: postgres, parameters: {sslmode: disable}}
    shards: [{id: s1, slots: 0-3, hosts: [{address: %q}]}, {id: s2, hosts: [{address: %q}]}]
`, shards[0].Addr(), shards[1].Addr())}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := &crashing{t: t, store: enginetest.MigratedPostgres(t), listen: freeAddress(t), pipelines: dir}
	c.client = client.New("http://"+c.listen, "")
	server := c.start(ctx)
	for _, s := range []string{"s1", "s2"} {
		eventually(t, s+" to be enrolled", func() bool {
			e, err := shardingremote.EnrollShard(ctx, c.client, "mail", s)
			return err == nil && len(e.Reasons) == 0
		})
	}
	var home transfers.ShardAnswer
	eventually(t, "the home of the key", func() bool {
		home, err = shardingremote.ResolveShard(ctx, c.client, "mail", transfers.ShardQuestion{Key: "u42"})
		return err == nil && home.Shard == "s1"
	}) // a host that answered late counts as away for a moment
	var acked atomic.Int64
	writing, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for writing.Err() == nil {
			if writeMail(writing, c.client, acked.Load()+1) == nil {
				acked.Add(1)
			}
			select {
			case <-writing.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	if _, err := c.client.SubmitEvent(ctx, wire.Event{
		Type: "shard-transfer", ID: "move", Source: "test",
		Payload: map[string]any{"map": "mail", "key": home.Placement, "target": "s2", "grace": "0s"},
	}); err != nil {
		t.Fatal(err)
	}
	transfer := func() (last transfers.ShardTransfer) {
		all, err := shardingremote.ShardTransfers(ctx, c.client, "mail")
		if err == nil && len(all) > 0 {
			last = all[0]
		}
		return last
	}
	for _, step := range []string{"copy", "freeze"} {
		eventually(t, "the step "+step, func() bool {
			s := transfer()
			return s.Step == step || s.Switched
		})
		server.kill()
		server = c.start(ctx)
	}
	eventually(t, "the end of the transfer", func() bool { return transfer().State == transfers.TransferDone })
	before := acked.Load()
	eventually(t, "writes on the other shard", func() bool { return acked.Load() > before+20 })
	stop()
	<-ended
	counts := func(shard int, sql string) (n int64) {
		conn, err := pgx.Connect(ctx, shards[shard].URL)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx)
		if err := conn.QueryRow(ctx, sql).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := counts(1, fmt.Sprintf("select count(*) from mail where user_id = 'u42' and id <= %d", acked.Load())); n != acked.Load() {
		t.Errorf("%d of %d acknowledged writes are on s2", n, acked.Load())
	}
	slot := strings.TrimPrefix(home.Placement, "#")
	if n := counts(0, "select count(*) from mail where hashtextextended(user_id, 0) & 3 = "+slot); n != 0 {
		t.Errorf("%d rows of the slot are left on s1", n)
	}
	if n := counts(0, "select count(*) from mail") + counts(1, "select count(*) from mail where id > 100000"); n != 20000 {
		t.Errorf("there are %d of 20000 old rows", n)
	}
	for i := range 2 {
		if n := counts(i, "select count(*) from pg_replication_slots"); n != 0 {
			t.Errorf("%d slots are left on s%d", n, i+1)
		}
	}
	server.terminate()
}

// twoShards starts two servers with a table of 500 users.
func twoShards(t *testing.T) (out [2]*enginetest.Cluster) {
	t.Helper()
	for i := range out {
		c := enginetest.OwnPostgres(t, "wal_level = logical", "shared_buffers = '32MB'")
		out[i] = c
		conn, err := pgx.Connect(t.Context(), c.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		if _, err := conn.Exec(t.Context(), "create table mail (user_id text, id bigint, body text, primary key (user_id, id))"); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if _, err := conn.Exec(t.Context(),
				"insert into mail select 'u' || i % 500, 100000 + i, repeat('x', 200) from generate_series(1, 20000) i"); err != nil {
				t.Fatal(err)
			}
		}
	}
	return out
}

// writeMail writes one mail of user u42 as a service does: asks where, and calls the guard.
func writeMail(ctx context.Context, client *client.Client, id int64) error {
	a, err := shardingremote.ResolveShard(ctx, client, "mail", transfers.ShardQuestion{Key: "u42", Mode: transfers.ShardMaster})
	if err != nil {
		return err
	}
	if _, err := url.Parse(a.DSN); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, a.DSN)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select procaas.guard('mail', $1, $2)", a.Placement, a.Epoch); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "insert into mail values ('u42', $1, 'new') on conflict do nothing", id)
		return err
	})
}
