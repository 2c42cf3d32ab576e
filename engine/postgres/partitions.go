package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/clock"
)

// partitionsAhead is for how many days the history has partitions, including today. Every process
// creates more.
const partitionsAhead = 3

// partitionsEvery is how often partitions are checked.
const partitionsEvery = time.Hour

const (
	findToday = "select date_trunc('day', now(), 'UTC')"
	// Not with to_regclass, because a session caches missing names, and an advisory lock does not
	// invalidate the cache.
	findPartition = "select exists (select from pg_class where relname = $1 and relnamespace = (select relnamespace from pg_class where " +
		"oid = 'history'::regclass))"
	// The lock of the parent is not held while the table is created, and only briefly while it is
	// attached.
	makePartition   = "create table %s (like history including all)"
	attachPartition = "alter table history attach partition %s for values from ('%s') to ('%s')"
	// Runs that ended without a partition for their day are in the rest, and would prevent
	// attaching one.
	takeFromRest = `with gone as (delete from history_rest where ended >= '%s' and ended < '%s' returning *)
	insert into %s select * from gone`
)

// keepPartitions creates partitions ahead until ctx ends.
func keepPartitions(ctx context.Context, db *database, log *slog.Logger) {
	for clock.Pause(ctx, partitionsEvery) {
		if err := makePartitions(ctx, db); err != nil && ctx.Err() == nil {
			log.Warn("the history's partitions cannot be made, its rest takes what ends", "error", err)
		}
	}
}

// makePartitions creates the history's partitions of the coming days. One process does so at a
// time.
func makePartitions(ctx context.Context, db *database) error {
	var today time.Time
	if err := db.pool.QueryRow(ctx, findToday).Scan(&today); err != nil {
		return err
	}
	for i := range partitionsAhead {
		day := today.UTC().AddDate(0, 0, i)
		if err := db.tx(ctx, func(t *tx) error { return addPartition(ctx, t, day) }); err != nil {
			return fmt.Errorf("partition of %s: %w", day.Format(time.DateOnly), err)
		}
	}
	return nil
}

func addPartition(ctx context.Context, t *tx, day time.Time) error {
	mine, err := t.tryLock(ctx, partitionLock)
	if err != nil || !mine {
		return err
	}
	name := "history_" + day.Format("20060102")
	exists := false
	t.queue(findPartition, name).QueryRow(value(&exists))
	if err := t.send(ctx); err != nil || exists {
		return err
	}
	table := pgx.Identifier{name}.Sanitize()
	from, to := day.Format(time.RFC3339), day.AddDate(0, 0, 1).Format(time.RFC3339)
	for _, sql := range []string{
		fmt.Sprintf(makePartition, table),
		fmt.Sprintf(takeFromRest, from, to, table),
		fmt.Sprintf(attachPartition, table, from, to),
	} {
		// One by one, because a batch is prepared before the table exists.
		if _, err := t.conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}
