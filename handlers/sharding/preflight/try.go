package preflight

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"procaas/handlers/sharding/transfers"
)

// trials are the statements of a try. They touch no row, because the server refuses them before it
// looks for one. The place is for the table, and the second one for columns that may be given.
var trials = []struct{ verb, sql string }{
	{"update", "update %[1]s set %[3]s = %[3]s where false"},
	{"insert", "insert into %[1]s (%[2]s) overriding system value select %[2]s from %[1]s where false"},
	{"delete", "delete from %[1]s where false"},
}

const readWritable = `select array(select quote_ident(attname) from pg_attribute where attrelid = to_regclass($1)
	and attnum > 0 and not attisdropped and attgenerated = '' order by attidentity = 'a', attnum)`

// Try tries to update, to insert and to delete rows of each table, and rolls each of it back. The
// result has three elements for each table: a finding, or nil for a statement that works.
func Try(ctx context.Context, tx pgx.Tx, tables []Table) ([]*transfers.ShardFinding, error) {
	var out []*transfers.ShardFinding
	for _, t := range tables {
		var columns []string
		if err := tx.QueryRow(ctx, readWritable, quoted(t.Name)).Scan(&columns); err != nil {
			return nil, fmt.Errorf("try table %s: %w", t.Name, err)
		}
		if len(columns) == 0 {
			return nil, fmt.Errorf("try table %s: it has no column that can be written", t.Name)
		}
		for _, x := range trials {
			err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, fmt.Sprintf(x.sql, quoted(t.Name), strings.Join(columns, ", "), columns[0])); err != nil {
					return err
				}
				return errTried
			})
			finding, err := verdict(t, x.verb, err)
			if err != nil {
				return nil, err
			}
			out = append(out, finding)
		}
	}
	return out, nil
}

// errTried rolls a trial back.
var errTried = errors.New("tried")

// verdict turns the refusal of a trial into a finding. Another error is not the table's.
func verdict(t Table, verb string, err error) (*transfers.ShardFinding, error) {
	var refused *pgconn.PgError
	switch {
	case errors.Is(err, errTried):
		return nil, nil
	case !errors.As(err, &refused):
		return nil, fmt.Errorf("try to %s rows of table %s: %w", verb, t.Name, err)
	}
	detail := ""
	if refused.Detail != "" {
		detail = ": " + refused.Detail
	}
	return &transfers.ShardFinding{
		Level: transfers.FindingError, Table: t.Name, Problem: "once published, it refuses to " + verb + " rows: " + refused.Message + detail,
		Effect: "writers of the table would fail, so the publications were rolled back", Mend: "give it a replica identity that " +
			"the publication accepts: a primary key with the key's columns, not deferrable",
	}, nil
}
