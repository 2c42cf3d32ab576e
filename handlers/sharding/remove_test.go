package sharding_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"procaas/engine/enginetest/patience"
	"procaas/engine/store"
	"procaas/handlers/sharding/language"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfers"
	"procaas/schemas"
)

// olderFences installs the fences of the release before, with an active key of two maps. All is there at once, because the
// service of the rig upgrades what it sees.
func (r *rig) olderFences(shard string) {
	r.t.Helper()
	all := "create schema procaas; create table procaas.migrations (name text primary key, at timestamptz not null default now());"
	for _, name := range []string{"shards/0001_fences.sql", "shards/0003_overdue.sql"} {
		text, err := schemas.Shards.ReadFile(name)
		if err != nil {
			r.t.Fatal(err)
		}
		all += string(text) + ";\ninsert into procaas.migrations (name) values ('" + name + "');"
	}
	r.exec(shard, all+`insert into procaas.compared (timeline) values (procaas.timeline());
		insert into procaas.fences (map, key, epoch, state) values ('mail', '42', 1, 'active'), ('oldmail', '42', 1, 'active')`)
}

// A shard that an older release has enrolled takes writes as before, also when it is enrolled again.
// After a promotion, the fences of a known map are compared, and those of others block only their own
// writers.
func TestFencesOfAnOlderReleaseAreUpgradedInPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	m := r.themap("mail")
	r.olderFences("s1")
	if _, err := m.Place(t.Context(), "42", "s1", nil); err != nil {
		t.Fatal(err)
	}
	guards := func(when, mail, oldmail string) {
		t.Helper()
		for id, want := range map[string]string{"mail": mail, "oldmail": oldmail} {
			if have := r.guard("s1", shardmap.Placement{Map: id, Key: "42", Epoch: 1}); have != want {
				t.Errorf("%s: guard of %s: %q, want %q", when, id, have, want)
			}
		}
	}
	if e, err := r.Enroll(t.Context(), m, "s1"); err != nil || len(e.Reasons) > 0 {
		t.Fatal(e, err)
	}
	guards("enrolled again", "", "")

	const promoted = "update procaas.compared set timeline = 'FFFFFFFF'"
	r.exec("s1", promoted)
	patience.Until(t, "the fences to be compared", func() bool {
		return r.guard("s1", shardmap.Placement{Map: "mail", Key: "42", Epoch: 1}) == ""
	})
	guards("promoted", "", "PC002")
	r.exec("s1", `insert into procaas.compared (timeline) select procaas.timeline()
		on conflict (one) do update set timeline = excluded.timeline, at = clock_timestamp()`)
	guards("compared by the older release", "", "")
}

// oldMail declares two maps on the same databases.
const oldMail = mailMap + `  - id: oldmail
    key: user
    key-type: int
    owner: mail-team
    tables: [{table: labels, key: [user_id]}]
    CONNECT
    shards: [{id: a, hosts: [{address: HOST1}]}, {id: b, hosts: [{address: HOST2}]}]
`

// What a map has on its shards goes away when an operator says so, and what other maps have stays.
func TestRemovedMapLeavesNothingOnItsShards(t *testing.T) {
	t.Parallel()
	r := newRig(t, oldMail)
	ctx := t.Context()
	mail, old := r.enroll("mail"), r.themap("oldmail")
	for _, shard := range []string{"a", "b"} {
		if e, err := r.Enroll(ctx, old, shard); err != nil || len(e.Reasons) > 0 {
			t.Fatal(e, err)
		}
	}
	for _, m := range []*shardmap.Map{mail, old} {
		shard := m.Declared.Shards[0].ID
		p, err := m.Place(ctx, "42", shard, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := shardmap.WriteFence(ctx, r.dial("s1"), shardmap.Fence{Map: m.ID, Key: "42", Epoch: p.Epoch, State: shardmap.Active}); err != nil {
			t.Fatal(err)
		}
	}
	ended := transfers.ShardTransfer{ID: "gone", Map: "oldmail", Key: "42", State: transfers.TransferCancelled}
	r.transfers = []transfers.ShardTransfer{ended}
	r.exec("s1", "create publication procaas_gone for table labels")
	r.exec("s1", "select pg_create_logical_replication_slot('procaas_gone_back', 'pgoutput')")

	remove := func(ask transfers.ShardRemove) (transfers.ShardRemoval, error) {
		return r.RemoveMap(ctx, "oldmail", ask, store.Actor{Name: "somebody"})
	}
	if _, err := remove(transfers.ShardRemove{}); !errors.Is(err, transfers.ErrShardBusy) || !strings.Contains(err.Error(), "declared") {
		t.Fatalf("a declared map: %v, want that it is refused", err)
	}
	r.transfers[0].State = transfers.TransferObserving
	var refused *shardmap.MapError
	if err := r.Check(ctx, r.declared[:1]); !errors.As(err, &refused) || !strings.Contains(err.Error(), "gone") {
		t.Errorf("check of files without the map of a transfer: %v, want that they are refused", err)
	}
	if err := r.Apply(ctx, r.declared[:1]); err != nil {
		t.Fatal(err)
	}
	if _, err := remove(transfers.ShardRemove{}); !errors.Is(err, transfers.ErrShardBusy) || !strings.Contains(err.Error(), "gone") {
		t.Fatalf("a transfer that has not ended: %v, want that it is refused", err)
	}
	r.transfers[0].State = transfers.TransferDone
	left := func() (n int) {
		r.ask("s1", `select (select count(*) from procaas.fences where map = 'oldmail')
			+ (select count(*) from procaas.compared_maps where map = 'oldmail')
			+ (select count(*) from pg_publication where pubname like 'procaas_oldmail_%' or pubname = 'procaas_gone')
			+ (select count(*) from pg_replication_slots where slot_name = 'procaas_gone_back')`, &n)
		return n
	}
	was := left()
	for _, dry := range []bool{true, false} {
		done, err := remove(transfers.ShardRemove{DryRun: dry})
		if err != nil {
			t.Fatal(err)
		}
		a := done.Shards[0]
		if a.Fences != 1 || !slices.Equal(a.Slots, []string{"procaas_gone_back"}) || !slices.Contains(a.Publications, "procaas_gone") ||
			len(a.Publications) != was-3 || a.Error != "" || done.Shards[1].Error != "" || done.Placements != 1 {
			t.Errorf("dry run %v: %+v", dry, done)
		}
		if have := left(); dry && have != was || !dry && have != 0 {
			t.Errorf("dry run %v: %d things are left on s1, want %d or none", dry, have, was)
		}
	}
	if have := r.guard("s1", shardmap.Placement{Map: "mail", Key: "42", Epoch: 1}); have != "" {
		t.Errorf("guard of the other map: %q", have)
	}

	// It comes back with its placements.
	if err := r.Apply(ctx, r.declared); err != nil {
		t.Fatal(err)
	}
	if e, err := r.Enroll(ctx, r.themap("oldmail"), "a"); err != nil || e.Fences != 1 {
		t.Errorf("enrolled again: %+v, %v; want one fence", e, err)
	}
	if err := r.Apply(ctx, r.declared[:1]); err != nil {
		t.Fatal(err)
	}
	if done, err := remove(transfers.ShardRemove{Forget: true}); err != nil || !done.Forgotten {
		t.Errorf("forgotten: %+v, %v", done, err)
	}
	if _, err := remove(transfers.ShardRemove{}); !errors.Is(err, transfers.ErrShardMap) {
		t.Errorf("a forgotten map: %v, want that there is none", err)
	}
}

// A shard that does not answer keeps what it has, and the others lose it.
func TestRemoveSaysWhichShardDidNotAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, strings.Replace(oldMail, "hosts: [{address: HOST2}]", `hosts: [{address: "127.0.0.1:1"}]`, 1))
	ctx := t.Context()
	if e, err := r.Enroll(ctx, r.themap("oldmail"), "a"); err != nil || len(e.Reasons) > 0 {
		t.Fatal(e, err)
	}
	if err := r.Apply(ctx, []*language.ShardMap{r.declared[0]}); err != nil {
		t.Fatal(err)
	}
	done, err := r.RemoveMap(ctx, "oldmail", transfers.ShardRemove{}, store.Actor{})
	if err != nil || len(done.Shards) != 2 || done.Shards[0].Error != "" || done.Shards[1].Error == "" {
		t.Fatalf("%+v, %v; want an error of shard b only", done, err)
	}
	if again, err := r.RemoveMap(context.WithoutCancel(ctx), "oldmail", transfers.ShardRemove{Forget: true}, store.Actor{}); err != nil ||
		!again.Forgotten {
		t.Errorf("forgotten although shard b is gone: %+v, %v", again, err)
	}
}
