package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"procaas/handlers/subscriptions/language"
)

// A table is where rows are, with the statements for it.
type table struct {
	name string // with its schema
	keys int    // columns of the primary key

	fetch string // $1 is the limit; then come the keys of rows that were handed out, an array for each column
	done  string // has only the keys
	lag   string
}

// findTable finds a table by its schema, or "" for those of the search path.
const findTable = `
select c.oid, n.nspname, c.relkind in ('r', 'p'), quote_ident(current_user), has_schema_privilege(n.oid, 'usage'),
	has_table_privilege(c.oid, 'select'), has_table_privilege(c.oid, 'delete'),
	row_security_active(c.oid) and not exists (select from pg_policy p where p.polrelid = c.oid and p.polpermissive and p.polcmd = '*'
		and (0 = any (p.polroles) or exists (select from unnest(p.polroles) r where pg_has_role(r, 'usage')))
		and pg_get_expr(p.polqual, p.polrelid) = 'true')
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relname = $2 and (n.nspname = $1 or $1 = '' and n.nspname = any(current_schemas(false)))
order by array_position(current_schemas(false), n.nspname), c.relkind in ('r', 'p') desc
limit 1`

// findColumns lists the columns of a table. key is the place in the primary key, or 0.
const findColumns = `
select a.attname, format_type(a.atttypid, a.atttypmod), coalesce(array_position(i.indkey::int2[], a.attnum) + 1, 0),
	has_column_privilege(a.attrelid, a.attnum, 'update')
from pg_attribute a left join pg_index i on i.indrelid = a.attrelid and i.indisprimary
where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
order by a.attnum`

// A column is a column of a table.
type column struct {
	name, kind string
	key        int // its place in the primary key, from 1; 0 if it is not in it
	updates    bool
}

// find looks at the table of a subscription. The error says how to mend what is wrong with it.
func find(ctx context.Context, c *pgx.Conn, sub *language.Subscription) (*table, error) {
	schema, name, full := strings.Cut(sub.Table, ".")
	if !full {
		schema, name = "", schema
	}
	var oid uint32
	var role string
	var isTable, enters, reads, deletes, hidden bool
	err := c.QueryRow(ctx, findTable, schema, name).Scan(&oid, &schema, &isTable, &role, &enters, &reads, &deletes, &hidden)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("database %s has no table %s that its user could find: create it, or write table: SCHEMA.TABLE", c.Config().Database, sub.Table)
	}
	if err != nil {
		return nil, err
	}
	t := &table{name: schema + "." + name}
	if !isTable {
		return nil, fmt.Errorf("%s is no table, so its rows cannot be taken", t.name)
	}
	rows, err := c.Query(ctx, findColumns, oid)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (x column, err error) {
		return x, row.Scan(&x.name, &x.kind, &x.key, &x.updates)
	})
	if err != nil {
		return nil, err
	}
	quoted := pgx.Identifier{schema, name}.Sanitize()
	mark, err := named(t.name, "mark", sub.Mark, all)
	if err != nil {
		return nil, err
	}
	var grants []string
	if !enters {
		grants = append(grants, fmt.Sprintf("grant usage on schema %s to %s", pgx.Identifier{schema}.Sanitize(), role))
	}
	rights, has := "select, delete", reads && deletes
	if mark != nil {
		rights, has = fmt.Sprintf("select, update (%s)", pgx.Identifier{mark.name}.Sanitize()), reads && mark.updates
	}
	if !has {
		grants = append(grants, fmt.Sprintf("grant %s on %s to %s", rights, quoted, role))
	}
	if len(grants) > 0 {
		return nil, fmt.Errorf("user %s may not take rows of %s: let its owner run: %s", role, t.name, strings.Join(grants, "; "))
	}
	if hidden {
		return nil, fmt.Errorf("row security may hide rows of %s from user %s, and nobody would miss them: let its owner run: create policy procaas on %s to %s using (true)",
			t.name, role, quoted, role)
	}
	return t, t.prepare(quoted, sub, mark, all)
}

// named returns the column that a field names, or nil if the field is empty.
func named(table, field, name string, all []column) (*column, error) {
	if name == "" {
		return nil, nil
	}
	i := slices.IndexFunc(all, func(x column) bool { return x.name == name })
	if i >= 0 {
		return &all[i], nil
	}
	have := make([]string, len(all))
	for i, x := range all {
		have[i] = x.name
	}
	return nil, fmt.Errorf("%s has no column %s, which %s: names; it has %s", table, name, field, strings.Join(have, ", "))
}

// ordered are the types of keys whose order may be that of rows.
var ordered = []string{"smallint", "integer", "bigint", "numeric", "timestamp with time zone", "timestamp without time zone"}

// prepare makes the statements.
func (t *table) prepare(quoted string, sub *language.Subscription, mark *column, all []column) error {
	var keys []column
	for _, x := range all {
		if x.key > 0 {
			keys = append(keys, x)
		}
	}
	slices.SortFunc(keys, func(a, b column) int { return a.key - b.key })
	if len(keys) == 0 {
		return fmt.Errorf("%s has no primary key, so nothing tells its rows apart: alter table %s add primary key (...)", t.name, quoted)
	}
	order, err := named(t.name, "order-by", sub.OrderBy, all)
	if err != nil {
		return err
	}
	if order == nil && !slices.Contains(ordered, keys[0].kind) {
		return fmt.Errorf("the primary key %s of %s is a %s, whose order is not that of the rows: add order-by: with a column that grows",
			keys[0].name, t.name, keys[0].kind)
	}
	pending, take, from := "true", "delete from "+quoted+" t using", ""
	if mark != nil {
		name := pgx.Identifier{mark.name}.Sanitize()
		value := "now()"
		pending = "t." + name + " is null"
		switch {
		case mark.kind == "boolean":
			pending, value = "t."+name+" is not true", "true"
		case !strings.HasPrefix(mark.kind, "timestamp"):
			return fmt.Errorf("the column %s of %s is a %s: mark: wants a boolean or a timestamp", mark.name, t.name, mark.kind)
		}
		take, from = fmt.Sprintf("update %s t set %s = %s", quoted, name, value), " from"
	}
	var texts, by, names, held, same []string
	if order != nil {
		by = append(by, "t."+pgx.Identifier{order.name}.Sanitize())
	}
	given := func(first int) string {
		arrays := make([]string, len(keys))
		for i, x := range keys {
			arrays[i] = fmt.Sprintf("$%d::text[]::%s[]", first+i, x.kind)
		}
		return "unnest(" + strings.Join(arrays, ", ") + ")"
	}
	for i, x := range keys {
		name := "t." + pgx.Identifier{x.name}.Sanitize()
		texts, by, names = append(texts, name+"::text"), append(by, name), append(names, name)
		held = append(held, fmt.Sprint("k", i))
		same = append(same, fmt.Sprintf("h.k%d = %s", i, name))
	}
	as := " h(" + strings.Join(held, ", ") + ")"
	t.keys = len(keys)
	// As a filter, it lets the server walk along the index. A join might make it sort the whole table.
	handed := fmt.Sprintf("(%s) not in (select * from %s%s)", strings.Join(names, ", "), given(2), as)
	t.fetch = fmt.Sprintf("select array[%s], left(to_json(t)::text, %d) from %s t where %s and %s order by %s limit $1",
		strings.Join(texts, ", "), mostText, quoted, pending, handed, strings.Join(by, ", "))
	t.done = fmt.Sprintf("%s%s %s%s where %s", take, from, given(1), as, strings.Join(same, " and "))
	t.lag = fmt.Sprintf("select count(*) from (select from %s t where %s limit %d) x", quoted, pending, mostLag)
	return nil
}
