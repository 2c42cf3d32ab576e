package sharding_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"procaas/handlers/sharding/language"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfer"
)

// A columnType is what a column of a key may be, with values as a server writes them, and with parts
// of keys that look like one and are not.
type columnType struct {
	name   string
	values []string
	lures  []string
	plain  bool // publications filter by it
}

// nothing means null.
const nothing = "\x00"

var (
	wholeTypes = []columnType{
		{"bigint", []string{"0", "42", "-5", "9223372036854775807"}, []string{
			"042", "4.2e1", "+42", "-0", "9223372036854775808", "inbox",
			" 42",
		}, true},
		{"integer", []string{"0", "42", "-5", "2147483647"}, []string{"042", "2147483648"}, true},
		{"smallint", []string{"0", "42", "-5", "32767"}, []string{"042", "32768"}, true},
	}
	textTypes = []columnType{
		{"text", []string{"", "inbox", "Inbox", "042", "42", "a/b", "50%", "#7", "[x", "O'Hara", `back\slash`, "ä", "a ", "%2F"}, nil, true},
		{"character varying(20)", []string{"", "inbox", "42", "a/b"}, []string{"longer than the column can be"}, true},
	}
	otherTypes = []columnType{
		{
			"uuid",
			[]string{"0b6e7d4a-8f3c-4f5e-9d2b-1a2b3c4d5e6f", "00000000-0000-0000-0000-000000000000"},
			[]string{"0B6E7D4A-8F3C-4F5E-9D2B-1A2B3C4D5E6F", "0b6e7d4a8f3c4f5e9d2b1a2b3c4d5e6f", "inbox"},
			true,
		},
		{"numeric", []string{"1.0", "1.00", "7"}, []string{"1", "07"}, false},
		{"date", []string{"2026-05-01"}, []string{"May 1, 2026"}, false},
		{"mood", []string{"happy", "sad"}, []string{"Happy"}, false},
		{"place", []string{"(1,a)", "(2,b)"}, []string{"( 1,a)"}, false},
		{`text collate "shrug"`, []string{"inbox", "INBOX"}, []string{"iNbOx"}, false},
	}
)

// keyspaces is a map for each strategy and type of the first part, with keys of three parts.
func keyspaces() string {
	var text strings.Builder
	text.WriteString("shard-maps:\n")
	for _, strategy := range []string{"directory", "slots", "range"} {
		for _, kind := range []string{"text", "int"} {
			from := ""
			if strategy == "range" {
				from = `from: [""], `
			}
			fmt.Fprintf(&text, "  - id: %s-%s\n    key: [a, b, c]\n    key-type: %s\n    strategy: %s\n    slots: 4\n    CONNECT\n"+
				"    shards: [{id: s1, %shosts: [{address: HOST1}]}, {id: s2, hosts: [{address: HOST2}]}]\n", strategy, kind, kind, strategy, from)
		}
	}
	return text.String()
}

// A keyspace is a map with random placements, and one table with random columns and rows.
type keyspace struct {
	strategy   string
	ints       bool
	columns    []columnType
	rows       [][]string
	placements []string
}

func drawKeyspace(t *rapid.T) keyspace {
	k := keyspace{
		strategy: rapid.SampledFrom([]string{"directory", "slots", "range"}).Draw(t, "strategy"),
		ints:     rapid.Bool().Draw(t, "ints"),
	}
	first, later := textTypes, slices.Concat(wholeTypes, textTypes, otherTypes)
	if k.ints {
		first = wholeTypes
	}
	k.columns = append(k.columns, rapid.SampledFrom(first).Draw(t, "first column"))
	k.columns = append(k.columns, rapid.SliceOfN(rapid.SampledFrom(later), 0, 2).Draw(t, "other columns")...)
	for range rapid.IntRange(1, 12).Draw(t, "rows") {
		var row []string
		for i, c := range k.columns {
			values := c.values
			if i > 0 {
				values = append(slices.Clone(values), nothing)
			}
			row = append(row, rapid.SampledFrom(values).Draw(t, "value"))
		}
		k.rows = append(k.rows, row)
	}
	seen := map[string]bool{}
	add := func(key string) {
		if !seen[key] && len(key) < 200 {
			seen[key] = true
			k.placements = append(k.placements, key)
		}
	}
	switch k.strategy {
	case "slots":
		for i := range 4 {
			add("#" + strconv.Itoa(i))
		}
	case "range":
		add("[")
		for range rapid.IntRange(0, 3).Draw(t, "stretches") {
			add("[" + rapid.SampledFrom(k.columns[0].values).Draw(t, "bound"))
		}
	}
	for range rapid.IntRange(0, 8).Draw(t, "placements") {
		add(drawKey(t, k))
	}
	return k
}

// drawKey draws a key of one to three parts: those of a row, those that look so, and others.
func drawKey(t *rapid.T, k keyspace) string {
	var key shardmap.Key
	for i := range rapid.IntRange(1, 3).Draw(t, "parts") {
		parts := []string{"inbox", "42", "-5"}
		if i < len(k.columns) {
			parts = slices.Concat(k.columns[i].values, k.columns[i].values, k.columns[i].lures)
		}
		if i == 0 {
			parts = k.columns[0].values
		}
		part := rapid.SampledFrom(parts).Draw(t, "part")
		if part == "" {
			break // a part of a key is never empty
		}
		key = append(key, part)
	}
	if len(key) == 0 {
		return "42"
	}
	return key.String()
}

// home returns the placement of a row as the contract says: the longest one among the first columns,
// then the slot or the stretch; empty when there is none.
func (k keyspace) home(row []string) string {
	for n := len(row); n > 0; n-- {
		if slices.Contains(row[:n], nothing) || slices.Contains(row[:n], "") {
			continue
		}
		if key := shardmap.Key(row[:n]).String(); slices.Contains(k.placements, key) {
			return key
		}
	}
	switch k.strategy {
	case "slots":
		hash := shardmap.Hash(row[0])
		if k.ints {
			hash = shardmap.HashInt(number(row[0]))
		}
		return "#" + strconv.FormatUint(hash&3, 10)
	case "range":
		best := "["
		for _, p := range k.placements {
			if p[0] == '[' && !k.less(row[0], p[1:]) && k.less(best[1:], p[1:]) {
				best = p
			}
		}
		return best
	}
	return ""
}

func (k keyspace) less(a, b string) bool {
	if !k.ints || a == "" || b == "" {
		return a < b
	}
	return number(a) < number(b)
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// Each row of each table belongs to one placement, whatever its columns are, and whatever looks like a
// key of it: what moves a placement finds these rows and no others, and publishes them.
func TestEachRowBelongsToOnePlacement(t *testing.T) {
	t.Parallel()
	r := newRig(t, keyspaces())
	r.exec("s1", `create type mood as enum ('happy', 'sad'); create type place as (x int, y text);
		create collation shrug (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`)
	store, shard := r.dial("map"), r.dial("s1")
	// Each check leaves its map as it was.
	rapid.Check(t, func(t *rapid.T) {
		k := drawKeyspace(t)
		id := k.strategy + map[bool]string{true: "-int", false: "-text"}[k.ints]
		m, err := r.Map(id)
		if err != nil {
			t.Fatal(err)
		}
		k.store(t, store, m)
		table := k.create(t, shard)
		for _, p := range append(slices.Clone(k.placements), "7/no/such") {
			rows, ok, err := m.Rows(context.Background(), table, p)
			if err != nil {
				t.Fatal(err)
			}
			var have []string
			if ok {
				have = k.pick(t, shard, rows)
			}
			var want []string
			for i, row := range k.rows {
				if k.home(row) == p {
					want = append(want, strconv.Itoa(i))
				}
			}
			if !slices.Equal(have, want) {
				t.Fatalf("map %s, columns %v: %q has the rows %v, want %v; all rows: %q, placements: %q", id, k.types(), p, have, want, k.rows,
					k.placements)
			}
		}
	})
}

func (k keyspace) types() (out []string) {
	for _, c := range k.columns {
		out = append(out, c.name)
	}
	return out
}

// store makes the placements those of the map.
func (k keyspace) store(t *rapid.T, c *pgx.Conn, m *shardmap.Map) {
	batch := &pgx.Batch{}
	batch.Queue("delete from shard_placements where map = $1", m.ID)
	for _, p := range k.placements {
		batch.Queue("insert into shard_placements (map, key, shard) values ($1, $2, 's1')", m.ID, p)
	}
	if err := c.SendBatch(context.Background(), batch).Close(); err != nil {
		t.Fatal(err)
	}
}

// columnName names a column as people may who like it difficult.
func columnName(i int) string { return []string{"User Id", `fol"der`, "c"}[i] }

// create makes the table, with its rows.
func (k keyspace) create(t *rapid.T, c *pgx.Conn) *language.ShardTable {
	table := &language.ShardTable{Table: "Odd Rows"}
	sql := `drop table if exists "Odd Rows"; create table "Odd Rows" (id int`
	for i, column := range k.columns {
		table.Key = append(table.Key, columnName(i))
		sql += ", " + pgx.Identifier{columnName(i)}.Sanitize() + " " + column.name
	}
	sql += ")"
	for i, row := range k.rows {
		sql += fmt.Sprintf(`; insert into "Odd Rows" values (%d`, i)
		for _, v := range row {
			if v == nothing {
				sql += ", null"
			} else {
				sql += ", '" + strings.ReplaceAll(v, "'", "''") + "'"
			}
		}
		sql += ")"
	}
	if _, err := c.Exec(context.Background(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	return table
}

// pick returns the numbers of the rows that move, after it has tried to publish them.
func (k keyspace) pick(t *rapid.T, c *pgx.Conn, rows transfer.Table) []string {
	ctx := context.Background()
	where, err := transfer.Condition(ctx, c, rows)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(k.columns, func(c columnType) bool { return !c.plain }) {
		if _, err := c.Exec(ctx, `create publication odd for table "Odd Rows" where (`+where+`); drop publication odd`,
			pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("no publication where %s: %v", where, err)
		}
	}
	found, err := c.Query(ctx, `select id::text from "Odd Rows" where `+where+` order by "Odd Rows".id`)
	if err != nil {
		t.Fatalf("where %s: %v", where, err)
	}
	ids, err := pgx.CollectRows(found, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("where %s: %v", where, err)
	}
	return ids
}
