package sharding_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"procaas/engine/enginetest"
	"procaas/engine/store"
	"procaas/handlers/sharding/language"
	"procaas/handlers/sharding/template"
)

// kills ends the connection that creates a view.
const kills = `create function die() returns event_trigger language plpgsql as $$ begin perform pg_terminate_backend(pg_backend_pid()); end $$;
	create event trigger die on ddl_command_end when tag in ('CREATE VIEW') execute function die()`

// A new shard is made from an empty database, also if the first attempt dies in the middle. It takes
// no keys before it is enrolled.
func TestShardIsAddedByATemplate(t *testing.T) {
	t.Parallel()
	enginetest.Needs(t, "pg_dump")
	r := newRig(t, mailMap)
	both := r.declared[0].Shards
	r.declare("grown", both[:1])
	if err := r.Apply(t.Context(), r.declared); err != nil {
		t.Fatal(err)
	}
	r.declare("grown", both)
	if err := r.Apply(t.Context(), r.declared); err != nil {
		t.Fatal(err)
	}
	m := r.themap("grown")
	closed := func() string {
		views, err := m.ShardViews(t.Context(), "s2")
		if err != nil || len(views) != 1 || views[0].Place != 1 {
			t.Fatal(views, err)
		}
		return views[0].Closed
	}
	if why := closed(); why != "it is not enrolled yet" {
		t.Errorf("a new shard of a map is closed for %q", why)
	}
	database := m.Declared.Connect.Database
	reader := database + "_reader"
	guest := database + "_guest"
	r.exec("s1", `create role `+guest+`; revoke all on database `+database+` from public; grant connect on database `+database+` to `+guest+`;
		alter database `+database+` set statement_timeout to '30s';
		alter role `+guest+` in database `+database+` set search_path to "$user", public, "odd one";
		alter default privileges in schema public grant select on tables to `+guest+`;
		create table countries (id int); insert into countries values (1); create table nobody (id int)`)
	r.exec("s1", `create role `+reader+` login password 'secret-of-the-reader';
		drop table labels; create type colour as enum ('red', 'green');
		create table labels (user_id bigint, id bigint generated always as identity (minvalue 1 maxvalue 1000000000000000), c colour,
			primary key (user_id, id));
		create view greens as select * from labels where c = 'green'; grant select on labels to `+reader)
	t.Cleanup(func() {
		for _, shard := range []string{"s1", "s2"} {
			_ = r.try(shard, "drop owned by "+reader+"; drop role "+reader)
			_ = r.try(shard, "drop owned by "+guest+"; drop role "+guest)
		}
	})
	r.exec("s2", "drop table messages, labels; "+kills)
	o := template.Options{From: r.shards["s1"], To: r.shards["s2"], Place: 1}
	if _, err := template.Copy(t.Context(), o); err == nil {
		t.Fatal("it was not killed")
	}
	var left int
	r.ask("s2", "select (select count(*) from pg_class where relnamespace = 'public'::regnamespace) + "+
		"(select count(*) from pg_roles where rolname in ('"+reader+"', '"+guest+"'))", &left)
	if left != 0 {
		t.Fatalf("the attempt that was killed has left %d things", left)
	}
	r.exec("s2", "drop event trigger die; drop function die")
	done, err := template.Copy(t.Context(), o)
	if err != nil || !done.Copied || len(done.Roles) != 2 || !slices.Equal(done.Locked, []string{guest}) || len(done.Ranges) != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	if again, err := template.Copy(t.Context(), o); err != nil || again.Copied || len(again.Roles) > 0 {
		t.Errorf("again: %+v, %v", again, err)
	}
	for range 2 {
		if e, err := r.EnrollShard(t.Context(), "grown", "s2", store.Actor{}); err != nil || len(e.Reasons) > 0 {
			t.Fatalf("%+v, %v", e, err)
		}
	}
	if why := closed(); why != "" {
		t.Errorf("an enrolled shard is closed: %s", why)
	}
	r.exec("s2", "insert into labels (user_id, c) values (42, 'green')")
	var id int64
	if r.ask("s2", "select id from greens", &id); id != 1_000_000_000_000_001 {
		t.Errorf("the first number of the second shard is %d", id)
	}
	var readable bool
	if r.ask("s2", "select has_table_privilege('"+reader+"', 'labels', 'select')", &readable); !readable {
		t.Error("the reader may not read")
	}
	// What pg_dump leaves out is there, too, and shared rows are named.
	const rights = "select coalesce(datacl::text, '') from pg_database where datname = current_database() union all " +
		"select coalesce(setrole::regrole::text, '') || setconfig::text from pg_db_role_setting join pg_database d on d.oid = setdatabase " +
		"where datname = current_database() union all select defaclacl::text from pg_default_acl order by 1"
	list := func(shard string) (out string) {
		r.ask(shard, "select string_agg(x, e'\n') from ("+rights+") y (x)", &out)
		return out
	}
	if want, have := list("s1"), list("s2"); want != have || !strings.Contains(have, "odd one") {
		t.Errorf("rights and settings: have\n%s\nwant\n%s", have, want)
	}
	if !slices.Contains(done.Shared, "countries") || slices.Contains(done.Shared, "nobody") || slices.Contains(done.Shared, "labels") {
		t.Errorf("shared tables: have %v, want countries", done.Shared)
	}
	r.exec("s2", "create table other (id bigint)")
	_, err = template.Copy(t.Context(), o)
	if !errors.Is(err, template.ErrNotEmpty) || !strings.Contains(err.Error(), "it has public.other") {
		t.Errorf("another schema: %v", err)
	}
}

// A shard keeps its place, and so the range of its sequences, if the map declares another one before it
// or drops it for some time. No other shard gets its place.
func TestShardsKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	first, second := *r.declared[0].Shards[0], *r.declared[0].Shards[1]
	third := second
	third.ID = "s0"
	for _, step := range []struct {
		declared []*language.Shard
		want     string
	}{
		{[]*language.Shard{&first, &second}, "s1 0, s2 1"},
		{[]*language.Shard{&third, &first, &second}, "s0 2, s1 0, s2 1"},
		{[]*language.Shard{&third, &second}, "s0 2, s2 1"},
		{[]*language.Shard{&second, &first, &third}, "s0 2, s1 0, s2 1"},
	} {
		r.declare("placed", step.declared)
		if err := r.Apply(t.Context(), r.declared); err != nil {
			t.Fatal(err)
		}
		views, err := r.themap("placed").ShardViews(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, v := range views {
			have = append(have, fmt.Sprint(v.ID, " ", v.Place))
		}
		if have := strings.Join(have, ", "); have != step.want {
			t.Errorf("the places are %s, want %s", have, step.want)
		}
	}
}

// declare declares a map with other shards in place of the first one. The map in use stays as it is, since its node reads it.
func (r *rig) declare(id string, shards []*language.Shard) {
	changed := *r.declared[0]
	changed.ID, changed.Shards = id, shards
	r.declared[0] = &changed
}
