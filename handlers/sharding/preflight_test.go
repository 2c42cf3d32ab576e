package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/jackc/pgx/v5"

	"procaas/engine/store"
	"procaas/handlers/sharding/language"
	"procaas/handlers/sharding/preflight"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfer"
	"procaas/handlers/sharding/transfers"
)

// zooMap returns a map for a schema of the zoo. Tables are letters, or those of the arguments, such
// as tables=(letters:folder), where letters has the columns user_id and folder for the key.
func (r *rig) zooMap(d *datadriven.TestData) *language.ShardMap {
	m := *r.declared[0]
	m.Tables = []*language.ShardTable{{Table: "letters", Key: []string{"user_id"}}}
	m.Key = []string{"user", "folder"}
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "tables":
			m.Tables = nil
			for _, v := range arg.Vals {
				name, folder, parts := strings.Cut(v, ":")
				t := &language.ShardTable{Table: name, Key: []string{"user_id"}}
				if parts {
					t.Key = append(t.Key, folder)
				}
				m.Tables = append(m.Tables, t)
			}
		case "stays":
			m.Stays = arg.Vals
		case "key-type":
			m.KeyType = arg.Vals[0]
		case "strategy": // a map cannot change its strategy
			m.ID, m.Strategy = arg.Vals[0], arg.Vals[0]
		}
	}
	return &m
}

// identifier quotes the name of a table.
func identifier(table string) string { return pgx.Identifier(strings.Split(table, ".")).Sanitize() }

// writes tries to change an existing row of a table, and returns the errors.
func (r *rig) writes(table string) string {
	for _, sql := range []string{"update %s set user_id = user_id", "delete from %s"} {
		if err := r.try("s1", "begin; "+fmt.Sprintf(sql, identifier(table))+"; rollback"); err != nil {
			return strings.ReplaceAll(err.Error(), "\n", " ")
		}
	}
	return "ok"
}

// fill gives each table of a map a row, with the key in all its columns that take it. Foreign keys are
// not checked, because parents may be tables of others.
func (r *rig) fill(m *shardmap.Map, key string) error {
	for _, t := range m.Declared.Tables {
		var insert string
		r.ask("s1", fmt.Sprintf(`select format('insert into %%s (%%s) overriding system value values (%%s)', $t$%[1]s$t$,
			string_agg(quote_ident(attname), ', '), string_agg(quote_literal(case when atttypid in ('date'::regtype, 'timestamptz'::regtype)
			then '2026-01-01' when atttypid = 'bool'::regtype then 'true' when attname = 'month' then substring($t$%[1]s$t$ from '\d')
			else '%[2]s' end), ', ')) from pg_attribute
			where attrelid = $t$%[1]s$t$::regclass and attnum > 0 and not attisdropped and attgenerated = ''`, identifier(t.Table), key), &insert)
		if err := r.try("s1", "set session_replication_role = replica; "+insert); err != nil {
			return err
		}
	}
	return nil
}

// rows counts the rows of all tables of a map on a shard.
func (r *rig) rows(m *shardmap.Map, shard string) (sum int) {
	for _, t := range m.Declared.Tables {
		var n int
		r.ask(shard, "select count(*) from "+identifier(t.Table), &n)
		sum += n
	}
	return sum
}

// move transfers a placement by the stream, or else by lock-copy-switch, like method auto of shard.plan.
// It says how, or why it does not move.
func (r *rig) move(m *shardmap.Map, key, source, target string) string {
	ctx := r.t.Context()
	fatal := func(err error) {
		if err != nil {
			r.t.Fatal(err)
		}
	}
	tr, err := m.BeginTransfer(ctx, shardmap.Begin{Key: key, Target: target, Transfer: "zoo_" + target})
	fatal(err)
	spec := transfer.Spec{
		ID: "zoo_" + target, Map: m.ID, Key: key, SourceShard: source, TargetShard: target, Source: r.shards[source],
		Target: r.shards[target], OneWay: true, Stays: m.Declared.Stays, Elsewhere: m.Elsewhere(),
		Limits: transfer.Limits{Freeze: time.Minute, Lock: 5 * time.Second, Ping: 30 * time.Second, Slot: time.Minute, DDL: time.Minute},
	}
	for _, t := range m.Declared.Tables {
		spec.Listed = append(spec.Listed, t.Table)
		if rows, ok, err := m.Rows(ctx, t, key); err != nil {
			fatal(err)
		} else if ok {
			spec.Tables = append(spec.Tables, rows)
		}
	}
	mover, err := transfer.Open(ctx, spec, transfer.Claim{Owner: tr.Owner, Epoch: tr.Epoch, Next: tr.Next})
	fatal(err)
	defer func() { fatal(mover.Close()) }()
	fatal(mover.Claim(ctx))
	turn := func(context.Context) error { return m.Switch(ctx, tr) }
	method := "stream"
	steps := []func(context.Context) error{mover.Plan, mover.Copy, mover.Stream, mover.Verify, func(ctx context.Context) error {
		_, err := mover.Cutover(ctx, turn)
		return err
	}}
	if _, refused := errors.AsType[*transfer.RefusedError](mover.Plan(ctx)); refused {
		method = "lock-copy-switch"
		steps = []func(context.Context) error{mover.PlanLocked, func(ctx context.Context) error {
			_, err := mover.LockCopySwitch(ctx, turn)
			return err
		}}
	}
	before := r.rows(m, source)
	for _, step := range steps {
		if err := step(ctx); err != nil {
			fatal(errors.Join(mover.Undo(ctx), m.Abort(ctx, tr)))
			return method + ": " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
	}
	fatal(errors.Join(mover.Retire(ctx), mover.Cleanup(ctx)))
	if there, left := r.rows(m, target), r.rows(m, source); there != before || left != 0 {
		return fmt.Sprintf("%s: %d of %d rows, and %d are left", method, there, before, left)
	}
	return method
}

// movesBoth moves a key to s2 and back.
func (r *rig) movesBoth(m *shardmap.Map, key string) string {
	if err := r.fill(m, key); err != nil {
		return "move: no rows: " + err.Error()
	}
	if _, err := m.Place(r.t.Context(), key, "s1", nil); err != nil {
		r.t.Fatal(err)
	}
	there := r.move(m, key, "s1", "s2")
	if strings.Contains(there, ": ") {
		return "move: " + there
	}
	return "move: " + there + "\nback: " + r.move(m, key, "s2", "s1")
}

// Each schema of the zoo says what the preflight finds, what enroll does, and whether the tables can
// be written afterwards, and how a key moves to another shard and back. Of a refused schema, it also
// says what writers would meet if the tables were published all the same.
func TestZooOfSchemas(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	clean := func(shard string) {
		r.exec(shard, `do $$ declare p text; begin
			for p in select pubname from pg_publication loop execute format('drop publication %I', p); end loop; end $$;
			drop schema if exists procaas, aside cascade; drop schema public cascade; create schema public; create schema aside`)
	}
	place, version := 0, r.version("s1")
	datadriven.RunTest(t, "../../testdata/shards/zoo.txt", func(t *testing.T, d *datadriven.TestData) string {
		r.t = t
		var before int // the first version of PostgreSQL that has no such schema
		if d.MaybeScanArgs(t, "before", &before); before > 0 && version >= before {
			return d.Expected
		}
		place++
		clean("s1")
		r.exec("s1", d.Input)
		declared := r.zooMap(d)
		if err := r.Apply(t.Context(), []*language.ShardMap{declared}); err != nil {
			t.Fatal(err)
		}
		found, err := r.CheckShards(t.Context(), declared.ID, "s1")
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		blocked := false
		for _, f := range found.Findings {
			fmt.Fprintf(&out, "%s: %s\n", f.Level, f)
			blocked = blocked || f.Level == transfers.FindingError
		}
		e, err := r.EnrollShard(t.Context(), declared.ID, "s1", store.Actor{})
		switch {
		case err != nil:
			fmt.Fprintf(&out, "enroll: %v\n", err)
		case len(e.Reasons) > 0 && !blocked:
			fmt.Fprintf(&out, "enroll: %s\n", strings.Join(e.Reasons, "\n"))
		case len(e.Reasons) > 0:
			out.WriteString("enroll: refused\n")
		default:
			out.WriteString("enroll: ready\n")
		}
		for _, table := range declared.Tables {
			fmt.Fprintf(&out, "write %s: %s\n", table.Table, r.writes(table.Table))
		}
		if !blocked && err == nil && len(e.Reasons) == 0 && declared.Strategy != "range" {
			clean("s2")
			r.exec("s2", d.Input)
			if e, err := r.EnrollShard(t.Context(), declared.ID, "s2", store.Actor{}); err != nil || len(e.Reasons) > 0 {
				t.Fatal(e.Reasons, err)
			}
			fmt.Fprintln(&out, r.movesBoth(r.themap(declared.ID), fmt.Sprint(place)))
		}
		if !blocked {
			return out.String()
		}
		for _, table := range declared.Tables {
			hash := map[string]string{"int": "hashint8extended", "text": "hashtextextended"}[declared.KeyType]
			err := r.try("s1", fmt.Sprintf("create publication probe for table %s where ((%s(user_id, 0) & 15) = 0)", identifier(table.Table),
				hash))
			if err != nil {
				fmt.Fprintf(&out, "published %s: %v\n", table.Table, err)
				continue
			}
			fmt.Fprintf(&out, "published %s: %s\n", table.Table, r.writes(table.Table))
			r.exec("s1", "drop publication probe")
		}
		return out.String()
	})
}

// Enroll tries each table after it has made the publications, in the same transaction.
func TestTryFindsWhatAPublicationBreaks(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	r.exec("s1", "create table letters (user_id bigint, id bigint generated always as identity, primary key (user_id, id) deferrable)")
	tables := []preflight.Table{{Name: "letters"}, {Name: "messages"}}
	tx, err := r.dial("s1").Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ sql, want string }{
		{"select", ""},
		{"create publication p for table messages, letters where (user_id = 1)", "update, delete"},
	} {
		if _, err := tx.Exec(t.Context(), x.sql); err != nil {
			t.Fatal(err)
		}
		found, err := preflight.Try(t.Context(), tx, tables)
		if err != nil {
			t.Fatal(err)
		}
		var verbs []string
		for i, f := range found {
			if f != nil && f.Table == "letters" && strings.Contains(f.Problem, "publication WHERE expression") {
				verbs = append(verbs, []string{"update", "insert", "delete"}[i])
			} else if f != nil {
				t.Errorf("after %s: %v", x.sql, f)
			}
		}
		if have := strings.Join(verbs, ", "); have != x.want {
			t.Errorf("after %s: refused are %q, want %q", x.sql, have, x.want)
		}
	}
}
