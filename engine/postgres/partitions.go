package postgres

import (
	"context"
	"log/slog"
	"time"

	"procaas/engine/clock"
	"procaas/engine/pgkit"
)

const historyDays pgkit.Days = "history"

// partitionsEvery is how often each process checks that there are partitions ahead.
const partitionsEvery = time.Hour

// keepPartitions creates partitions ahead until ctx ends.
func keepPartitions(ctx context.Context, db *database, log *slog.Logger) {
	for clock.Pause(ctx, partitionsEvery) {
		if err := makePartitions(ctx, db); err != nil && ctx.Err() == nil {
			log.Warn("the history's partitions cannot be made, its rest takes what ends", "error", err)
		}
	}
}

// makePartitions creates the history's partitions of the coming days.
func makePartitions(ctx context.Context, db *database) error {
	return historyDays.Ahead(ctx, db.pool, func(day time.Time) error {
		return db.alone(ctx, partitionLock, func(t *tx) error { return historyDays.Make(ctx, t.conn, day) })
	})
}
