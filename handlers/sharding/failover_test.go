package sharding_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/handlers/sharding/transfers"
)

// A pair is a master and the standby that replaces it.
type pair struct {
	master, standby *enginetest.Cluster
}

func newPair(t *testing.T) pair {
	t.Helper()
	master, err := logicalCluster()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Stop() })
	standby := enginetest.StandbyOf(t, master)
	return pair{master, standby}
}

// A loss is which writes may be gone after an asynchronous failover: those that were
// acknowledged behind from, up to to.
type loss struct{ from, to int64 }

// failOver ends the master and promotes the standby. With lossy, the standby lacks what was
// written last, which is some writes of the client at least; what it has it has from before.
func (p pair) failOver(r *mover, c *client, shard string, lossy bool) (l loss) {
	t, ctx := r.t, r.t.Context()
	t.Helper()
	follower, err := pgx.Connect(ctx, p.standby.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer follower.Close(context.WithoutCancel(ctx))
	if lossy {
		l.from = c.acked.Load()
		master, err := pgx.Connect(ctx, p.master.URL)
		if err != nil {
			t.Fatal(err)
		}
		var lsn string
		if err := master.QueryRow(ctx, "select pg_current_wal_flush_lsn()::text").Scan(&lsn); err != nil {
			t.Fatal(err)
		}
		_ = master.Close(ctx)
		patience.Until(t, "the standby to have what is acknowledged", func() (has bool) {
			return follower.QueryRow(ctx, "select pg_last_wal_replay_lsn() >= $1::text::pg_lsn", lsn).Scan(&has) == nil && has
		})
		for _, sql := range []string{"alter system set primary_conninfo = ''", "select pg_reload_conf()"} {
			if _, err := follower.Exec(ctx, sql); err != nil {
				t.Fatal(err)
			}
		}
		patience.Until(t, "the standby to follow nobody", func() bool {
			var receivers int
			return follower.QueryRow(ctx, "select count(*) from pg_stat_wal_receiver").Scan(&receivers) == nil && receivers == 0
		})
		c.await(10)
	}
	if err := p.master.Halt(enginetest.StopImmediate); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the master to be gone", func() bool {
		conn, err := pgx.Connect(ctx, p.master.URL)
		if err == nil {
			_ = conn.Close(ctx)
		}
		return err != nil
	})
	if lossy {
		l.to = c.acked.Load() + 1 // the last one may not have been counted yet
	}
	if err := p.standby.Promote(ctx); err != nil {
		t.Fatal(err)
	}
	r.shards[shard] = strings.Replace(r.shards[shard], p.master.Addr(), p.standby.Addr(), 1)
	return l
}

// newFailoverMover is a mover whose shards have a standby each.
func newFailoverMover(t *testing.T) (r *mover, pairs map[string]pair) {
	t.Helper()
	enginetest.Needs(t, "pg_basebackup")
	var made [2]pair
	var making sync.WaitGroup
	for i := range made {
		making.Go(func() { made[i] = newPair(t) })
	}
	making.Wait()
	if t.Failed() {
		t.FailNow()
	}
	text := transferMap
	for i, p := range made {
		text = strings.Replace(text, fmt.Sprintf("{address: HOST%d}", i+1), fmt.Sprintf("{address: HOST%d}, {address: %q}", i+1,
			p.standby.Addr()), 1)
	}
	r = moverOn(t, newRigOn(t, text, [2]*enginetest.Cluster{made[0].master, made[1].master}), time.Minute)
	return r, map[string]pair{"s1": made[0], "s2": made[1]}
}

// Both shards of one transfer fail over: the source in the middle of the stream, to a standby
// that lacks what was acknowledged last, and the target when the map is about to switch.
// What was acknowledged and had reached a standby is kept; the transfer is done anew.
func TestTransferOutlivesTheMastersOfBothShards(t *testing.T) {
	t.Parallel()
	r, pairs := newFailoverMover(t)
	c := r.write()
	c.await(20)
	var lost loss
	left := r.atEach(map[string]func() error{
		"verify": func() error { lost = pairs["s1"].failOver(r, c, "s1", true); return nil },
		"sealed": func() error { pairs["s2"].failOver(r, c, "s2", false); return nil },
	})
	r.start(`, "grace": "0s"`)
	r.awaitState(transfers.TransferDone)
	c.await(10)
	c.cancel()
	c.done.Wait()
	for _, where := range []struct {
		sql  string
		want int64
	}{
		{fmt.Sprintf(`select count(*) from generate_series(1, %d) i where not i between %d and %d
			and not exists (select from messages where user_id = 42 and id = i)`, c.acked.Load(), lost.from+1, lost.to), 0},
		{"select (select count(*) from messages where user_id = 42 and id > 100000) + (select count(*) from labels where user_id = 42)", 250},
		{"select count(*) from pg_replication_slots where slot_type = 'logical'", 0},
		{"select count(*) from procaas.fences where key = '42' and state = 'active'", 1},
	} {
		if n := r.number("s2", where.sql); n != where.want {
			t.Errorf("s2: have %d, want %d by %s", n, where.want, where.sql)
		}
	}
	for _, sql := range []string{
		"select (select count(*) from messages where user_id = 42) + (select count(*) from labels where user_id = 42)",
		"select count(*) from pg_replication_slots where slot_type = 'logical'",
		"select count(*) from procaas.fences where key = '42' and state in ('active', 'frozen')",
	} {
		if n := r.number("s1", sql); n != 0 {
			t.Errorf("s1: have %d, want none by %s", n, sql)
		}
	}
	if points := left(); len(points) > 0 || lost.to == 0 {
		t.Errorf("not both have failed over: it never came to %v; lost %v", points, lost)
	}
	if p, err := r.m.Find(t.Context(), "42"); err != nil || p.Shard != "s2" || p.Owned {
		t.Errorf("placed at %+v, %v", p, err)
	}
}
