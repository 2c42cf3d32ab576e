package preflight

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A Querier is a connection, a pool or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

const readServer = `select current_setting('server_version_num')::int, current_setting('wal_level'),
	current_setting('max_replication_slots')::int, (select count(*) from pg_replication_slots)::int,
	current_setting('max_wal_senders')::int, (select count(*) from pg_stat_replication)::int,
	current_setting('max_prepared_transactions')::int,
	(select count(*) from pg_prepared_xacts where prepared < now() - interval '1 minute')::int,
	(select rolsuper or rolreplication from pg_roles where rolname = current_user)`

// The second column is the place of the table in the list, from 1.
const readTables = `select coalesce(c.oid, 0)::bigint, w.place::int, c.relkind::text, c.relpersistence::text, c.relreplident::text,
	array(select i.inhrelid::regclass::text from pg_inherits i where i.inhparent = c.oid order by 1 limit 4),
	pg_has_role(c.relowner, 'usage'), row_security_active(c.oid),
	array(select t.tgname::text from pg_trigger t where t.tgrelid = c.oid and not t.tgisinternal and t.tgenabled in ('A', 'R') order by 1)
	from unnest($1::text[]) with ordinality w(name, place) join pg_class c on c.oid = to_regclass(w.name) order by w.place`

// A sequence counts alike on all shards unless somebody has given it a range or a step.
const readColumns = `select a.attrelid::bigint, a.attname::text, format_type(a.atttypid, null),
	case when t.typtype = 'd' then format_type(t.typbasetype, null) else '' end, a.attgenerated <> '',
	coalesce(q.name, ''), coalesce(q.most, 0),
	coalesce(case when l.oid >= 16384 then l.collname::text end, ''), not coalesce(l.collisdeterministic, true)
	from pg_attribute a join pg_type t on t.oid = a.atttypid left join pg_collation l on l.oid = a.attcollation
	left join lateral (select d.objid::regclass::text as name, s.seqmax as most from pg_depend d join pg_sequence s on s.seqrelid = d.objid
		where d.classid = 'pg_class'::regclass and d.refclassid = 'pg_class'::regclass and d.refobjid = a.attrelid
			and d.refobjsubid = a.attnum and d.deptype in ('a', 'i') and s.seqincrement = 1 and s.seqmin = 1
			and s.seqmax in (32767, 2147483647, 9223372036854775807) limit 1) q on true
	where a.attrelid = any($1::bigint[]::oid[]) and a.attnum > 0 and not a.attisdropped order by a.attrelid, a.attnum`

const readIndexes = `select i.indrelid::bigint, c.relname::text,
	array(select a.attname::text from unnest(i.indkey::int2[]) with ordinality k(n, place) join pg_attribute a
		on a.attrelid = i.indrelid and a.attnum = k.n where k.place <= i.indnkeyatts order by k.place),
	i.indisprimary, not i.indimmediate, i.indpred is not null, i.indexprs is not null
	from pg_index i join pg_class c on c.oid = i.indexrelid
	where i.indrelid = any($1::bigint[]::oid[]) and i.indisunique order by i.indrelid, c.relname`

const readPublications = `select p.pubname::text, p.puballtables, pg_has_role(p.pubowner, 'usage'),
	array(select ` + tableName + ` from pg_publication_tables t join pg_namespace n on n.nspname = t.schemaname
		join pg_class c on c.relnamespace = n.oid and c.relname = t.tablename
		where t.pubname = p.pubname and c.oid = any($1::bigint[]::oid[]) order by 1)
	from pg_publication p order by 1`

// tableName names a table of c and n like a map.
const tableName = `case n.nspname when 'public' then c.relname::text else n.nspname::text || '.' || c.relname::text end`

// readNeighbours finds partitions beside listed ones, tables that refer to listed ones, tables to
// which listed ones refer, and others with a column of the key. A partitioned table stands for its
// partitions, unless it is that of a listed one.
const readNeighbours = `with recursive listed(oid) as (select unnest($1::bigint[]::oid[])),
	children(oid, of) as (
		select k.conrelid, k.confrelid from pg_constraint k join listed l on k.confrelid = l.oid where k.contype = 'f'
		union select k.conrelid, k.confrelid from pg_constraint k join children d on k.confrelid = d.oid where k.contype = 'f'),
	found(oid, kind, of) as (
		select p.relid::oid, 'partition', l.oid from listed l join pg_class c on c.oid = l.oid and c.relispartition
			cross join lateral pg_partition_tree(pg_partition_root(c.oid)) p where p.isleaf
		union all select oid, 'child', of from children
		union all select k.confrelid, 'parent', k.conrelid from pg_constraint k join listed l on k.conrelid = l.oid
			where k.contype = 'f' and k.conparentid = 0
		union all select coalesce(pg_partition_root(a.attrelid), a.attrelid)::oid, 'keyed', 0 from pg_attribute a
			join pg_class c on c.oid = a.attrelid and c.relkind = 'r' and c.relpersistence <> 't'
			where a.attname = any($2) and a.attnum > 0 and not a.attisdropped and not exists (select from listed l where l.oid = c.oid))
	select distinct on (f.oid) ` + tableName + `, f.kind, coalesce((select ` + tableName + ` from pg_class c join pg_namespace n
		on n.oid = c.relnamespace where c.oid = f.of), ''), f.oid in (select to_regclass(name)::oid from unnest($3::text[]) name)
		or exists (select from pg_partition_ancestors(f.oid) a where a.relid in (select to_regclass(name) from unnest($3::text[]) name))
	from found f join pg_class c on c.oid = f.oid join pg_namespace n on n.oid = c.relnamespace
	where f.oid not in (select oid from listed)
		and (f.kind <> 'keyed' or not exists (select from unnest($4::text[]) name where to_regclass(name)::oid = f.oid)) and n.nspname not in ('pg_catalog', 'information_schema', 'procaas')
		and (c.relkind in ('r', 'f') or f.kind = 'keyed')
		and (f.kind <> 'keyed' or not exists (select from listed l join pg_partition_ancestors(l.oid) a on a.relid = f.oid))
	order by f.oid, array_position(array['partition', 'child', 'parent', 'keyed'], f.kind), 3`

const readMissing = `select place::int from unnest($1::text[]) with ordinality x(name, place) where to_regclass(name) is null order by 1`

// Read reads the facts about a shard.
func Read(ctx context.Context, q Querier, m Map) (Facts, error) {
	facts := Facts{Tables: make([]TableFacts, len(m.Tables))}
	s := &facts.Server
	err := q.QueryRow(ctx, readServer).Scan(&s.Version, &s.WALLevel, &s.Slots, &s.SlotsInUse, &s.Senders, &s.SendersInUse, &s.PreparedMax,
		&s.Dangling, &s.Replicates)
	if err != nil {
		return facts, fmt.Errorf("read the settings of the server: %w", err)
	}
	tables := make([]string, len(m.Tables))
	for i, t := range m.Tables {
		tables[i] = t.Name
	}
	at := map[int64]*TableFacts{}
	oids := []int64{}
	var oid int64
	var place int
	var t TableFacts
	err = each(ctx, q, readTables, []any{allQuoted(tables)}, func() error {
		facts.Tables[place-1] = t
		at[oid] = &facts.Tables[place-1]
		oids = append(oids, oid)
		return nil
	}, &oid, &place, &t.Kind, &t.Persistence, &t.Identity, &t.Children, &t.Owned, &t.Hidden, &t.Triggers)
	if err != nil {
		return facts, err
	}
	var c Column
	err = each(ctx, q, readColumns, []any{oids}, func() error {
		at[oid].Columns = append(at[oid].Columns, c)
		return nil
	}, &oid, &c.Name, &c.Type, &c.Base, &c.Generated, &c.Sequence, &c.Most, &c.Collation, &c.Folds)
	if err != nil {
		return facts, err
	}
	var x Index
	err = each(ctx, q, readIndexes, []any{oids}, func() error {
		at[oid].Indexes = append(at[oid].Indexes, x)
		return nil
	}, &oid, &x.Name, &x.Columns, &x.Primary, &x.Deferrable, &x.Partial, &x.Expression)
	if err != nil {
		return facts, err
	}
	var p Publication
	err = each(ctx, q, readPublications, []any{oids}, func() error {
		facts.Publications = append(facts.Publications, p)
		return nil
	}, &p.Name, &p.AllTables, &p.Owned, &p.Tables)
	if err != nil {
		return facts, err
	}
	var n Neighbour
	err = each(ctx, q, readNeighbours, []any{oids, firstColumns(m), allQuoted(m.Stays), allQuoted(m.Elsewhere)}, func() error {
		facts.Neighbours = append(facts.Neighbours, n)
		return nil
	}, &n.Table, &n.Kind, &n.Of, &n.Stays)
	if err != nil {
		return facts, err
	}
	var missing int
	return facts, each(ctx, q, readMissing, []any{allQuoted(m.Stays)}, func() error {
		facts.Missing = append(facts.Missing, m.Stays[missing-1])
		return nil
	}, &missing)
}

// each calls do for each row of a query, after it has scanned the row. What do keeps must not share
// slices with the next row, and pgx makes new ones.
func each(ctx context.Context, q Querier, sql string, args []any, do func() error, into ...any) error {
	rows, err := q.Query(ctx, sql, args...)
	if err == nil {
		_, err = pgx.ForEachRow(rows, into, do)
	}
	if err != nil {
		return fmt.Errorf("read the catalog: %w", err)
	}
	return nil
}

// firstColumns lists the names of the columns with the first part of keys.
func firstColumns(m Map) []string {
	out := []string{}
	for _, t := range m.Tables {
		out = append(out, t.Key[0])
	}
	return out
}

func allQuoted(tables []string) []string {
	out := make([]string, len(tables))
	for i, t := range tables {
		out[i] = quoted(t)
	}
	return out
}

// quoted quotes the name of a table with its schema.
func quoted(table string) string {
	schema, name, ok := strings.Cut(table, ".")
	if !ok {
		schema, name = "public", table
	}
	return pgx.Identifier{schema, name}.Sanitize()
}
