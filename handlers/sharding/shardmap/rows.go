package shardmap

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"procaas/handlers/sharding/language"
	"procaas/handlers/sharding/transfer"
)

// A rowFinder finds the rows of a placement.
type rowFinder struct{ *Map }

// Publication returns the publication with the rows of a placement.
func (m *Map) Publication(placement string) string {
	return rowFinder{m}.publication(m.layout.bucket(placement))
}

func (m rowFinder) publication(bucket int) string {
	return "procaas_" + strings.ReplaceAll(m.ID, "-", "_") + "_" + strconv.Itoa(bucket)
}

// Rows says which rows of a table belong to a placement. Rows of longer placements do not, nor do
// rows of keys of a slot or a stretch that have their own placements. ok is false if there are
// none: if the table has fewer key columns than the placement has parts, its rows belong only to
// the wider placement. While a transfer has the placement, or has not ended yet, no key is split
// off.
func (m *Map) Rows(ctx context.Context, t *language.ShardTable, placement string) (rows transfer.Table, ok bool, err error) {
	columns := rowFinder{m}.columns(t)
	rows = transfer.Table{Name: t.Table, Columns: columns}
	switch placement[0] {
	case '#':
		rows.Where = fmt.Sprintf("(%s & %d) = %s", m.layout.hashSQL(columns[0]), m.layout.slots-1, placement[1:])
	case '[':
		if rows.Where, err = (rowFinder{m}).stretchRows(ctx, columns[0], placement); err != nil {
			return rows, false, fmt.Errorf("map %s: the stretch %q: %w", m.ID, placement, err)
		}
	default:
		rows.Key, _ = parseKey(placement)
		if len(rows.Key) > len(columns) {
			return rows, false, nil
		}
	}
	within, err := rowFinder{m}.within(ctx, placement)
	if err != nil {
		return rows, false, err
	}
	for _, key := range within {
		if k, _ := parseKey(key); len(k) <= len(columns) {
			rows.Except = append(rows.Except, k)
		}
	}
	return rows, true, nil
}

// Elsewhere lists the tables that other maps move on the same databases.
func (m *Map) Elsewhere() (tables []string) {
	for _, o := range m.service.Maps() {
		if o.ID == m.ID || o.connect().Database != m.connect().Database {
			continue
		}
		shared := slices.ContainsFunc(o.Declared.Shards, func(x *language.Shard) bool {
			return slices.ContainsFunc(x.Hosts, func(h *language.ShardHost) bool { return m.has(h.Full()) })
		})
		for _, t := range o.Declared.Tables {
			if shared {
				tables = append(tables, t.Table)
			}
		}
	}
	return tables
}

// has reports whether a host belongs to the map.
func (m *Map) has(address string) bool {
	for _, s := range m.shards {
		if slices.Contains(s.addresses, address) {
			return true
		}
	}
	return false
}

// columns lists the columns of a table for the parts of a key.
func (m rowFinder) columns(t *language.ShardTable) []string {
	if len(t.Key) > 0 {
		return t.Key
	}
	return m.Declared.Key
}

// hashSQL returns the SQL for the hash of the first part of a key.
func (l layout) hashSQL(column string) string {
	if l.ints {
		return "hashint8extended(" + quoteName(column) + ", 0)"
	}
	return "hashtextextended(" + quoteName(column) + ", 0)"
}

const stretchBounds = `select key from shard_placements where map = $1 and key >= '[' and key < '\' and state <> 'merged'`

// stretches lists the placements of a range map, ordered by bound.
func (m rowFinder) stretches(ctx context.Context, q Querier) ([]string, error) {
	keys, err := m.keys(ctx, q, stretchBounds, m.ID)
	slices.SortFunc(keys, func(a, b string) int {
		if m.layout.below(a[1:], b[1:]) {
			return -1
		}
		return 1
	})
	return keys, err
}

// bounds returns the lower bounds of a stretch and of the next one. up is empty for the last
// stretch.
func (m rowFinder) bounds(ctx context.Context, placement string) (low, up string, err error) {
	keys, err := m.stretches(ctx, m.service.pool)
	if err != nil {
		return "", "", err
	}
	i := slices.Index(keys, placement)
	if i < 0 {
		return "", "", ErrUnknownKey
	}
	if i+1 < len(keys) {
		up = keys[i+1][1:]
	}
	return placement[1:], up, nil
}

// stretchRows returns the condition for the rows of a stretch.
func (m rowFinder) stretchRows(ctx context.Context, column, placement string) (string, error) {
	low, up, err := m.bounds(ctx, placement)
	if err != nil {
		return "", err
	}
	bound := quote
	column = quoteName(column)
	if m.layout.ints {
		bound = func(s string) string { return s }
	} else {
		column += ` collate "C"`
	}
	conditions := []string{"true"}
	if low != "" {
		conditions = append(conditions, column+" >= "+bound(low))
	}
	if up != "" {
		conditions = append(conditions, column+" < "+bound(up))
	}
	return strings.Join(conditions, " and "), nil
}

// These find placements within another one: keys below a key, and keys with their own placements in
// a map of slots or stretches.
const (
	keysBelow = `select key from shard_placements where map = $1 and key > $2 || '/' and key < $2 || '0' and state <> 'merged' order by key`
	ownKeys   = `select key from shard_placements where map = $1 and key !~ '^[#[]' and state <> 'merged' order by key`
)

// within lists the placements within another one.
func (m rowFinder) within(ctx context.Context, placement string) ([]string, error) {
	if placement[0] != '#' && placement[0] != '[' {
		return m.keys(ctx, m.service.pool, keysBelow, m.ID, placement)
	}
	keys, err := m.keys(ctx, m.service.pool, ownKeys, m.ID)
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	var up string
	if placement[0] == '[' {
		if _, up, err = m.bounds(ctx, placement); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(keys, func(key string) bool {
		return !m.layout.overlap(placement, key) || up != "" && !m.layout.below(firstPart(key), up)
	}), nil
}

// quoteName quotes the name of a column.
func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// quoteTable quotes the name of a table with its schema.
func quoteTable(table string) string {
	schema, name, ok := strings.Cut(table, ".")
	if !ok {
		schema, name = "public", table
	}
	return quoteName(schema) + "." + quoteName(name)
}
