package sharding_test

import (
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/store"
	"procaas/handlers/sharding"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfer"
	"procaas/handlers/sharding/transfers"
)

var scenarios = flag.Int("scenarios", 3, "how many random maps TestPartsOfKeysMoveUnderWrites moves parts of; see make test-long ONLY=transfers")

// A scenario is a map of random columns and tables, and what befalls its keys.
type scenario struct {
	parts  []columnType // of the columns that hold them
	tables []int        // how many columns of the key each has
	linked bool         // rows of narrower tables refer to those of the first one, and go with them
	steps  []scene
}

// A scene is one thing that is done to a key, and writes that come in the middle of it.
type scene struct {
	what   string // split, merge, or how a transfer ends: finish, rollback, cancel
	key    []string
	writes map[string][]write // by the point of the transfer; at the empty one before it
}

// A write puts a row into a table, or deletes it.
type write struct {
	table  int
	row    []string // values of three columns, of which the table has the first ones
	delete bool
}

var transferPoints = []string{"", "copied", "analyze", "gate", "frozen", "sealed", "switched", "retired", "cleanup"}

func drawScenario(t *rapid.T) scenario {
	first := rapid.SampledFrom([]columnType{wholeTypes[0], wholeTypes[1], textTypes[0]}).Draw(t, "first")
	later := []columnType{wholeTypes[0], wholeTypes[2], textTypes[0], textTypes[1], otherTypes[0]}
	s := scenario{
		parts:  append([]columnType{first}, rapid.SliceOfN(rapid.SampledFrom(later), 2, 2).Draw(t, "later")...),
		tables: append([]int{1}, rapid.SliceOfN(rapid.IntRange(1, 3), 2, 3).Draw(t, "tables")...),
		linked: rapid.Bool().Draw(t, "linked"),
	}
	value := func(i int) string { return rapid.SampledFrom(s.parts[i].values[:2]).Draw(t, "value") }
	for i := range s.parts {
		s.parts[i].values = slices.DeleteFunc(slices.Clone(s.parts[i].values), func(v string) bool { return v == "" })
	}
	writes := func() (out []write) {
		for range rapid.IntRange(0, 3).Draw(t, "writes") {
			out = append(out, write{
				rapid.IntRange(0, len(s.tables)-1).Draw(t, "table"),
				[]string{value(0), value(1), value(2)},
				rapid.IntRange(0, 3).Draw(t, "delete") == 0,
			})
		}
		return out
	}
	var split [][]string // what follows is mostly done to these: other keys are parts of something wider
	for i := range rapid.IntRange(5, 8).Draw(t, "steps") {
		one := scene{
			what:   rapid.SampledFrom([]string{"split", "merge", "finish", "finish", "finish", "rollback", "cancel"}).Draw(t, "what"),
			writes: map[string][]write{},
		}
		if i < 2 {
			one.what = "split"
		}
		switch {
		case one.what == "split":
			one.key = []string{value(0), value(1), value(2)}[:rapid.IntRange(2, 3).Draw(t, "parts")]
			split = append(split, one.key)
		case rapid.IntRange(0, 3).Draw(t, "wide") == 0:
			one.key = []string{value(0)}
		default:
			one.key = rapid.SampledFrom(split).Draw(t, "key")
		}
		for _, point := range transferPoints {
			one.writes[point] = writes()
		}
		s.steps = append(s.steps, one)
	}
	return s
}

// A stage plays a scenario on two shards, and knows which rows there should be.
type stage struct {
	*rig
	scenario
	m    *shardmap.Map
	have map[string]bool // rows that were acknowledged, by table and values
	hook func(point string) error
}

func (s scenario) text() string {
	var tables []string
	for i, n := range s.tables {
		tables = append(tables, fmt.Sprintf("{table: Rows%d, key: [%s]}", i, strings.Join([]string{"A", "b c", "c"}[:n], ", ")))
	}
	kind := "int"
	if !strings.Contains(s.parts[0].name, "int") {
		kind = "text"
	}
	return fmt.Sprintf("shard-maps:\n  - id: mail\n    key: [a, b, c]\n    key-type: %s\n    tables: [%s]\n    CONNECT\n"+
		"    shards: [{id: s1, hosts: [{address: HOST1}]}, {id: s2, hosts: [{address: HOST2}]}]\n", kind, strings.Join(tables, ", "))
}

// sql makes the tables. The first one has a row for each key that the others refer to by a foreign
// key, which the transfer must not act by.
func (s scenario) sql() string {
	names := []string{`"A"`, `"b c"`, "c"}
	var out []string
	for i, n := range s.tables {
		var columns []string
		for j := range n {
			columns = append(columns, names[j]+" "+s.parts[j].name)
		}
		key := strings.Join(names[:n], ", ")
		link := ""
		if s.linked && i > 0 {
			link = `, foreign key ("A") references "Rows0" on delete cascade`
		}
		out = append(out, fmt.Sprintf(`create table "Rows%d" (%s, long int generated always as (length(note)) stored, note text,
			primary key (%s)%s)`,
			i, strings.Join(columns, ", "), key, link))
	}
	return strings.Join(out, ";")
}

func newStage(t *testing.T, s scenario) *stage {
	t.Helper()
	r := newRig(t, s.text())
	for _, shard := range []string{"s1", "s2"} {
		r.exec(shard, s.sql())
	}
	r.docs = enginetest.NewMemory()
	p := &stage{rig: r, scenario: s, m: r.enroll("mail"), have: map[string]bool{}}
	for i, first := range s.parts[0].values[:2] {
		if _, err := p.m.Place(t.Context(), shardmap.Key{first}.String(), []string{"s1", "s2"}[i], nil); err != nil {
			t.Fatal(err)
		}
		p.write(write{0, []string{first}, false}) // others refer to it
	}
	return p
}

// call calls a handler of a transfer until it needs no retry.
func (p *stage) call(name, run string, fields map[string]any) error {
	types := sharding.Bind(sharding.Types(), p.Service, sharding.BindOptions{
		Limits: &transfer.Limits{
			Freeze: time.Minute, Lock: 5 * time.Second, Ping: 30 * time.Second, Slot: time.Minute, DDL: time.Minute,
			Attempts: 20,
		},
		Hook: func(point string) error { return p.hook(point) },
	})
	i := slices.IndexFunc(types, func(t engine.HandlerType) bool { return t.Name == name })
	h := types[i].New()
	if err := types[i].Spec.Decode(fields, h); err != nil {
		p.t.Fatal(err)
	}
	_, err := h.Handle(p.t.Context(), &engine.Call{
		Path: "a/b/c", Run: run, Now: time.Now(), Log: slog.New(slog.DiscardHandler),
		Documents: p.docs,
	})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

var errLeft = errors.New("left here")

// transfer moves a placement to the other shard, and ends that as the scene says.
func (p *stage) transfer(at scene, from shardmap.Placement) {
	p.t.Helper()
	// Slots have names of their server, which other scenarios use as well.
	run, target := "t_"+strings.ToLower(rand.Text()), map[string]string{"s1": "s2", "s2": "s1"}[from.Shard]
	p.hook = func(point string) error {
		todo := at.writes[point]
		delete(at.writes, point)
		for _, w := range todo {
			p.write(w)
		}
		if at.what == "cancel" && point == "gate" {
			return errLeft
		}
		return nil
	}
	steps := []string{"plan", "copy", "stream", "verify", "freeze", "switch"}
	switch at.what {
	case "finish":
		steps = append(steps, "retire", "cleanup")
	case "rollback":
		steps = append(steps, "rollback", "cleanup")
	}
	for _, step := range steps {
		fields := map[string]any{}
		switch step {
		case "plan":
			fields = map[string]any{"map": "mail", "key": from.Key, "target": target}
		case "retire":
			fields = map[string]any{"grace": "0s"}
		}
		err := p.call("shard."+step, run, fields)
		if errors.Is(err, errLeft) {
			p.hook = func(string) error { return nil }
			if err := p.call("shard.end", "end", map[string]any{"transfer": run}); err != nil {
				p.t.Fatalf("%s of %s: %v", at.what, from.Key, err)
			}
			return
		}
		if err != nil {
			p.t.Fatalf("%s of %s: %v", at.what, from.Key, err)
		}
	}
}

// write writes as a service does: it asks where the row's key lives, and calls the guard there. A
// row of a table with fewer columns has the wider key. A shard that refuses has changed nothing.
func (p *stage) write(w write) {
	p.t.Helper()
	ctx := p.t.Context()
	row := w.row[:p.tables[w.table]]
	at, err := p.m.Find(ctx, shardmap.Key(row).String())
	if err != nil {
		p.t.Fatal(err)
	}
	pool, err := p.Connect(ctx, p.m, at.Shard)
	if err != nil {
		p.t.Fatal(err)
	}
	values := make([]string, len(row))
	for i, v := range row {
		values[i] = "'" + strings.ReplaceAll(v, "'", "''") + "'"
	}
	names := strings.Join([]string{`"A"`, `"b c"`, "c"}[:len(row)], ", ")
	sql := fmt.Sprintf(`insert into "Rows%d" (%s, note) values (%s, 'x') on conflict (%s) do update set note = "Rows%d".note || 'y'`,
		w.table, names, strings.Join(values, ", "), names, w.table)
	if w.delete && (w.table > 0 || !p.linked) {
		sql = fmt.Sprintf(`delete from "Rows%d" where (%s) = (%s)`, w.table, names, strings.Join(values, ", "))
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if p.linked { // what a row refers to may live elsewhere
			if _, err := tx.Exec(ctx, "set local session_replication_role = replica"); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, "select procaas.guard('mail', $1, $2)", at.Key, at.Epoch); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		return err
	})
	var failure *pgconn.PgError
	switch {
	case errors.As(err, &failure) && failure.Code == shardmap.CodeMoved:
	case err != nil:
		p.t.Fatalf("%s: %v", sql, err)
	default:
		p.have[p.name(w.table, row)] = !strings.HasPrefix(sql, "delete")
	}
}

func (p *stage) name(table int, row []string) string {
	return fmt.Sprintf("Rows%d %q", table, row)
}

// check looks for all rows on both shards: each that was acknowledged is where the map has its key, and
// there are no others.
func (p *stage) check(when string) {
	p.t.Helper()
	found := map[string][]string{}
	for _, shard := range []string{"s1", "s2"} {
		for i, n := range p.tables {
			columns := make([]string, n)
			for j := range n {
				columns[j] = []string{`"A"`, `"b c"`, "c"}[j] + "::text"
			}
			var all [][]string
			pool, err := p.Connect(p.t.Context(), p.m, shard)
			if err == nil {
				var rows pgx.Rows
				rows, err = pool.Query(p.t.Context(), fmt.Sprintf(`select array[%s] from "Rows%d"`, strings.Join(columns, ", "), i))
				if err == nil {
					all, err = pgx.CollectRows(rows, pgx.RowTo[[]string])
				}
			}
			if err != nil {
				p.t.Fatal(err)
			}
			for _, row := range all {
				name := p.name(i, row)
				home, err := p.m.Find(p.t.Context(), shardmap.Key(row).String())
				if err != nil {
					p.t.Fatal(err)
				}
				if found[name] = append(found[name], shard); home.Shard != shard || !p.have[name] {
					p.t.Errorf("%s: %s is on %s; its key lives on %s, and it was acknowledged: %v", when, name, shard, home.Shard, p.have[name])
				}
			}
		}
	}
	for name, there := range p.have {
		if there && len(found[name]) == 0 {
			p.t.Errorf("%s: %s was acknowledged, and is lost", when, name)
		}
	}
	for _, shard := range []string{"s1", "s2"} {
		var left int
		p.ask(shard, "select (select count(*) from pg_replication_slots where database = current_database()) + (select count(*) from "+
			"pg_publication where pubname !~ '^procaas_mail_')", &left)
		if left > 0 {
			p.t.Errorf("%s: %d slots or publications are left on %s", when, left, shard)
		}
	}
}

// play does what the scenario says. What cannot be, such as a merge of parts that live apart, is refused.
func (p *stage) play() {
	ctx := p.t.Context()
	for i, at := range p.steps {
		key := shardmap.Key(at.key).String()
		when := fmt.Sprintf("step %d, %s %s", i, at.what, key)
		for _, w := range at.writes[""] {
			p.write(w)
		}
		switch at.what {
		case "split":
			if _, err := p.SplitShard(ctx, "mail", key, false, store.Actor{}); err != nil && !errors.Is(err, transfers.ErrShardKey) {
				p.t.Fatalf("%s: %v", when, err)
			}
		case "merge":
			_, err := p.MergeShard(ctx, "mail", key, false, store.Actor{})
			if err != nil && !errors.Is(err, transfers.ErrShardKey) && !errors.Is(err, transfers.ErrShardBusy) {
				p.t.Fatalf("%s: %v", when, err)
			}
		default:
			from, err := p.m.Find(ctx, key)
			if err != nil {
				p.t.Fatal(err)
			}
			p.transfer(at, from)
		}
		p.check(when)
		if p.t.Failed() {
			return
		}
	}
}

// Parts of keys get placements of their own, move, come back and are made one again, while rows of all
// parts are written to: of tables with as many columns as the key has parts, and with fewer.
func TestPartsOfKeysMoveUnderWrites(t *testing.T) {
	t.Parallel()
	for seed := range *scenarios {
		t.Run(fmt.Sprint("scenario ", seed), func(t *testing.T) {
			t.Parallel()
			s := rapid.Custom(drawScenario).Example(seed)
			p := newStage(t, s)
			for _, step := range s.steps {
				t.Log(step.what, step.key)
			}
			p.play()
		})
	}
}

// The example of the manual: a folder of a user moves, and the rest of the user's rows stays.
func TestRowsOfTheWiderKeyStayWhenAPartMoves(t *testing.T) {
	t.Parallel()
	for _, folder := range []columnType{textTypes[0], wholeTypes[0], otherTypes[0]} {
		s := scenario{parts: []columnType{wholeTypes[0], folder, textTypes[0]}, tables: []int{1, 2}}
		p := newStage(t, s)
		last := len(folder.values) - 1
		part := []string{"42", folder.values[last]}
		p.write(write{0, []string{"42"}, false})
		p.write(write{1, part, false})
		p.write(write{1, []string{"42", folder.values[last-1]}, false})
		p.steps = []scene{{what: "split", key: part}, {what: "finish", key: part, writes: map[string][]write{
			"switched": {{0, []string{"42"}, true}, {0, []string{"42"}, false}, {1, part, true}, {1, part, false}},
		}}, {what: "finish", key: part[:1]}, {what: "merge", key: part}, {what: "finish", key: part[:1]}}
		p.play()
	}
}
