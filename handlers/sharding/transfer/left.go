package transfer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// This file counts rows of the key in tables that the map does not list. A transfer does not move
// them. So it must not switch, and must not delete the rows to which they refer.

// readBeside finds the partitions beside a table, and the tables that refer to it, with the columns
// on both sides. Its arguments are the table, and the tables that the map lists.
const readBeside = `with listed(oid) as (select to_regclass(name)::oid from unnest($2::text[]) name)
	select n.nspname::text, c.relname::text, f.columns, f.refers from (
		select p.relid::oid as oid, '{}'::text[] as columns, '{}'::text[] as refers from pg_class c
			cross join lateral pg_partition_tree(pg_partition_root(c.oid)) p where c.oid = $1::regclass and c.relispartition and p.isleaf
		union all select k.conrelid,
			array(select a.attname::text from unnest(k.conkey) with ordinality x(n, place) join pg_attribute a
				on a.attrelid = k.conrelid and a.attnum = x.n order by x.place),
			array(select a.attname::text from unnest(k.confkey) with ordinality x(n, place) join pg_attribute a
				on a.attrelid = k.confrelid and a.attnum = x.n order by x.place)
			from pg_constraint k where k.contype = 'f' and k.confrelid = $1::regclass) f
	join pg_class c on c.oid = f.oid and c.relkind = 'r' join pg_namespace n on n.oid = c.relnamespace
	where f.oid not in (select oid from listed where oid is not null) order by 1, 2`

// countAtMost bounds a count, because a large table needs no exact one.
const countAtMost = 1000

// left returns which tables hold rows of the key that the transfer does not move.
func (m *sides) left(ctx context.Context, c *pgx.Conn) ([]string, error) {
	listed := make([]string, len(m.spec.Listed))
	for i, name := range m.spec.Listed {
		listed[i] = Table{Name: name}.quoted()
	}
	type beside struct {
		schema, name    string
		columns, refers []string
	}
	var out []string
	for _, t := range m.tables {
		rows, err := c.Query(ctx, readBeside, t.quoted(), listed)
		if err != nil {
			return nil, fmt.Errorf("find the tables beside %s: %w", t.title(), err)
		}
		found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (b beside, err error) {
			err = row.Scan(&b.schema, &b.name, &b.columns, &b.refers)
			return b, err
		})
		if err != nil {
			return nil, fmt.Errorf("find the tables beside %s: %w", t.title(), err)
		}
		for _, b := range found {
			where := t.where
			if len(b.columns) > 0 {
				where = fmt.Sprintf("(%s) in (select %s from %s where %s)", quoteAll(b.columns), quoteAll(b.refers), t.quoted(), t.where)
			}
			var n int
			err := c.QueryRow(ctx, fmt.Sprintf("select count(*) from (select from %s where %s limit %d) n", quote(b.schema, b.name), where,
				countAtMost+1)).Scan(&n)
			if err != nil {
				return nil, fmt.Errorf("count the rows of table %s.%s: %w", b.schema, b.name, err)
			}
			count := fmt.Sprint(n)
			if n > countAtMost {
				count = fmt.Sprintf("more than %d", countAtMost)
			}
			if text := fmt.Sprintf("%s in table %s.%s", count, b.schema, b.name); n > 0 && !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out, nil
}

// nothingLeft refuses a transfer that would leave rows of the key on the source.
func (m *sides) nothingLeft(ctx context.Context) error {
	left, err := m.left(ctx, m.source)
	if err != nil || len(left) == 0 {
		return err
	}
	return &RefusedError{[]string{fmt.Sprintf("rows of the key would stay on shard %s: %s, which the map does not list; list these tables "+
		"under tables:, on all shards alike, and enroll the shards again", m.spec.SourceShard, strings.Join(left, ", "))}}
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
				"shard %s by hand and delete them, then the transfer ends by itself", shards[i], strings.Join(left, ", "), shards[1-i])
		}
	}
	return nil
}
