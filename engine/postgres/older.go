package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"procaas/engine/sqlstore"
)

// Nodes of two releases may use the same tables if the last migrations only added to them: see [sqlstore.History.Floor]. A migration
// that older nodes cannot live with is refused while they are alive: they would fail runs. It holds the migration lock. A node joins
// under the same lock, shared, and reads the versions first. So it joins either before, and is seen by the migration, or after, and
// learns that the tables are not for it. A node that was paused during the migration learns it from its next beat, before it renews
// its lease.

const (
	lockJoin = "select pg_advisory_xact_lock_shared(hashtext(current_schema))" // see migrationLock

	hasLeases     = "select to_regclass('leases') is not null"
	hasKnows      = "select exists (select from pg_attribute where attrelid = to_regclass('nodes') and attname = 'knows')"
	findLive      = "select node, name, lease_until, coalesce((knows ->> $1)::bigint, 0) from nodes join leases using (node)" + isAlive
	findLiveOld   = "select node, name, lease_until, 0 from nodes join leases using (node)" + isAlive // before version 86
	findLiveFirst = "select node, name, lease_until, 0 from nodes" + isAlive                          // before version 8
	isAlive       = " where gone is null and lease_until >= clock_timestamp() order by node"
)

// prepareLive returns an error if a migration is due that live nodes cannot work with. Otherwise it notes who can work with the
// tables while they change, since nodes read it with each beat. It does not ask in the transaction that holds the lock, which would
// keep the migration from the tables that it looked at.
func (l *migrationLock) prepareLive(ctx context.Context) error {
	have, err := sqlstore.Versions(l.known, existing, func(sql string) interface{ Scan(...any) error } { return l.db.QueryRowContext(ctx, sql) })
	if err != nil {
		return err
	}
	l.floors = map[string]int64{}
	for i := range l.known {
		h := &l.known[i]
		floor, err := h.Floor(have[i])
		if err != nil {
			return err
		}
		l.floors[h.Of] = floor
		if have[0].Applied == 0 || have[i].Applied >= h.Latest {
			continue // a new store, or nothing to do
		}
		if floor > have[i].Floor {
			if err := l.refuseLive(ctx, h, floor); err != nil {
				return err
			}
		}
		if have[0].Applied >= sqlstore.FloorVersion {
			if err := l.setFloor(ctx, h); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *migrationLock) setFloor(ctx context.Context, h *sqlstore.History) error {
	_, err := l.db.ExecContext(ctx, sqlstore.SetFloor, h.Of, h.Latest, l.floors[h.Of])
	return err
}

// refuseLive returns an error if nodes are alive that do not know a version of a history.
func (l *migrationLock) refuseLive(ctx context.Context, h *sqlstore.History, floor int64) error {
	var leases, knows bool
	if err := errors.Join(l.db.QueryRowContext(ctx, hasLeases).Scan(&leases), l.db.QueryRowContext(ctx, hasKnows).Scan(&knows)); err != nil {
		return err
	}
	find, args := findLiveFirst, []any(nil)
	if knows {
		find, args = findLive, []any{h.Of}
	} else if leases {
		find = findLiveOld
	}
	rows, err := l.db.QueryContext(ctx, find, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var live []string
	for rows.Next() {
		var node, version int64
		var name string
		var until time.Time
		if err := rows.Scan(&node, &name, &until, &version); err != nil {
			return err
		}
		if version < floor {
			live = append(live, fmt.Sprintf("node %d (%s, until %s)", node, name, until.UTC().Format(time.TimeOnly)))
		}
	}
	if err := rows.Err(); err != nil || len(live) == 0 {
		return err
	}
	return fmt.Errorf("older nodes are alive, which cannot work with newer tables: %s. This program brings version %d%s, and nodes must know "+
		"version %d to work with it. Stop them all, or wait until the leases of nodes that have died end, and try again. Nothing was changed",
		strings.Join(live, ", "), h.Latest, h.ForAddon(), floor)
}
