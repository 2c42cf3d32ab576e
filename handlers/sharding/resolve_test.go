package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest/patience"
	"procaas/engine/store"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfers"
)

// resolve asks until hosts are known to answer: on a busy machine looks may time out.
func resolve(t testing.TB, s *shardmap.Service, q transfers.ShardQuestion) (a transfers.ShardAnswer, err error) {
	t.Helper()
	patience.Until(t, "a host of the shard of "+q.Key, func() bool {
		a, err = s.Resolve(t.Context(), "mail", q)
		return !errors.Is(err, transfers.ErrNoHost)
	})
	return a, err
}

func TestResolveGivesWhatAWriterNeeds(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	m, ctx := r.enroll("mail"), t.Context()
	if _, err := m.Place(ctx, "42", "s2", nil); err != nil {
		t.Fatal(err)
	}
	var a transfers.ShardAnswer
	patience.Until(t, "a look at the hosts", func() bool {
		var err error
		if a, err = resolve(t, r.Service, transfers.ShardQuestion{Key: "42/inbox", Mode: transfers.ShardMaster}); err != nil {
			t.Fatal(err)
		}
		return len(a.Hosts) == 1 && a.Hosts[0].Role == "master"
	})
	if a.Shard != "s2" || a.Placement != "42" || a.Epoch != 1 || a.Class != "hot" || a.Moving {
		t.Errorf("have %+v", a)
	}
	conn, err := pgx.Connect(ctx, a.DSN)
	if err != nil {
		t.Fatalf("connect to %s: %v", a.DSN, err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "select procaas.guard($1, $2, $3)", a.Map, a.Placement, a.Epoch); err != nil {
		t.Error(err)
	}
	for key, want := range map[string]error{
		"x": transfers.ErrShardKey, "": transfers.ErrShardKey, "42/a/b": transfers.ErrShardKey,
		"43": transfers.ErrUnplaced,
	} {
		if _, err := r.Resolve(ctx, "mail", transfers.ShardQuestion{Key: key}); !errors.Is(err, want) {
			t.Errorf("key %q: %v, want %v", key, err, want)
		}
	}
	if _, err := r.Resolve(ctx, "male", transfers.ShardQuestion{Key: "42"}); !errors.Is(err, transfers.ErrShardMap) {
		t.Errorf("unknown map: %v", err)
	}
	if _, err := r.Resolve(ctx, "mail", transfers.ShardQuestion{Key: "42", Mode: transfers.ShardReplica}); !errors.Is(err,
		transfers.ErrNoHost) {
		t.Errorf("a replica of a shard without any: %v", err)
	}
}

// A change that another process makes reaches those who wait for it and those who watch.
func TestChangesReachOtherProcesses(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	m, ctx := r.enroll("mail"), t.Context()
	other, err := shardmap.Open(ctx, shardmap.Options{DSN: r.dsn, Maps: r.declared, Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	p, err := m.Place(ctx, "42", "s1", nil)
	if err != nil {
		t.Fatal(err)
	}
	start, err := other.Watch(ctx, "mail", "")
	if err != nil || !start.Reset {
		t.Fatalf("the first position: %+v, %v", start, err)
	}
	if a, err := resolve(t, other, transfers.ShardQuestion{Key: "42"}); err != nil || a.Shard != "s1" {
		t.Fatalf("before: %+v, %v", a, err)
	}
	answers := make(chan transfers.ShardAnswer)
	go func() {
		var a transfers.ShardAnswer
		for a.Epoch <= p.Epoch && ctx.Err() == nil {
			a, _ = other.Resolve(ctx, "mail", transfers.ShardQuestion{Key: "42", AfterEpoch: p.Epoch})
		}
		answers <- a
	}()
	tr, err := m.BeginTransfer(ctx, shardmap.Begin{Key: "42", Target: "s2", Transfer: "t"})
	if err == nil {
		err = m.Switch(ctx, tr)
	}
	if err != nil {
		t.Fatal(err)
	}
	if a := <-answers; a.Shard != "s2" || a.Epoch != tr.Next {
		t.Errorf("who waited for the switch was told %+v", a)
	}
	patience.Until(t, "the switch in the feed", func() bool {
		changes, err := other.Watch(ctx, "mail", start.Next)
		if err != nil {
			t.Fatal(err)
		}
		start = changes
		return slices.Contains(changes.Items, transfers.ShardPlacement{Placement: "42", Shard: "s2", Epoch: tr.Next})
	})
	wait, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if c, err := other.Watch(wait, "mail", start.Next); err != nil || c.Reset {
		t.Errorf("nothing new: %+v, %v", c, err)
	}
	// Files that are read again make a new index: those that wait for changes of the former one learn of it.
	told := make(chan transfers.ShardChanges, 1)
	go func() {
		c, err := other.Watch(ctx, "mail", start.Next)
		if err != nil {
			t.Error(err)
		}
		told <- c
	}()
	if err := other.Apply(ctx, r.declared); err != nil {
		t.Fatal(err)
	}
	if c := <-told; !c.Reset || c.Next == start.Next {
		t.Errorf("after the files were read again: %+v", c)
	}
}

const otherMaps = `shard-maps:
  - id: tasks
    key: task
    strategy: slots
    slots: 8
    tables: [{table: tasks}]
    CONNECT
    shards: [{id: s1, slots: 0-3, hosts: [{address: HOST1}]}, {id: s2, slots: 4-7, hosts: [{address: HOST2}]}]
  - id: days
    key: day
    key-type: int
    strategy: range
    tables: [{table: days}]
    CONNECT
    shards: [{id: s1, from: [""], hosts: [{address: HOST1}]}, {id: s2, from: ["-5", "100"], hosts: [{address: HOST2}]}]
`

// Memory, the database of the map and the shard agree on what belongs to a slot or a stretch.
func TestSlotsAndStretches(t *testing.T) {
	t.Parallel()
	r := newRig(t, otherMaps)
	ctx := t.Context()
	for _, shard := range []string{"s1", "s2"} {
		r.exec(shard, `create table tasks (task text primary key); create table days (day int primary key);
			insert into tasks select 'task-' || n from generate_series(1, 50) n; insert into days select * from generate_series(-20, 120)`)
	}
	for _, id := range []string{"tasks", "days"} {
		m := r.enroll(id)
		single := map[string]string{"tasks": "task-7", "days": "50"}[id]
		if _, err := m.Split(ctx, single, store.Actor{}); err != nil {
			t.Fatal(err)
		}
		var keys []string
		table := m.Declared.Tables[0]
		r.collect("s1", fmt.Sprintf("select %s::text from %s", m.Declared.Key[0], id), &keys)
		rows := map[string][]string{}
		for _, key := range keys {
			found, err := m.Find(ctx, key)
			if err != nil {
				t.Fatal(err)
			}
			patience.Until(t, "memory to know "+key, func() bool { p, ok := m.Cached(key); return ok && p == found })
			rows[found.Key] = append(rows[found.Key], key)
			if found.Key == single != (key == single) {
				t.Errorf("%s is in %s", key, found.Key)
			}
			if state := r.guard(found.Shard, found); state != "" {
				t.Errorf("guard of %+v: %s", found, state)
			}
		}
		for placement, want := range rows {
			where := r.where(m, table, placement)
			var have []string
			r.collect("s1", fmt.Sprintf("select %s::text from %s where %s", m.Declared.Key[0], id, where), &have)
			slices.Sort(have)
			slices.Sort(want)
			if !slices.Equal(have, want) {
				t.Errorf("rows of %s where %s: %v, want %v", placement, where, have, want)
			}
			r.published(m, placement, where)
		}
		if id == "days" && !slices.Contains(rows["[-5"], "-5") {
			t.Errorf("stretches: %v", rows)
		}
	}
}

// published checks that the rows that a condition selects are in the publication of a
// placement.
func (r *rig) published(m *shardmap.Map, placement, where string) {
	r.t.Helper()
	var filter string
	r.ask("s1", fmt.Sprintf("select coalesce((select rowfilter from pg_publication_tables where pubname = '%s' and tablename = '%s'), 'true')",
		m.Publication(placement), m.ID), &filter)
	var missing int
	r.ask("s1", fmt.Sprintf("select count(*) from %s where %s and not (%s)", m.ID, where, filter), &missing)
	if missing > 0 {
		r.t.Errorf("%d rows of %s are not in %s, where %s", missing, placement, m.Publication(placement), filter)
	}
}

func (r *rig) collect(shard, sql string, into *[]string) {
	r.t.Helper()
	c, err := pgx.Connect(r.t.Context(), r.shards[shard])
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(r.t.Context()))
	rows, err := c.Query(r.t.Context(), sql)
	if err == nil {
		*into, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

func TestEnrollRefusesWithReasons(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	m := r.themap("mail")
	for _, c := range []struct{ sql, want string }{
		{"drop table labels", "table labels: there is none"},
		{
			"create table labels (user_id bigint, id bigint primary key)",
			"table labels: the column user_id, which holds a part of the key, is not in its primary key",
		},
		{"drop table labels; create table labels (user_id text, id bigint, primary key (user_id, id))", "table labels: the column user_id is " +
			"text, want bigint"},
		{"drop table labels; create table labels (u bigint primary key)", "table labels: it has no column user_id"},
		{
			"drop table labels; create table labels (user_id bigint primary key); alter table labels replica identity nothing",
			"table labels: its replica identity is neither",
		},
	} {
		r.exec("s1", c.sql)
		e, err := r.Enroll(t.Context(), m, "s1")
		if err != nil || !slices.ContainsFunc(e.Reasons, func(s string) bool { return len(s) >= len(c.want) && s[:len(c.want)] == c.want }) {
			t.Errorf("after %s: %v, %v; want %s", c.sql, e.Reasons, err, c.want)
		}
		var installed bool
		r.ask("s1", "select to_regnamespace('procaas') is not null or exists (select from pg_publication)", &installed)
		if installed {
			t.Fatalf("after %s: the shard was changed although it was refused", c.sql)
		}
	}
	r.exec("s1", "alter table labels replica identity default")
	for range 2 {
		if e, err := r.Enroll(t.Context(), m, "s1"); err != nil || len(e.Reasons) > 0 || len(e.Publications) != shardmap.Buckets {
			t.Errorf("a good shard: %+v, %v", e, err)
		}
	}
}

func TestDSNsNameTheHostsInTheirOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	u, err := url.Parse(r.themap("mail").DSN([]string{"a:1", "b:2"}, "read-write"))
	if err != nil || u.Host != "a:1,b:2" || u.Query().Get("target_session_attrs") != "read-write" || u.Query().Get("sslmode") != "disable" {
		t.Errorf("have %v, %v", u, err)
	}
}
