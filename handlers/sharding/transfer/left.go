package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// This file counts rows of the key in tables that the map does not list. A transfer does not move
// them. So it must not switch, and must not delete the rows to which they refer.

// listedTables begins a query that has the names of tables as its second argument: those that the
// map lists, and those that stay on purpose. notListed ends it: a partitioned table stands for its
// partitions.
const (
	listedTables = `with listed(oid) as (select to_regclass(name)::oid from unnest($2::text[]) name)
	`
	notListed = `c.oid not in (select oid from listed where oid is not null)
		and not exists (select from pg_partition_ancestors(c.oid) p join listed l on l.oid = p.relid) order by 1, 2`
)

// readBeside finds the partitions beside a table, and the tables that refer to it, with the columns
// on both sides. Its first argument is the table.
const readBeside = listedTables + `select n.nspname::text, c.relname::text, f.columns, f.refers from (
		select p.relid::oid as oid, '{}'::text[] as columns, '{}'::text[] as refers from pg_class c
			cross join lateral pg_partition_tree(pg_partition_root(c.oid)) p where c.oid = $1::regclass and c.relispartition and p.isleaf
		union all select k.conrelid,
			array(select a.attname::text from unnest(k.conkey) with ordinality x(n, place) join pg_attribute a
				on a.attrelid = k.conrelid and a.attnum = x.n order by x.place),
			array(select a.attname::text from unnest(k.confkey) with ordinality x(n, place) join pg_attribute a
				on a.attrelid = k.confrelid and a.attnum = x.n order by x.place)
			from pg_constraint k where k.contype = 'f' and k.confrelid = $1::regclass) f
	join pg_class c on c.oid = f.oid and c.relkind = 'r' join pg_namespace n on n.oid = c.relnamespace where ` + notListed

// readKeyed finds the tables with a column for the first part of keys, and their columns for parts
// of keys. Its first argument has the names of the former, its third one those of all parts.
const readKeyed = listedTables + `select n.nspname::text, c.relname::text, k.names, k.types, k.bytes
	from pg_class c join pg_namespace n on n.oid = c.relnamespace
	cross join lateral (select array_agg(a.attname::text) as names, array_agg(format_type(a.atttypid, a.atttypmod)) as types,
		array_agg(coalesce(l.collisdeterministic, true)) as bytes from pg_attribute a left join pg_collation l on l.oid = a.attcollation
		where a.attrelid = c.oid and a.attname = any($3) and a.attnum > 0 and not a.attisdropped) k
	where c.relkind = 'r' and c.relpersistence <> 't' and n.nspname not in ('pg_catalog', 'information_schema', 'procaas')
		and k.names && $1::text[] and ` + notListed

// countAtMost bounds a count, because a large table needs no exact one.
const countAtMost = 1000

// A beside is a table that the transfer does not move, with the condition for rows of the key.
type beside struct{ schema, name, where string }

// left returns which tables hold rows of the key that the transfer does not move.
func (m *sides) left(ctx context.Context, c *pgx.Conn) ([]string, error) {
	listed := quotedTables(slices.Concat(m.spec.Listed, m.spec.Stays))
	for _, t := range m.tables {
		listed = append(listed, t.quoted())
	}
	found, err := m.keyed(ctx, c, slices.Concat(listed, quotedTables(m.spec.Elsewhere)))
	if err != nil {
		return nil, err
	}
	for _, t := range m.tables {
		more, err := besides(ctx, c, t, listed)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	var out []string
	for _, b := range found {
		count, err := b.count(ctx, c)
		if err != nil {
			return nil, err
		}
		if text := fmt.Sprintf("%s in table %s.%s", count, b.schema, b.name); count != "" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out, nil
}

func quotedTables(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = Table{Name: name}.quoted()
	}
	return out
}

// besides finds the partitions beside a table, and the tables that refer to it.
func besides(ctx context.Context, c *pgx.Conn, t *shape, listed []string) ([]beside, error) {
	rows, err := c.Query(ctx, readBeside, t.quoted(), listed)
	if err != nil {
		return nil, fmt.Errorf("find the tables beside %s: %w", t.title(), err)
	}
	var out []beside
	var b beside
	var columns, refers []string
	_, err = pgx.ForEachRow(rows, []any{&b.schema, &b.name, &columns, &refers}, func() error {
		b.where = t.where
		if len(columns) > 0 {
			b.where = fmt.Sprintf("(%s) in (select %s from %s where %s)", quoteAll(columns), quoteAll(refers), t.quoted(), t.where)
		}
		out = append(out, b)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find the tables beside %s: %w", t.title(), err)
	}
	return out, nil
}

// keyed finds other tables that have columns with the names of those of the key.
func (m *sides) keyed(ctx context.Context, c *pgx.Conn, listed []string) ([]beside, error) {
	var first, all []string
	for _, t := range m.spec.Tables {
		first, all = append(first, t.Columns[0]), append(all, t.Columns...)
	}
	rows, err := c.Query(ctx, readKeyed, first, listed, all)
	if err != nil {
		return nil, fmt.Errorf("find the tables with columns of the key: %w", err)
	}
	var out []beside
	var b beside
	var names, types []string
	var bytes []bool
	_, err = pgx.ForEachRow(rows, []any{&b.schema, &b.name, &names, &types, &bytes}, func() error {
		s := &shape{}
		for i, name := range names {
			s.columns = append(s.columns, column{name: name, typ: types[i], bytes: bytes[i]})
		}
		b.where = m.keyIn(s)
		if b.where != "" {
			out = append(out, b)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find the tables with columns of the key: %w", err)
	}
	return out, nil
}

// keyIn returns the condition for rows of the key in another table, like in the listed one with
// which it shares the most columns of the key. It is empty if all its rows belong to wider keys.
func (m *sides) keyIn(other *shape) string {
	most, where := 0, ""
	for i, t := range m.spec.Tables {
		n := 0
		for n < len(t.Columns) && other.column(t.Columns[n]) != nil {
			n++
		}
		if n <= most || len(t.Key) > n {
			continue
		}
		column := t.Columns[0]
		if t.Where != "" && family(other.column(column).typ) != family(m.tables[i].column(column).typ) {
			continue // the condition is for the type of the listed column
		}
		narrow := Table{Columns: t.Columns[:n], Key: t.Key, Where: t.Where}
		for _, key := range t.Except {
			if len(key) <= n {
				narrow.Except = append(narrow.Except, key)
			}
		}
		most, where = n, other.condition(narrow)
	}
	return where
}

// family returns the same for types of which a condition for one holds for the other.
func family(typ string) string {
	typ, _, _ = strings.Cut(typ, "(")
	switch typ {
	case "smallint", "integer":
		return "bigint"
	case "character varying":
		return "text"
	}
	return typ
}

// count returns the number of rows as text, or empty for none.
func (b beside) count(ctx context.Context, c *pgx.Conn) (string, error) {
	var n int
	err := c.QueryRow(ctx, fmt.Sprintf("select count(*) from (select from only %s where %s limit %d) n", quote(b.schema, b.name), b.where,
		countAtMost+1)).Scan(&n)
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && refused.Code == "42501": // insufficient_privilege
		return "an unknown number, since the role of procaas may not read them all,", nil
	case err != nil:
		return "", fmt.Errorf("count the rows of table %s.%s: %w", b.schema, b.name, err)
	case n == 0:
		return "", nil
	case n > countAtMost:
		return fmt.Sprintf("more than %d", countAtMost), nil
	}
	return fmt.Sprint(n), nil
}

// nothingLeft refuses a transfer that would leave rows of the key on the source.
func (m *sides) nothingLeft(ctx context.Context) error {
	left, err := m.left(ctx, m.source)
	if err != nil || len(left) == 0 {
		return err
	}
	return &RefusedError{[]string{fmt.Sprintf("rows of the key would stay on shard %s: %s, which the map does not list; list these tables "+
		"under tables:, on all shards alike, and enroll the shards again, or under stays: if their rows shall stay", m.spec.SourceShard, strings.Join(left, ", "))}}
}

const keyHasLeft = `select exists (select from procaas.fences where map = $1 and key = $2 and state in ('moved', 'closed'))`

// noneLeft returns an error if the shard that lost the key still has rows of it in tables that the
// map does not list. It says how to end the transfer, which cannot go back any more.
func (m *sides) noneLeft(ctx context.Context) error {
	for i, c := range []*pgx.Conn{m.source, m.target} {
		var lost bool
		if err := c.QueryRow(ctx, keyHasLeft, m.spec.Map, m.spec.Key).Scan(&lost); err != nil {
			return err
		}
		if !lost {
			continue
		}
		left, err := m.left(ctx, c)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			shards := []string{m.spec.SourceShard, m.spec.TargetShard}
			return fmt.Errorf("rows of the key are left on shard %s: %s, which the map does not list, so nothing was deleted yet; copy them to "+
				"shard %s by hand and delete them, or list the tables under stays:, then the transfer ends by itself", shards[i], strings.Join(left, ", "), shards[1-i])
		}
	}
	return nil
}
