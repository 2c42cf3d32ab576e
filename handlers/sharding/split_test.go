package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfers"
)

const rangeMap = `shard-maps:
  - id: mail
    key: user
    key-type: int
    strategy: range
    tables: [{table: messages, key: user_id}, {table: labels, key: user_id}]
    CONNECT
    shards: [{id: s1, from: [""], hosts: [{address: HOST1}]}, {id: s2, from: ["1000"], hosts: [{address: HOST2}]}]
`

// A keeper writes to one key, and keeps what it knows of the key's home until it is refused, as
// services do.
type keeper struct {
	r     *mover
	key   string
	acked atomic.Int64
}

func (r *mover) keep(ctx context.Context, work *sync.WaitGroup, key string) *keeper {
	k := &keeper{r: r, key: key}
	work.Go(func() {
		var home shardmap.Placement
		for ctx.Err() == nil {
			if home.Key == "" {
				home, _ = r.m.Cached(key)
			}
			err := k.write(ctx, home)
			var failure *pgconn.PgError
			switch {
			case err == nil:
				k.acked.Add(1)
			case errors.As(err, &failure) && failure.Code == shardmap.CodeMoved:
				home = shardmap.Placement{}
			}
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond): // others need the processor, too
			}
		}
	})
	return k
}

func (k *keeper) write(ctx context.Context, home shardmap.Placement) error {
	if home.Key == "" {
		return errors.New("not known yet")
	}
	pool, err := k.r.Connect(ctx, k.r.m, home.Shard)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select procaas.guard('mail', $1, $2)", home.Key, home.Epoch); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "insert into messages (user_id, id, body) values ($1::text::bigint, $2, 'new') on conflict do nothing", k.key,
			k.acked.Load()+1)
		return err
	})
}

func (k *keeper) await(n int64) {
	k.r.t.Helper()
	until := k.acked.Load() + n
	patience.Until(k.r.t, fmt.Sprintf("key %s: %d writes are acknowledged", k.key, until), func() bool { return k.acked.Load() >= until })
}

// A stretch of keys is divided, a part of it moves away and comes back, and both become one again,
// twice, while keys on both sides of the bound are written to.
func TestStretchesAreSplitAndMergedUnderWrites(t *testing.T) {
	t.Parallel()
	r := moverOn(t, newRig(t, rangeMap), time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	keepers := []*keeper{r.keep(ctx, &work, "100"), r.keep(ctx, &work, "900"), r.keep(ctx, &work, "500")}
	all := func() {
		t.Helper()
		for _, k := range keepers {
			k.await(10)
		}
	}
	homes := func(want ...string) {
		t.Helper()
		var have []string
		for _, k := range keepers {
			p, err := r.m.Find(ctx, k.key)
			if err != nil {
				t.Fatal(err)
			}
			have = append(have, p.Key+" on "+p.Shard)
		}
		if !slices.Equal(have, want) {
			t.Fatalf("have %v, want %v", have, want)
		}
	}
	move := func(target string) {
		t.Helper()
		r.ended(r.submit("shard-transfer", fmt.Sprintf(`{"map": "mail", "key": "[500", "target": %q, "grace": "0s"}`, target)), model.Succeeded)
	}
	all()
	homes("[ on s1", "[ on s1", "[ on s1")
	for range 2 {
		dry, err := r.SplitShard(ctx, "mail", "500", true, store.Actor{})
		if err != nil || dry.Changed || dry.Wide != "[" || dry.Narrow != "[500" {
			t.Fatalf("%+v, %v", dry, err)
		}
		done, err := r.SplitShard(ctx, "mail", "500", false, store.Actor{})
		if err != nil || !done.Changed || done.Shard != "s1" {
			t.Fatalf("%+v, %v", done, err)
		}
		if again, err := r.SplitShard(ctx, "mail", "500", false, store.Actor{}); err != nil || again.Changed {
			t.Fatalf("split again: %+v, %v", again, err)
		}
		all()
		homes("[ on s1", "[500 on s1", "[500 on s1")
		move("s2")
		all()
		homes("[ on s1", "[500 on s2", "[500 on s2")
		if _, err := r.MergeShard(ctx, "mail", "500", false, store.Actor{}); !errors.Is(err, transfers.ErrShardBusy) ||
			!strings.Contains(err.Error(), "move one of them first") {
			t.Fatalf("merge over two shards: %v", err)
		}
		move("s1")
		all()
		if done, err := r.MergeShard(ctx, "mail", "500", false, store.Actor{}); err != nil || !done.Changed {
			t.Fatalf("%+v, %v", done, err)
		}
		all()
		homes("[ on s1", "[ on s1", "[ on s1")
	}
	for at, want := range map[string]error{
		"": transfers.ErrShardKey, "x": transfers.ErrShardKey, "500": transfers.ErrShardKey,
		"1000": transfers.ErrShardBusy,
	} {
		if _, err := r.MergeShard(ctx, "mail", at, false, store.Actor{}); !errors.Is(err, want) {
			t.Errorf("merge at %q: have %v, want %v", at, err, want)
		}
	}
	cancel()
	work.Wait()
	for _, k := range keepers {
		if n := r.number("s1", "select count(*) from messages where user_id = $1::text::bigint and id <= $2", k.key,
			k.acked.Load()); n != k.acked.Load() {
			t.Errorf("key %s: %d of %d acknowledged writes are there", k.key, n, k.acked.Load())
		}
	}
	if n := r.number("s2", "select count(*) from messages"); n != 0 {
		t.Errorf("%d rows are left on s2", n)
	}
}

// Whoever divides a stretch dies between the map and the last fence: the stretch is held, and
// others end that.
func TestSplitThatWasCutOffIsEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t, rangeMap)
	m := r.enroll("mail")
	ctx := t.Context()
	if _, _, err := m.SplitAt(ctx, "500", store.Actor{}); err != nil {
		t.Fatal(err)
	}
	p, err := m.Find(ctx, "100")
	if err != nil {
		t.Fatal(err)
	}
	// As it was before the last step.
	r.exec("s1", "update procaas.fences set epoch = epoch - 1, state = 'frozen', until = null, hold = 10 where key = '['")
	patience.Until(t, "the stretch to be writable", func() bool { return r.guard("s1", p) == "" })
	q, err := m.Find(ctx, "500")
	if err != nil || q.Key != "[500" {
		t.Fatalf("%+v, %v", q, err)
	}
	if state := r.guard("s1", q); state != "" {
		t.Errorf("the guard of %+v says %s", q, state)
	}
}

func TestPartitionedTablesAreRefusedWithTheWayOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, rangeMap)
	for i, c := range []struct{ sql, want string }{
		{
			`drop table labels; create table labels (user_id bigint, id bigint, primary key (user_id, id)) partition by hash (user_id)`,
			"table labels: it is partitioned, and has no partitions",
		},
		{`create table labels_0 partition of labels for values with (modulus 1, remainder 0)`, "list its partitions (labels_0) under tables:"},
		{
			`drop table labels; create table labels (user_id bigint, id bigint, primary key (user_id, id));
				create table labels_old () inherits (labels)`,
			"table labels: it has tables that inherit from it (labels_old)",
		},
		{
			`drop table labels cascade; create unlogged table labels (user_id bigint, id bigint, primary key (user_id, id))`,
			"table labels: it is unlogged",
		},
		{`drop table labels cascade; create view labels as select 1 as user_id`, "table labels: it is no ordinary table"},
	} {
		r.exec("s1", c.sql)
		e, err := r.Enroll(t.Context(), r.themap("mail"), "s1")
		if err != nil || !slices.ContainsFunc(e.Reasons, func(why string) bool { return strings.Contains(why, c.want) }) {
			t.Errorf("%d: have %v, %v; want %s", i, e.Reasons, err, c.want)
		}
	}
}

// A transfer that has switched owns nothing in the map any more, but it may be rolled back, and it deletes in
// the end: until then its placement keeps its rows, even against operators.
func TestNothingIsRegroupedWhileATransferIsObserved(t *testing.T) {
	t.Parallel()
	r := moverOn(t, newRig(t, rangeMap), time.Minute)
	ctx := t.Context()
	if _, err := r.SplitShard(ctx, "mail", "500", false, store.Actor{}); err != nil {
		t.Fatal(err)
	}
	r.exec("s2", "insert into messages (user_id, id, body) values (1500, 1, 'of the next stretch')")
	r.exec("s1", "insert into messages (user_id, id, body) values (700, 1, 'of the stretch that moves')")
	run := r.submit("shard-transfer", `{"map": "mail", "key": "[500", "target": "s2", "grace": "24h"}`)
	observed := r.awaitState(transfers.TransferObserving)
	for verb, do := range map[string]func() error{
		"merge the next stretch": func() error { _, err := r.MergeShard(ctx, "mail", "1000", false, store.Actor{}); return err },
		"split it":               func() error { _, err := r.SplitShard(ctx, "mail", "600", false, store.Actor{}); return err },
	} {
		if err := do(); !errors.Is(err, transfers.ErrShardBusy) || !strings.Contains(err.Error(), "transfer "+observed.ID) {
			t.Errorf("%s: have %v, want %v that names the transfer", verb, err, transfers.ErrShardBusy)
		}
	}
	r.order(observed.ID, transfers.OrderRollback)
	r.ended(run, model.Succeeded)
	if n := r.number("s1", "select count(*) from messages where user_id = 700") + r.number("s2", "select count(*) from messages where "+
		"user_id = 1500"); n != 2 {
		t.Errorf("%d of 2 rows are where they were", n)
	}
	if _, err := r.SplitShard(ctx, "mail", "600", false, store.Actor{}); err != nil {
		t.Errorf("when the transfer has ended: %v", err)
	}
}

// A part that cannot be distinguished from others gets no placement, and one that is made part of the rest again
// is found there at once by callers that were refused.
func TestPartsOfKeysAreMergedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, strings.Replace(mailMap, "key: [user, folder]", "key: [user, folder, mail]", 1))
	r.exec("s1", "drop table messages; create table messages (user_id bigint, folder bigint, primary key (user_id, folder))")
	r.exec("s2", "drop table messages; create table messages (user_id bigint, folder bigint, primary key (user_id, folder))")
	m, ctx := r.enroll("mail"), t.Context()
	user, err := m.Place(ctx, "42", "s1", nil)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"42/007": `column folder of table public.messages is bigint, which is never written "007"`, "42/inbox": `never written "inbox"`,
		"42/7/1": "no table of the map has columns for 3 parts of a key",
	} {
		if _, err := r.SplitShard(ctx, "mail", key, false, store.Actor{}); !errors.Is(err, transfers.ErrShardKey) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("split %s: have %v, want %s", key, err, want)
		}
	}
	for range 2 {
		if _, err := r.SplitShard(ctx, "mail", "42/7", false, store.Actor{}); err != nil {
			t.Fatal(err)
		}
		part, err := m.Find(ctx, "42/7")
		if err != nil || part.Key != "42/7" {
			t.Fatalf("split: %+v, %v", part, err)
		}
		patience.Until(t, "memory to know the part", func() bool { p, ok := m.Cached("42/7"); return ok && p == part })
		done, err := r.MergeShard(ctx, "mail", "42/7", false, store.Actor{})
		if err != nil || !done.Changed || done.Wide != "42" || done.Narrow != "42/7" {
			t.Fatalf("merge: %+v, %v", done, err)
		}
		if state := r.guard("s1", part); state != shardmap.CodeMoved {
			t.Errorf("the guard of the part says %q", state)
		}
		// Asked for a later epoch than that of the part, which the rest does not have.
		a, err := m.Resolve(ctx, transfers.ShardQuestion{Key: "42/7", Mode: transfers.ShardMaster, AfterEpoch: part.Epoch})
		if err != nil || a.Placement != "42" {
			t.Fatalf("resolved: %+v, %v", a, err)
		}
		user.Epoch = a.Epoch
		if state := r.guard("s1", user); state != "" {
			t.Errorf("the guard of the rest says %q", state)
		}
	}
	for key, want := range map[string]string{"42/7": "is a part of", "42": "is a part of nothing wider"} {
		if _, err := r.MergeShard(ctx, "mail", key, false, store.Actor{}); !errors.Is(err, transfers.ErrShardKey) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("merge %s: have %v, want %s", key, err, want)
		}
	}
}
