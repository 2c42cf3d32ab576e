package sharding

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"procaas/dsl"
)

// Publication names the publication that has the rows of a placement.
func (m *Map) Publication(placement string) string {
	return m.publication(m.layout.bucket(placement))
}

func (m *Map) publication(bucket int) string {
	return "procaas_" + strings.ReplaceAll(m.ID, "-", "_") + "_" + strconv.Itoa(bucket)
}

// Rows gives the condition, as SQL without parameters, that selects the rows of a
// placement in a table of the map: without those of longer placements, and without
// those of keys of a slot or a stretch that are placed themselves. Hold the placement
// by a transfer while it is used: no key is split off then.
func (m *Map) Rows(ctx context.Context, t *dsl.ShardTable, placement string) (string, error) {
	columns := m.columns(t)
	var conditions []string
	switch placement[0] {
	case '#':
		conditions = append(conditions, fmt.Sprintf("(%s & %d) = %s", m.layout.hashSQL(columns[0]), m.layout.slots-1, placement[1:]))
	case '[':
		var err error
		if conditions, err = m.stretchRows(ctx, columns[0], placement); err != nil {
			return "", fmt.Errorf("map %s: the stretch %q: %w", m.ID, placement, err)
		}
	default:
		conditions = append(conditions, m.layout.keyRows(columns, placement))
	}
	within, err := m.within(ctx, placement)
	if err != nil {
		return "", err
	}
	for _, key := range within {
		if k, _ := ParseKey(key); len(k) <= len(columns) {
			conditions = append(conditions, "not ("+m.layout.keyRows(columns, key)+")")
		}
	}
	return strings.Join(conditions, " and "), nil
}

// columns lists the columns of a table that hold the parts of a key.
func (m *Map) columns(t *dsl.ShardTable) []string {
	if len(t.Key) > 0 {
		return t.Key
	}
	return m.Declared.Key
}

// keyRows selects the rows of a key and of all below it.
func (l layout) keyRows(columns []string, key string) string {
	parts, _ := ParseKey(key)
	var out []string
	for i, part := range parts[:min(len(parts), len(columns))] {
		switch {
		case i == 0 && l.ints:
			out = append(out, quoteName(columns[i])+" = "+part)
		case i == 0:
			out = append(out, quoteName(columns[i])+" = "+quote(part))
		default:
			out = append(out, quoteName(columns[i])+"::text = "+quote(part))
		}
	}
	return strings.Join(out, " and ")
}

// hashSQL computes the hash of the first part of a key.
func (l layout) hashSQL(column string) string {
	if l.ints {
		return "hashint8extended(" + quoteName(column) + ", 0)"
	}
	return "hashtextextended(" + quoteName(column) + ", 0)"
}

const stretchBounds = `select key from shard_placements where map = $1 and key >= '[' and key < '\' and state <> 'merged'`

// stretches lists the placements of a map by range, in the order of their bounds.
func (m *Map) stretches(ctx context.Context) ([]string, error) {
	keys, err := m.keys(ctx, stretchBounds, m.ID)
	slices.SortFunc(keys, func(a, b string) int {
		if m.layout.below(a[1:], b[1:]) {
			return -1
		}
		return 1
	})
	return keys, err
}

// stretchRows selects the rows of a stretch of keys.
func (m *Map) stretchRows(ctx context.Context, column, placement string) ([]string, error) {
	keys, err := m.stretches(ctx)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(keys, placement) {
		return nil, ErrUnknownKey
	}
	bound := quote
	if m.layout.ints {
		bound = func(s string) string { return s }
	} else {
		column = quoteName(column) + ` collate "C"`
	}
	conditions := []string{"true"}
	i := slices.Index(keys, placement)
	if low := placement[1:]; low != "" {
		conditions = append(conditions, column+" >= "+bound(low))
	}
	if i+1 < len(keys) {
		conditions = append(conditions, column+" < "+bound(keys[i+1][1:]))
	}
	return conditions, nil
}

// Placements within another one: keys below a key, and keys of their own in a map of
// slots or stretches.
const (
	keysBelow = `select key from shard_placements where map = $1 and key > $2 || '/' and key < $2 || '0' order by key`
	ownKeys   = `select key from shard_placements where map = $1 and key !~ '^[#[]' order by key`
)

// within lists the placements that lie within another one.
func (m *Map) within(ctx context.Context, placement string) ([]string, error) {
	if placement[0] != '#' && placement[0] != '[' {
		return m.keys(ctx, keysBelow, m.ID, placement)
	}
	return m.keys(ctx, ownKeys, m.ID)
}

// quote writes text as a literal of SQL.
func quote(text string) string {
	text = strings.ReplaceAll(text, "'", "''")
	if strings.Contains(text, `\`) {
		return ` E'` + strings.ReplaceAll(text, `\`, `\\`) + `'`
	}
	return "'" + text + "'"
}

// quoteName writes the name of a column.
func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// quoteTable writes the name of a table with its schema.
func quoteTable(table string) string {
	schema, name, ok := strings.Cut(table, ".")
	if !ok {
		schema, name = "public", table
	}
	return quoteName(schema) + "." + quoteName(name)
}
