package sharding_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/jackc/pgx/v5"

	"procaas/dsl/tree"
	"procaas/engine/store"
	"procaas/engine/transfers"
	"procaas/handlers/sharding/preflight"
)

// zooMap returns a map for a schema of the zoo. Tables are letters, or those of the arguments, such
// as tables=(letters:folder), where letters has the columns user_id and folder for the key.
func (r *rig) zooMap(d *datadriven.TestData) *tree.ShardMap {
	m := *r.declared[0]
	m.Tables = []*tree.ShardTable{{Table: "letters", Key: []string{"user_id"}}}
	m.Key = []string{"user", "folder"}
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "tables":
			m.Tables = nil
			for _, v := range arg.Vals {
				name, folder, parts := strings.Cut(v, ":")
				t := &tree.ShardTable{Table: name, Key: []string{"user_id"}}
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

// Each schema of the zoo says what the preflight finds, what enroll does, and whether the tables can
// be written afterwards. Of a refused schema, it also says what writers would meet if the tables
// were published all the same.
func TestZooOfSchemas(t *testing.T) {
	t.Parallel()
	r := newRig(t, mailMap)
	datadriven.RunTest(t, "../../testdata/shards/zoo.txt", func(t *testing.T, d *datadriven.TestData) string {
		r.t = t
		r.exec("s1", `do $$ declare p text; begin
			for p in select pubname from pg_publication loop execute format('drop publication %I', p); end loop; end $$;
			drop schema if exists procaas, aside cascade; drop schema public cascade; create schema public; create schema aside`)
		r.exec("s1", d.Input)
		declared := r.zooMap(d)
		if err := r.Apply(t.Context(), []*tree.ShardMap{declared}); err != nil {
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
