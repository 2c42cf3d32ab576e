package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A shape is the catalog's description of a table on one shard.
type shape struct {
	schema, name string
	columns      []column
	primary      []string // columns of the primary key
	identity     []string // columns that identify a row in the stream; none if nothing does
	keys         []string // columns of the key
	where        string   // condition for the rows that move
	triggers     bool     // has triggers or foreign keys that would fire
	unlogged     bool     // its changes are not in the log, so no stream has them
	odd          string   // why no method can move its rows; empty for an ordinary table
}

type column struct {
	name     string
	typ      string // as in a cast
	builtin  bool   // its binary form is the same on all servers
	always   bool   // generated always as identity
	bytes    bool   // its texts are equal exactly if their bytes are; true for other types
	nullable bool
}

const readColumns = `
select a.attname, format_type(a.atttypid, a.atttypmod), a.atttypid < 16384, a.attidentity = 'a', not a.attnotnull,
	coalesce(l.collisdeterministic, true)
from pg_attribute a left join pg_collation l on l.oid = a.attcollation
where a.attrelid = $1::regclass and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
order by a.attname`

const readIndexColumns = `
select coalesce(array_agg(a.attname::text order by k.n), '{}')
from pg_index i
cross join lateral unnest(i.indkey::int2[]) with ordinality as k(attnum, n)
join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
where i.indrelid = $1::regclass and k.n <= i.indnkeyatts and `

// Children are partitions or inheriting tables. Row security matters only for the role of the
// connection: owners and superusers see all.
const readTable = `
select c.relreplident::text, c.relkind::text, exists(select from pg_trigger t where t.tgrelid = c.oid and t.tgenabled <> 'D'),
	array(select i.inhrelid::regclass::text from pg_inherits i where i.inhparent = c.oid order by 1 limit 4),
	c.relpersistence <> 'p', row_security_active(c.oid)
from pg_class c where c.oid = to_regclass($1)`

// readShape reads the description of a table, or returns nil if there is none.
func readShape(ctx context.Context, c *pgx.Conn, t Table) (*shape, error) {
	s := &shape{keys: t.Columns}
	s.schema, s.name = t.split()
	full := s.quoted()
	var identity, kind string
	var children []string
	var hidden bool
	err := c.QueryRow(ctx, readTable, full).Scan(&identity, &kind, &s.triggers, &children, &s.unlogged, &hidden)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read table %s: %w", t.Name, err)
	}
	s.odd = Oddity(kind, children)
	if s.odd == "" && hidden {
		s.odd = "has row security, which may hide rows from the role of procaas: alter role … bypassrls"
	}
	if s.odd != "" {
		return s, nil // the rest would be of no use
	}
	rows, err := c.Query(ctx, readColumns, full)
	if err != nil {
		return nil, err
	}
	s.columns, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (column, error) {
		var c column
		err := row.Scan(&c.name, &c.typ, &c.builtin, &c.always, &c.nullable, &c.bytes)
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("read columns of %s: %w", t.Name, err)
	}
	for _, k := range s.keys {
		if s.column(k) == nil {
			s.odd = "has no column " + k + " for a part of the key, or a generated one, which the stream does not carry"
			return s, nil
		}
	}
	s.where = s.condition(t)
	if err := c.QueryRow(ctx, readIndexColumns+"i.indisprimary", full).Scan(&s.primary); err != nil {
		return nil, err
	}
	switch identity {
	case "d":
		s.identity = s.primary
	case "f":
		s.identity = s.names()
	case "i":
		if err := c.QueryRow(ctx, readIndexColumns+"i.indisreplident", full).Scan(&s.identity); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Oddity returns why no method can move the rows of a table, and what to do about it, or empty for
// an ordinary table. kind is relkind of pg_class. children are up to four of its partitions or
// inheriting tables. The stream names the table that physically has a row. So rows of children
// would belong to tables that the transfer does not know, and a copy would put them all into the
// parent.
func Oddity(kind string, children []string) string {
	names := strings.Join(children[:min(len(children), 3)], ", ")
	if len(children) > 3 {
		names += ", …"
	}
	switch {
	case kind == "p" && len(children) == 0:
		return "is partitioned, and has no partitions: make them, and list them under tables: in its place, on all shards alike"
	case kind == "p":
		return "is partitioned: list its partitions (" + names + ") under tables: in its place, on all shards alike"
	case kind != "r":
		return "is no ordinary table: list those that hold its rows"
	case len(children) > 0:
		return "has tables that inherit from it (" + names + "), whose rows would be taken for its own: alter table … no inherit"
	}
	return ""
}

func (s *shape) quoted() string { return quote(s.schema, s.name) }

func (s *shape) title() string { return s.schema + "." + s.name }

func (s *shape) names() []string {
	names := make([]string, len(s.columns))
	for i, c := range s.columns {
		names[i] = c.name
	}
	return names
}

func (s *shape) column(name string) *column {
	i := slices.IndexFunc(s.columns, func(c column) bool { return c.name == name })
	if i < 0 {
		return nil
	}
	return &s.columns[i]
}

// list returns the columns for a statement.
func (s *shape) list() string { return quoteAll(s.names()) }

func quoteAll(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	return strings.Join(quoted, ", ")
}

// digest returns an expression that is the same for equal rows on all servers.
func (s *shape) digest(prefix string) string {
	parts := make([]string, len(s.columns))
	for i, c := range s.columns {
		parts[i] = prefix + quote(c.name)
	}
	return `hashtextextended((row(` + strings.Join(parts, ", ") + `))::text collate "C", 0)`
}

// binary reports whether rows may be copied in the binary format.
func (s *shape) binary() bool {
	return !slices.ContainsFunc(s.columns, func(c column) bool { return !c.builtin })
}

// refusals lists why the stream cannot move the table.
func (s *shape) refusals() []string {
	var out []string
	if len(s.primary) == 0 {
		return []string{fmt.Sprintf("table %s has no primary key: rows could not be told apart in the stream; add one, or use the method "+
			"lock-copy-switch", s.title())}
	}
	named := slices.Concat(s.identity, s.primary)
	slices.Sort(named)
	for _, name := range slices.Compact(named) {
		if s.column(name) == nil { // updates and deletes would not identify a row
			out = append(out, fmt.Sprintf("column %s of table %s, which names its rows, is generated: the stream does not carry it; leave it "+
				"out of the primary key, or use the method lock-copy-switch",
				name, s.title()))
		}
	}
	if s.unlogged {
		out = append(out, fmt.Sprintf("table %s is unlogged: its changes are not in the log that the stream reads; alter table %s set "+
			"logged, or use the method lock-copy-switch",
			s.title(), s.quoted()))
	}
	for _, k := range s.keys {
		if !slices.Contains(s.identity, k) {
			out = append(out, fmt.Sprintf("column %s of table %s is not in its replica identity: updates of the whole table would fail; add it "+
				"to the primary key, or alter table %s replica identity full",
				k, s.title(), s.quoted()))
		}
	}
	return out
}

// differences lists why rows of one table cannot be inserted into the other.
func (s *shape) differences(target *shape) []string {
	var out []string
	for _, c := range s.columns {
		other := target.column(c.name)
		switch {
		case other == nil:
			out = append(out, fmt.Sprintf("table %s of the target has no column %s", s.title(), c.name))
		case other.typ != c.typ:
			out = append(out, fmt.Sprintf("column %s of table %s is %s in the source and %s in the target", c.name, s.title(), c.typ, other.typ))
		}
	}
	for _, c := range target.columns {
		if s.column(c.name) == nil {
			out = append(out, fmt.Sprintf("table %s of the target has a column %s that the source has not", s.title(), c.name))
		}
	}
	if target.unlogged && !s.unlogged {
		out = append(out, fmt.Sprintf("table %s is unlogged in the target: a crash would empty it, and there would be no way back; alter "+
			"table %s set logged", s.title(), s.quoted()))
	}
	if !slices.Equal(s.primary, target.primary) {
		out = append(out, fmt.Sprintf("the primary key of table %s is (%s) in the source and (%s) in the target",
			s.title(), strings.Join(s.primary, ", "), strings.Join(target.primary, ", ")))
	}
	return out
}
