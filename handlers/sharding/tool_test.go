package sharding_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/engine/transfers"
	"procaas/handlers/sharding"
	"procaas/handlers/sharding/shardmap"
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
		Path: "care/x/y", Run: "r-1", Now: time.Now(), Log: slog.New(slog.DiscardHandler),
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
