package pgkit

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Days is the name of a table that is partitioned by the day in which its rows ended. Rows
// without a partition for their day are in the partition named with the suffix _rest.
type Days string

// daysAhead is for how many days a table has partitions, including today.
const daysAhead = 3

const (
	findToday = "select date_trunc('day', now(), 'UTC')"
	// Not with to_regclass, because a session caches missing names, and an advisory lock that it
	// waited for does not invalidate the cache.
	findDay = `select exists (select from pg_class where relname = $1
	and relnamespace = (select relnamespace from pg_class where oid = '%s'::regclass))`
	// The lock of the parent is not held while the partition is created, and only briefly while it
	// is attached.
	makeDay = "create table %s (like %s including all)"
	// Rows that ended without a partition for their day would prevent attaching one.
	takeFromRest = `with gone as (delete from %[1]s_rest where ended >= '%[2]s' and ended < '%[3]s' returning *)
	insert into %[4]s select * from gone`
	attachDay = "alter table %s attach partition %s for values from ('%s') to ('%s')"
)

// Ahead calls add for each of the coming days that has no partition. add calls [Days.Make] in a
// transaction, with a lock that lets one process at a time do so.
func (d Days) Ahead(ctx context.Context, pool *pgxpool.Pool, add func(day time.Time) error) error {
	var today time.Time
	if err := pool.QueryRow(ctx, findToday).Scan(&today); err != nil {
		return err
	}
	for i := range daysAhead {
		day := today.UTC().AddDate(0, 0, i)
		there, err := d.has(ctx, pool, day)
		if err == nil && !there {
			err = add(day)
		}
		if err != nil {
			return fmt.Errorf("partition of %s: %w", day.Format(time.DateOnly), err)
		}
	}
	return nil
}

// A querier is a pool, or the connection of a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (d Days) has(ctx context.Context, db querier, day time.Time) (there bool, err error) {
	err = db.QueryRow(ctx, fmt.Sprintf(findDay, d), d.partition(day)).Scan(&there)
	return there, err
}

func (d Days) partition(day time.Time) string { return string(d) + day.Format("_20060102") }

// Make creates the partition of a day, unless another process has.
func (d Days) Make(ctx context.Context, tx querier, day time.Time) error {
	if there, err := d.has(ctx, tx, day); err != nil || there {
		return err
	}
	table := pgx.Identifier{d.partition(day)}.Sanitize()
	from, to := day.Format(time.RFC3339), day.AddDate(0, 0, 1).Format(time.RFC3339)
	for _, sql := range []string{
		fmt.Sprintf(makeDay, table, d),
		fmt.Sprintf(takeFromRest, d, from, to, table),
		fmt.Sprintf(attachDay, d, table, from, to),
	} {
		// One by one, because a batch is prepared before the table exists.
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}
