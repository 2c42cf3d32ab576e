package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/clock"
)

// partitionsAhead is for how many days the history has partitions, today
// included. Every process makes more, as long as it lives.
const partitionsAhead = 3

// partitionsEvery is how often that is looked after.
const partitionsEvery = time.Hour

const (
	findToday = "select date_trunc('day', now(), 'UTC')"
	// Not by to_regclass: a session remembers names that were not there, and an advisory lock
	// does not make it look again.
	findPartition = "select exists (select from pg_class where relname = $1 and relnamespace = (select relnamespace from pg_class where " +
		"oid = 'history'::regclass))"
	// The parent's lock is not taken while the table is made, and only shortly
	// while it is attached.
	makePartition   = "create table %s (like history including all)"
	attachPartition = "alter table history attach partition %s for values from ('%s') to ('%s')"
	// What ended while there was no partition for its day is in the rest, and
	// would not let one be attached.
	takeFromRest = `with gone as (delete from history_rest where ended >= '%s' and ended < '%s' returning *)
	insert into %s select * from gone`
)

// keepPartitions makes partitions ahead until ctx ends.
func keepPartitions(ctx context.Context, db *database, log *slog.Logger) {
	for clock.Pause(ctx, partitionsEvery) {
		if err := makePartitions(ctx, db); err != nil && ctx.Err() == nil {
			log.Warn("the history's partitions cannot be made, its rest takes what ends", "error", err)
		}
	}
}

// makePartitions makes the history's partitions of the coming days. One process
// does so at a time.
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
		// One by one: what is sent together is prepared before the table is there.
		if _, err := t.conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}
