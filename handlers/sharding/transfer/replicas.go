package transfer

import (
	"context"
	"fmt"
	"time"

	"procaas/engine/clock"
)

// A standby is a walsender with a physical stream. Decoders have logical slots.
const (
	followers = ` from pg_stat_replication r where state = 'streaming' and not exists (
		select from pg_replication_slots s where s.active_pid = r.pid and s.slot_type = 'logical')`
	anyFollower  = `select exists (select` + followers + `)`
	followerHas  = `select not exists (select` + followers + `) or exists (select` + followers + ` and r.flush_lsn >= $1::text::pg_lsn)`
	flushedUntil = `select pg_current_wal_flush_lsn()::text`
)

// standbys reports whether the target has standbys that follow it.
func (m *sides) standbys(ctx context.Context) (there bool, err error) {
	if err := m.target.QueryRow(ctx, anyFollower).Scan(&there); err != nil {
		return false, fmt.Errorf("standbys of shard %s: %w", m.spec.TargetShard, err)
	}
	return there, nil
}

// replicated waits until one of the target's standbys has on disk what the target has. It does not
// wait for a standby that has gone.
func (m *sides) replicated(ctx context.Context) error {
	var lsn string
	if err := m.target.QueryRow(ctx, flushedUntil).Scan(&lsn); err != nil {
		return fmt.Errorf("standbys of shard %s: %w", m.spec.TargetShard, err)
	}
	for {
		var has bool
		if err := m.target.QueryRow(ctx, followerHas, lsn).Scan(&has); err != nil {
			return fmt.Errorf("no standby of shard %s has the latest rows: %w", m.spec.TargetShard, err)
		}
		if has {
			return nil
		}
		if err := clock.Sleep(ctx, time.Millisecond); err != nil {
			return fmt.Errorf("no standby of shard %s has the latest rows: %w", m.spec.TargetShard, err)
		}
	}
}
