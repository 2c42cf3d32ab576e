package postgres

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Partitions are tables of their own.
const allTables = "select relname from pg_class where relkind = 'r' and relnamespace = current_schema()::regnamespace order by 1"

// Holders returns the tables with a row that has a text anywhere, also as bytes. It reads the whole store.
func (s *Store) Holders(ctx context.Context, text string) (found []string, err error) {
	rows, err := s.db.pool.Query(ctx, allTables)
	if err != nil {
		return nil, err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	for _, table := range tables {
		var has bool
		query := fmt.Sprintf("select exists (select from %s t where strpos(t::text, $1) + strpos(t::text, $2) > 0)", pgx.Identifier{table}.Sanitize())
		err := s.db.tx(ctx, func(t *tx) error {
			t.queue("set local statement_timeout = 0")
			t.queue(query, text, hex.EncodeToString([]byte(text))).Query(func(r pgx.Rows) error {
				_, err := pgx.ForEachRow(r, []any{&has}, func() error { return nil })
				return err
			})
			return t.commit(ctx)
		})
		if err != nil {
			return nil, fmt.Errorf("search %s: %w", table, err)
		}
		if has {
			found = append(found, table)
		}
	}
	return found, nil
}
