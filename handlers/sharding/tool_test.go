package sharding_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/sharding"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfers"
)

// handle calls a handler type with fields, as the engine does.
func (r *rig) handle(typeName string, fields map[string]any) (any, error) {
	r.t.Helper()
	types := sharding.Bind(sharding.Types(), r.Service, sharding.BindOptions{})
	i := slices.IndexFunc(types, func(t engine.HandlerType) bool { return t.Name == typeName })
	h := types[i].New()
	if err := types[i].Spec.Decode(fields, h); err != nil {
		r.t.Fatal(err)
	}
	result, err := h.Handle(r.t.Context(), &engine.Call{
		Path: "care/x/y", Run: "r-1", Now: cmp.Or(r.now, time.Now()), Log: slog.New(slog.DiscardHandler), Documents: r.docs,
	})
	return result.Response, err
}

// must is handle for calls that succeed.
func (r *rig) must(typeName string, fields map[string]any) any {
	r.t.Helper()
	response, err := r.handle(typeName, fields)
	if err != nil {
		r.t.Fatalf("%s: %v", typeName, err)
	}
	return response
}

func (r *rig) list(response any, name string, fields ...string) string {
	r.t.Helper()
	if name != "" {
		response = response.(map[string]any)[name]
	}
	var out []string
	for _, item := range response.([]any) {
		var words []string
		for _, f := range fields {
			words = append(words, fmt.Sprint(item.(map[string]any)[f]))
		}
		out = append(out, strings.Join(words, " "))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func TestFullShardsCloseAndLoseMediumKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	m, ctx := r.enroll("mail"), t.Context()
	for i, rows := range []int{1, 10, 20, 40, 500} {
		key := fmt.Sprint(i)
		if _, err := m.Place(ctx, key, "s1", nil); err != nil {
			t.Fatal(err)
		}
		r.exec("s1", fmt.Sprintf("insert into messages select %d, n, '', repeat('x', 100) from generate_series(1, %d) n", i, rows))
	}
	r.exec("s1", "analyze messages")
	if have := r.list(r.must("shard.usage", nil), "failed", "shard"); have != "" {
		t.Errorf("shards that could not be measured: %s", have)
	}
	if have := r.list(r.must("shard.moves", map[string]any{"reason": "usage"}), "moves", "key"); have != "" {
		t.Errorf("moves from shards that are nearly empty: %s", have)
	}
	// As if the first shard were nearly full, and the second one nearly empty.
	r.exec("map", "update shards set capacity = 100 * 1000 * 1000, used = case id when 's1' then 90 else 10 end * 1000 * 1000")
	full := map[string]any{"dry-run": true}
	if have := r.list(r.must("shard.close", full), "closed", "shard"); have != "s1" {
		t.Errorf("a dry run would close %q, want s1", have)
	}
	views, err := r.Shards(ctx, "mail")
	if err != nil || !views[0].Registration {
		t.Fatalf("a dry run has closed s1: %+v, %v", views, err)
	}
	r.must("shard.close", nil)
	if views, err = r.Shards(ctx, "mail"); err != nil || views[0].Registration || views[0].Closed != "usage 90 %" || !views[1].Registration {
		t.Errorf("after closing: %+v, %v", views, err)
	}
	moves := r.must("shard.moves", map[string]any{"reason": "usage", "limit": 1})
	if have := r.list(moves, "moves", "key", "source", "target", "rows"); have != "3 s1 s2 40" {
		t.Errorf("the largest of the medium keys: %q, want 3 s1 s2 40", have)
	}
	moves = r.must("shard.moves", map[string]any{"reason": "usage"})
	if have := r.list(moves, "moves", "key"); have != "1, 2, 3" && have != "2, 3" && have != "3" {
		t.Errorf("medium keys: %q, want only some of 1, 2, 3", have)
	}
	r.exec("map", "update shards set used = 72 * 1000 * 1000")
	r.must("shard.close", nil)
	if views, err = r.Shards(ctx, "mail"); err != nil || views[0].Registration {
		t.Errorf("s1 opens at 72 %% although it closed at 90 %%: %+v, %v", views, err)
	}
	r.exec("map", "update shards set used = 60 * 1000 * 1000")
	if have := r.list(r.must("shard.close", nil), "opened", "shard"); have != "s1" {
		t.Errorf("opened %q, want s1", have)
	}
	people := "new disks"
	if _, err := r.SetShard(ctx, "mail", "s2", transfers.ShardChange{Closed: &people}, store.Actor{}); err != nil {
		t.Fatal(err)
	}
	if have := r.list(r.must("shard.close", nil), "opened", "shard"); have != "" {
		t.Errorf("opened %q, which people have closed", have)
	}
}

func TestDrainedShardsLoseAllTheirKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	m, ctx := r.enroll("mail"), t.Context()
	for i := range 5 {
		if _, err := m.Place(ctx, fmt.Sprint(i), "s1", nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.BeginTransfer(ctx, shardmap.Begin{Key: "4", Target: "s2", Transfer: "t"}); err != nil {
		t.Fatal(err)
	}
	drain := map[string]any{"reason": "drain"}
	if have := r.list(r.must("shard.moves", drain), "moves", "key"); have != "" {
		t.Errorf("moves although nothing is drained: %s", have)
	}
	why := "old disks"
	if _, err := r.SetShard(ctx, "mail", "s1", transfers.ShardChange{Draining: &why}, store.Actor{}); err != nil {
		t.Fatal(err)
	}
	if have := r.list(r.must("shard.moves", drain), "moves", "key", "target"); have != "0 s2, 1 s2, 2 s2, 3 s2" {
		t.Errorf("moves of a drained shard: %s; want all keys but the one that is moving", have)
	}
	if _, err := m.BeginTransfer(ctx, shardmap.Begin{Key: "0", Target: "s1", Transfer: "u"}); err == nil {
		t.Error("a drained shard takes a key")
	}
	if _, err := r.SetShard(ctx, "mail", "s2", transfers.ShardChange{Draining: &why}, store.Actor{}); err != nil {
		t.Fatal(err)
	}
	if have := r.list(r.must("shard.moves", drain), "homeless", "shard"); have != "s1" {
		t.Errorf("shards whose keys find no home: %q, want s1", have)
	}
}

// A shard whose connections are busy loses some of the keys that were used lately, to the least
// busy shard that has room.
func TestBusyShardsLoseKeysInUse(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	m, ctx := r.enroll("mail"), t.Context()
	for i := range 8 {
		if _, err := m.Place(ctx, fmt.Sprint(i), "s1", nil); err != nil {
			t.Fatal(err)
		}
	}
	r.must("shard.usage", nil)
	views, err := r.Shards(ctx, "mail")
	if err != nil || views[0].Connections == 0 {
		t.Errorf("measured: %+v, %v", views, err)
	}
	r.exec("map", "update shard_placements set active = now() - interval '1 day' where key in ('0', '1', '2', '3')")
	load := map[string]any{"reason": "load", "at": 0.7, "until": 0.5, "after": "1h"}
	r.exec("map", "update shards set load = 60, max_connections = 100, capacity = 1000000000000")
	if have := r.list(r.must("shard.moves", load), "moves", "key"); have != "" {
		t.Errorf("moves from shards that are not busy: %s", have)
	}
	r.exec("map", "update shards set load = case id when 's1' then 80 else 10 end")
	// Each of the four keys in use brings 20 % of load: after two of them 40 % are left.
	if have := r.list(r.must("shard.moves", load), "moves", "key", "target"); have != "4 s2, 5 s2" {
		t.Errorf("relief: %q, want 4 s2, 5 s2", have)
	}
	r.exec("map", "update shards set used = 900000000000 where id = 's2'")
	if have := r.list(r.must("shard.moves", load), "homeless", "shard"); have != "s1" {
		t.Errorf("a full shard is a relief: homeless are %q", have)
	}
}

func TestIdleKeysAreToldFromBusyOnes(t *testing.T) {
	t.Parallel()
	r := newRig(t, strings.Replace(mailMap, "{id: s2, hosts", "{id: s2, class: cold, hosts", 1))
	m, ctx := r.enroll("mail"), t.Context()
	for _, key := range []string{"1", "2"} {
		if _, err := m.Place(ctx, key, "s1", nil); err != nil {
			t.Fatal(err)
		}
	}
	r.exec("map", "update shard_placements set active = now() - interval '60 days'")
	if _, err := resolve(t, r.Service, transfers.ShardQuestion{Key: "2/inbox"}); err != nil {
		t.Fatal(err)
	}
	if err := r.FlushActivity(ctx); err != nil {
		t.Fatal(err)
	}
	idle := r.must("shard.moves", map[string]any{"reason": "idle", "from": "hot", "to": "cold"})
	if have := r.list(idle, "moves", "key", "target"); have != "1 s2" {
		t.Errorf("idle keys: %q, want 1 s2", have)
	}
	busy := r.must("shard.moves", map[string]any{"reason": "busy", "from": "hot", "to": "cold", "after": "1h"})
	if have := r.list(busy, "moves", "key"); have != "2" {
		t.Errorf("busy keys: %q, want 2", have)
	}
	if _, err := r.handle("shard.moves", map[string]any{"reason": "idle"}); !model.IsPermanent(err) {
		t.Errorf("idle keys of no class: %v", err)
	}
}

func TestSQLRunsOnceOnEachShard(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	r.enroll("mail")
	if have := r.list(r.must("shard.list", map[string]any{"map": "mail"}), "", "map", "shard"); have != "mail s1, mail s2" {
		t.Errorf("shards: %s", have)
	}
	run := func(fields map[string]any) map[string]any {
		t.Helper()
		fields["map"], fields["shard"] = "mail", "s1"
		return r.must("shard.run", fields).(map[string]any)
	}
	const sql = "alter table labels add column flags int not null default 0; insert into labels values (1, 1), (1, 2)"
	if have := run(map[string]any{"name": "0001", "sql": sql, "dry-run": true}); have["done"] != true || have["rows"] != 2 {
		t.Errorf("dry run: %v", have)
	}
	for i, done := range []bool{true, false} {
		if have := run(map[string]any{"name": "0001", "sql": sql}); have["done"] != done {
			t.Errorf("call %d: %v, want done %v", i, have, done)
		}
	}
	if have := run(map[string]any{"sql": "delete from labels"}); have["rows"] != 2 {
		t.Errorf("a regular job: %v, want 2 rows", have)
	}
	if _, err := r.handle("shard.run", map[string]any{
		"map": "mail", "shard": "s2", "name": "0002",
		"sql": "select 1; select nothing_such",
	}); err == nil {
		t.Error("broken SQL runs")
	}
	if have := r.must("shard.run", map[string]any{
		"map": "mail", "shard": "s2", "name": "0002",
		"sql": "select 1",
	}).(map[string]any); have["done"] != true {
		t.Errorf("what has failed was noted as done: %v", have)
	}
	if _, err := r.handle("shard.list", map[string]any{"map": "male"}); !model.IsPermanent(err) {
		t.Errorf("an unknown map: %v", err)
	}
}

// A role that is called like the schema of the fences would find it first: what the SQL of others makes
// without a schema is made in public all the same, and what that sets ends with it.
func TestSQLOfARoleCalledProcaasRunsInPublic(t *testing.T) {
	t.Parallel()
	r := newRig(t, strings.Replace(mailMap, "CONNECT", "ADMIN", 1))
	r.enroll("mail")
	for _, sql := range []string{"create table notes (id int); set search_path = procaas", "create table more (id int)"} {
		r.must("shard.run", map[string]any{"map": "mail", "shard": "s1", "sql": sql})
	}
	var schemas string
	r.ask("s1", "select string_agg(schemaname || '.' || tablename, ' ' order by tablename) from pg_tables where tablename in "+
		"('notes', 'more')", &schemas)
	if schemas != "public.more public.notes" {
		t.Errorf("the tables are %s, want both in public", schemas)
	}
}

// Rows that have left a shard, and the space that they leave, do not count. Otherwise a shard that was closed would
// never open again, and each round would choose more keys.
func TestUsageFallsWhenRowsLeave(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	r.enroll("mail")
	used := func() (now, size int64) {
		t.Helper()
		if have := r.list(r.must("shard.usage", nil), "failed", "shard"); have != "" {
			t.Fatalf("shards that could not be measured: %s", have)
		}
		r.ask("map", "select used from shards where id = 's1'", &now)
		r.ask("s1", "select pg_database_size(current_database())", &size)
		return now, size
	}
	// The server must not tidy up by itself between two looks.
	r.exec("s1", "alter table messages set (autovacuum_enabled = false, toast.autovacuum_enabled = false)")
	empty, _ := used()
	r.exec("s1", "insert into messages select k, n, '', repeat('x', 300) from generate_series(1, 4) k, generate_series(1, 5000) n")
	// Values of their own rows in the table of large values.
	r.exec("s1", `insert into messages select 5, n, '', (select string_agg(md5(n || '/' || i), '') from generate_series(1, 200) i)
		from generate_series(1, 500) n`)
	fresh, _ := used() // before anything is analyzed
	r.exec("s1", "analyze messages")
	full, size := used()
	if full < empty+9<<20 || full > size || fresh < full/2 {
		t.Fatalf("%d bytes are used, %d before they were analyzed, of %d; at first %d", full, fresh, size, empty)
	}
	near := func(when string, want int64) {
		t.Helper()
		have, size := used()
		if have < want*8/10 || have > want*12/10 {
			t.Errorf("%s: %d bytes are used, want about %d; the size is %d", when, have, want, size)
		}
	}
	r.exec("s1", "delete from messages where user_id in (3, 4, 5)")
	var statistics string // which the server counts soon
	patience.Until(t, "the deletions are counted", func() bool {
		r.ask("s1", "select n_dead_tup::text from pg_stat_user_tables where relname = 'messages'", &statistics)
		return statistics == "10500"
	})
	half := empty + (full-empty)*4/10
	near("deleted", half)
	r.exec("s1", "vacuum (truncate false) messages")
	near("vacuumed", half)
	_, after := used()
	if after < size {
		t.Errorf("the database has shrunk to %d bytes, so this test shows nothing", after)
	}
}

// transfer writes down a transfer as one that has begun.
func (r *rig) transfer(t transfers.ShardTransfer) {
	r.t.Helper()
	t.Map, t.Lane = "mail", "mail/"+t.ID
	value, err := json.Marshal(t)
	if err != nil {
		r.t.Fatal(err)
	}
	_, err = r.docs.WriteDocuments(r.t.Context(), 0,
		[]store.DocumentWrite{{Kind: transfers.DocShardTransfer, Name: t.Lane, Version: store.AnyVersion, Value: value}}, nil)
	if err != nil {
		r.t.Fatal(err)
	}
}

// What already leaves a shard, or comes to it, counts as if it had arrived. Otherwise each round would choose more
// keys than needed, until the transfers of the first one end.
func TestMovesCountWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	r.docs = enginetest.NewMemory()
	m, ctx := r.enroll("mail"), t.Context()
	for i := range 10 {
		if _, err := m.Place(ctx, fmt.Sprint(i), "s1", nil); err != nil {
			t.Fatal(err)
		}
	}
	r.exec("s1", "insert into messages select k, n, '', '' from generate_series(0, 9) k, generate_series(1, 10) n")
	r.exec("s1", "analyze messages")
	const mb = 1000 * 1000
	// Of ten keys of 9 MB each, two must leave to come below 80 MB.
	r.exec("map", "update shards set capacity = 100000000, used = case id when 's1' then 90000000 else 60000000 end")
	choose := func() string {
		t.Helper()
		return r.list(r.must("shard.moves", map[string]any{"reason": "usage", "smallest": 0, "largest": 1}), "moves", "key", "size")
	}
	if have := choose(); have != "8 9000000, 9 9000000" {
		t.Fatalf("chosen are %q, want two keys", have)
	}
	r.transfer(transfers.ShardTransfer{
		ID: "t1", Key: "8", Source: "s1", Target: "s2", Size: 9 * mb, State: transfers.TransferWaiting,
		Waits: "it waits for the hours 22-6",
	})
	if have := choose(); have != "9 9000000" {
		t.Errorf("while 8 waits: chosen are %q, want 9", have)
	}
	r.transfer(transfers.ShardTransfer{ID: "t2", Key: "9", Source: "s1", Target: "s2", Size: 9 * mb, State: transfers.TransferRunning})
	if have := choose(); have != "" {
		t.Errorf("while both are under way: chosen are %q", have)
	}
	// Both would fill the target above 80 MB, with the third one that comes to it.
	r.transfer(transfers.ShardTransfer{ID: "t2", Key: "9", Source: "s1", Target: "s2", Size: 9 * mb, State: transfers.TransferDone})
	r.transfer(transfers.ShardTransfer{ID: "t3", Key: "99", Source: "s2", Target: "s2", Size: 12 * mb, State: transfers.TransferRunning})
	if have := choose(); have != "" {
		t.Errorf("while the target fills up: chosen are %q", have)
	}
	// A drain keeps as many transfers going as it may, and no more.
	why := "old disks"
	if _, err := r.SetShard(ctx, "mail", "s1", transfers.ShardChange{Draining: &why}, store.Actor{}); err != nil {
		t.Fatal(err)
	}
	r.exec("map", "update shards set used = 0")
	drain := r.must("shard.moves", map[string]any{"reason": "drain", "limit": 4})
	if have := r.list(drain, "moves", "key"); have != "0, 1, 2" {
		t.Errorf("a drain of 4 at once moves %q beside 8, want three keys", have)
	}
}

// Keys that came back to a shard leave it again when it is drained again, also on the same day.
func TestEachDrainIsARequestOfItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	m, ctx := r.enroll("mail"), t.Context()
	if _, err := m.Place(ctx, "1", "s1", nil); err != nil {
		t.Fatal(err)
	}
	set := func(why string) {
		t.Helper()
		if _, err := r.SetShard(ctx, "mail", "s1", transfers.ShardChange{Draining: &why}, store.Actor{}); err != nil {
			t.Fatal(err)
		}
	}
	id := func() string {
		t.Helper()
		return r.list(r.must("shard.moves", map[string]any{"reason": "drain"}), "moves", "id")
	}
	set("old disks")
	first := id()
	if again := id(); first == "" || again != first {
		t.Errorf("one request has the moves %q and %q, want one id", first, again)
	}
	set("")
	if have := id(); have != "" {
		t.Errorf("an open shard has the moves %q", have)
	}
	set("old disks")
	if second := id(); second == "" || second == first {
		t.Errorf("the second request has the move %q, as the first one", second)
	}
}

// While a preflight stops the transfers of a shard, none is chosen, and the shard cannot be drained.
func TestNothingIsChosenWhileAFindingIsOpen(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	m, ctx := r.enroll("mail"), t.Context()
	if _, err := m.Place(ctx, "1", "s1", nil); err != nil {
		t.Fatal(err)
	}
	const broken = "alter table messages drop constraint messages_pkey, add primary key (user_id, id, folder) deferrable"
	const mended = "alter table messages drop constraint messages_pkey, add primary key (user_id, id, folder)"
	drain := func(why string) error {
		_, err := r.SetShard(ctx, "mail", "s1", transfers.ShardChange{Draining: &why}, store.Actor{})
		return err
	}
	for _, shard := range []string{"s1", "s2"} {
		r.exec(shard, broken)
		if err := drain("old disks"); !errors.Is(err, transfers.ErrShardFindings) || !strings.Contains(err.Error(), "shard "+shard+": table messages") {
			t.Errorf("a drain with a finding of %s: %v", shard, err)
		}
		views, err := m.ShardViews(ctx, "s1")
		if err != nil || views[0].Draining != "" {
			t.Errorf("after the refusal: %+v, %v", views, err)
		}
		r.exec(shard, mended)
		if err := drain("old disks"); err != nil {
			t.Fatal(err)
		}
		r.exec(shard, broken)
		choice := r.must("shard.moves", map[string]any{"reason": "drain"})
		if have := r.list(choice, "moves", "key"); have != "" {
			t.Errorf("with a finding of %s the choice is %q, want none", shard, have)
		}
		if have := r.list(choice, "homeless", "shard", "reason"); !strings.HasPrefix(have, "s1 ") || shard == "s1" && !strings.Contains(have, "deferrable") {
			t.Errorf("with a finding of %s the homeless are %q", shard, have)
		}
		r.exec(shard, mended)
		if have := r.list(r.must("shard.moves", map[string]any{"reason": "drain"}), "moves", "key"); have != "1" {
			t.Errorf("after the mend of %s the choice is %q, want 1", shard, have)
		}
		if err := drain(""); err != nil {
			t.Fatal(err)
		}
	}
}
