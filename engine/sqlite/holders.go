package sqlite

import (
	"context"
	"fmt"
	"strings"

	"procaas/engine/sqlstore"
)

const allColumns = `select t.name, c.name from sqlite_schema t, pragma_table_info(t.name) c
	where t.type = 'table' and t.name not like 'sqlite_%' order by t.name, c.cid`

// Holders returns the tables with a row that has a text anywhere, also as bytes. It reads the whole store.
func (s *Store) Holders(ctx context.Context, text string) (found []string, err error) {
	db := database{s}
	var tables []string
	columns := map[string][]string{}
	err = db.Read(ctx, allColumns, nil, func(r sqlstore.Row) error {
		var table, column string
		err := r.Scan(&table, &column)
		if columns[table] == nil {
			tables = append(tables, table)
		}
		columns[table] = append(columns[table], fmt.Sprintf("instr(cast(%q as blob), $1) > 0", column))
		return err
	})
	for _, table := range tables {
		if err != nil {
			break
		}
		query := fmt.Sprintf("select exists (select 1 from %q where %s)", table, strings.Join(columns[table], " or "))
		err = db.Read(ctx, query, []any{[]byte(text)}, func(r sqlstore.Row) error {
			var has bool
			err := r.Scan(&has)
			if has {
				found = append(found, table)
			}
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("search the store: %w", err)
	}
	return found, nil
}
