package sharding_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"procaas/engine/store"
	"procaas/handlers/sharding/shardmap"
)

const mailMap = `shard-maps:
  - id: mail
    key: [user, folder]
    key-type: int
    tables: [{table: messages, key: [user_id, folder]}, {table: labels, key: [user_id]}]
    CONNECT
    shards: [{id: s1, hosts: [{address: HOST1, dc: a}]}, {id: s2, hosts: [{address: HOST2, dc: b}]}]
`

func TestSwitchIsACompareAndSwapOfOwnerAndEpoch(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	m, ctx := r.enroll("mail"), t.Context()
	p, err := m.Place(ctx, "42", "s1", nil)
	if err != nil || p.Shard != "s1" || p.Epoch != 1 || p.State != shardmap.Ready {
		t.Fatalf("placed: %+v, %v", p, err)
	}
	if again, err := m.Place(ctx, "42", "s2", nil); err != nil || again != p {
		t.Fatalf("placed again: %+v, %v; want %+v", again, err, p)
	}
	begin := shardmap.Begin{Key: "42", Target: "s2", Transfer: "t1"}
	zombie, err := m.BeginTransfer(ctx, begin)
	if err != nil || zombie.Source != "s1" || zombie.Epoch != 1 || zombie.Next != 2 {
		t.Fatalf("began: %+v, %v", zombie, err)
	}
	if _, err := m.BeginTransfer(ctx, shardmap.Begin{Key: "42", Target: "s2", Transfer: "t2"}); !errors.Is(err, shardmap.ErrBusy) {
		t.Errorf("another transfer of the key: %v, want %v", err, shardmap.ErrBusy)
	}
	live, err := m.BeginTransfer(ctx, begin)
	if err != nil || live.Next != 3 {
		t.Fatalf("took over: %+v, %v", live, err)
	}
	if err := m.Switch(ctx, zombie); !errors.Is(err, shardmap.ErrLost) {
		t.Errorf("switch of a zombie: %v, want %v", err, shardmap.ErrLost)
	}
	if err := m.Abort(ctx, zombie); !errors.Is(err, shardmap.ErrLost) {
		t.Errorf("abort of a zombie: %v, want %v", err, shardmap.ErrLost)
	}
	if err := m.Switch(ctx, live); err != nil {
		t.Fatal(err)
	}
	if err := m.Switch(ctx, live); !errors.Is(err, shardmap.ErrLost) {
		t.Errorf("second switch: %v, want %v", err, shardmap.ErrLost)
	}
	done, err := m.BeginTransfer(ctx, begin)
	if err != nil || !done.Switched || done.Next != 3 {
		t.Errorf("began after the switch: %+v, %v", done, err)
	}
	p, err = m.Find(ctx, "42/inbox")
	if err != nil || p.Shard != "s2" || p.Epoch != 3 || p.Owned {
		t.Errorf("found: %+v, %v", p, err)
	}
	back, err := m.BeginTransfer(ctx, shardmap.Begin{Key: "42", Target: "s1", Transfer: "t1-back"})
	if err != nil || back.Next != 4 {
		t.Fatalf("back: %+v, %v", back, err)
	}
	if err := m.Abort(ctx, back); err != nil {
		t.Fatal(err)
	}
	if err := m.Switch(ctx, back); !errors.Is(err, shardmap.ErrLost) {
		t.Errorf("switch after abort: %v, want %v", err, shardmap.ErrLost)
	}
	if next, err := m.BeginTransfer(ctx, shardmap.Begin{Key: "42", Target: "s1", Transfer: "t3"}); err != nil || next.Epoch != 3 ||
		next.Next != 5 {
		t.Errorf("an epoch of an aborted transfer is used again: %+v, %v", next, err)
	}
}

func TestGuardRefusesWhoeverIsBehind(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	m, ctx := r.enroll("mail"), t.Context()
	p, err := m.Place(ctx, "7", "s1", nil)
	if err != nil {
		t.Fatal(err)
	}
	next := p
	next.Epoch = 2
	fence := func(shard string, f shardmap.Fence) error {
		f.Map, f.Key = "mail", "7"
		conn, err := pgx.Connect(ctx, r.shards[shard])
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx)
		return shardmap.WriteFence(ctx, conn, f)
	}
	expect := func(when, shard string, p shardmap.Placement, want string) {
		t.Helper()
		if have := r.guard(shard, p); have != want {
			t.Errorf("%s: guard on %s at epoch %d: %q, want %q", when, shard, p.Epoch, have, want)
		}
	}
	expect("placed", "s1", p, "")
	expect("placed", "s2", p, "PC001")
	expect("placed", "s1", next, "PC001")
	for _, step := range []struct {
		shard string
		fence shardmap.Fence
	}{
		{"s1", shardmap.Fence{Epoch: 1, State: shardmap.Frozen, Owner: "x", Attempt: 1}},
		{"s2", shardmap.Fence{Epoch: 2, State: shardmap.Active, Owner: "x"}},
		{"s1", shardmap.Fence{Epoch: 2, State: shardmap.Moved, Target: "s2"}},
	} {
		if err := fence(step.shard, step.fence); err != nil {
			t.Fatal(err)
		}
		expect(step.fence.State, "s1", p, "PC001")
	}
	expect("moved", "s2", next, "")
	expect("moved", "s2", p, "PC001")
	if err := fence("s1", shardmap.Fence{Epoch: 1, State: shardmap.Active}); !errors.Is(err, shardmap.ErrFence) {
		t.Errorf("an older fence: %v, want %v", err, shardmap.ErrFence)
	}
	if _, err := m.Complete(ctx, p); err != nil {
		t.Errorf("a late end of the registration: %v", err)
	}
	expect("registered late", "s1", p, "PC001")
}

// A writer who has read before the freeze, under an isolation level that goes on reading as
// of then, must not write after it.
func TestGuardAndFreezeKeepEachOtherOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	m, ctx := r.enroll("mail"), t.Context()
	if _, err := m.Place(ctx, "7", "s1", nil); err != nil {
		t.Fatal(err)
	}
	writer, err := pgx.Connect(ctx, r.shards["s1"])
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close(ctx)
	tx, err := writer.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "select count(*) from messages"); err != nil {
		t.Fatal(err)
	}
	r.exec("s1", "select procaas.fence('mail', '7', 1, 'frozen', null, 'x', 1)")
	_, err = tx.Exec(ctx, "select procaas.guard('mail', '7', 1)")
	if have := sqlState(t, err); have != "40001" && have != "PC001" {
		t.Errorf("guard of a transaction from before the freeze: %q, want 40001", have)
	}
	_ = tx.Rollback(ctx)
	r.exec("s1", "select procaas.fence('mail', '7', 1, 'active', null, null, 0)")
	if tx, err = writer.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "select procaas.guard('mail', '7', 1)"); err != nil {
		t.Fatal(err)
	}
	err = r.try("s1", "set lock_timeout = '50ms'; select procaas.fence('mail', '7', 1, 'frozen', null, 'x', 2)")
	if have := sqlState(t, err); have != "55P03" {
		t.Errorf("a freeze beside a writer: %q, want 55P03, lock not available", have)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	r.exec("s1", "set lock_timeout = '20s'; select procaas.fence('mail', '7', 1, 'frozen', null, 'x', 2)")
}

func TestSplitGivesAPartOfAKeyAPlacementOfItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	m, ctx := r.enroll("mail"), t.Context()
	user, err := m.Place(ctx, "42", "s1", nil)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := m.Split(ctx, "42/archive", store.Actor{})
	if err != nil || folder.Key != "42/archive" || folder.Shard != "s1" || folder.State != shardmap.Ready {
		t.Fatalf("split: %+v, %v", folder, err)
	}
	if have := r.guard("s1", user); have != "PC001" {
		t.Errorf("guard by the placement before the split: %q, want PC001", have)
	}
	after, err := m.Find(ctx, "42/inbox")
	if err != nil || after.Key != "42" || after.Epoch != 2 || r.guard("s1", after) != "" || r.guard("s1", folder) != "" {
		t.Errorf("after the split: %+v, %v", after, err)
	}
	if found, err := m.Find(ctx, "42/archive"); err != nil || found.Key != "42/archive" {
		t.Errorf("the longest placement: %+v, %v", found, err)
	}
	r.exec("s1", `insert into messages values (42, 1, 'inbox'), (42, 2, 'archive'), (42, 3, ''), (43, 4, 'archive')`)
	for key, want := range map[string]string{"42": "1,3", "42/archive": "2", "43": "4"} {
		where := r.where(m, m.Declared.Tables[0], key)
		var have string
		r.ask("s1", "select coalesce(string_agg(id::text, ',' order by id), '') from messages where "+where, &have)
		if have != want {
			t.Errorf("rows of %s, where %s: %s, want %s", key, where, have, want)
		}
	}
}

func TestHashesAreThoseOfPostgres(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	for i := range 40 {
		text := strings.Repeat("añ", i) + fmt.Sprint(i)
		var want int64
		r.ask("s1", fmt.Sprintf("select hashtextextended('%s', 0)", text), &want)
		if have := int64(shardmap.Hash(text)); have != want {
			t.Errorf("hash of %q: %d, want %d", text, have, want)
		}
	}
	for _, n := range []int64{0, 1, -1, 42, 1 << 40, -(1 << 40), 1<<63 - 1, -1 << 63} {
		var want int64
		r.ask("s1", fmt.Sprintf("select hashint8extended('%d'::bigint, 0)", n), &want)
		if have := int64(shardmap.HashInt(n)); have != want {
			t.Errorf("hash of %d: %d, want %d", n, have, want)
		}
	}
}

// Many processes register the same keys at once: each key gets one home.
func TestAStormOfRegistrationsPlacesAKeyOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	m := r.enroll("mail")
	const keys, callers = 8, 6
	homes := make([][]shardmap.Placement, callers)
	var wg sync.WaitGroup
	for c := range callers {
		homes[c] = make([]shardmap.Placement, keys)
		wg.Go(func() {
			for k := range keys {
				p, err := m.Place(t.Context(), fmt.Sprint(k), []string{"s1", "s2"}[(c+k)%2], nil)
				if err != nil {
					t.Error(err)
				}
				homes[c][k] = p
			}
		})
	}
	wg.Wait()
	for k := range keys {
		for c := range callers {
			if homes[c][k] != homes[0][k] {
				t.Errorf("key %d: %+v and %+v", k, homes[c][k], homes[0][k])
			}
		}
		home, other := homes[0][k].Shard, "s1"
		if home == other {
			other = "s2"
		}
		if a, b := r.guard(home, homes[0][k]), r.guard(other, homes[0][k]); a != "" || b != "PC001" {
			t.Errorf("key %d of %s: guards say %q there and %q on %s", k, home, a, b, other)
		}
	}
}
