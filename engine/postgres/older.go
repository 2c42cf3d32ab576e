package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// Nodes of two releases must not use tables of different versions at once: the older ones would fail
// runs. A migration holds the migration lock, and is refused while nodes are alive. A node joins
// under the same lock, shared, and reads the version first. So it joins either before, and is seen by
// the migration, or after, and learns that the tables are newer. A node that was paused during the
// migration learns it from its next beat, before it renews its lease.

const (
	lockJoin = "select pg_advisory_xact_lock_shared(hashtext(current_schema))" // see migrationLock

	hasLeases     = "select to_regclass('" + schemaTable + "') is not null, to_regclass('leases') is not null"
	findLive      = "select node, name, lease_until from nodes join leases using (node)" + isAlive
	findLiveFirst = "select node, name, lease_until from nodes" + isAlive // before version 8
	isAlive       = " where gone is null and lease_until >= clock_timestamp() order by node"
)

// refuseLive returns an error if the migration is due while nodes are alive.
func refuseLive(ctx context.Context, tx *sql.Tx) error {
	want, err := latestSchema()
	if err != nil {
		return err
	}
	var made, leases bool
	if err := tx.QueryRowContext(ctx, hasLeases).Scan(&made, &leases); err != nil || !made {
		return err
	}
	var have int64
	if err := tx.QueryRowContext(ctx, schemaVersion).Scan(&have); err != nil || have == 0 || have >= want {
		return err
	}
	find := findLive
	if !leases {
		find = findLiveFirst
	}
	rows, err := tx.QueryContext(ctx, find)
	if err != nil {
		return err
	}
	defer rows.Close()
	var live []string
	for rows.Next() {
		var node int64
		var name string
		var until time.Time
		if err := rows.Scan(&node, &name, &until); err != nil {
			return err
		}
		live = append(live, fmt.Sprintf("node %d (%s, until %s)", node, name, until.UTC().Format(time.TimeOnly)))
	}
	if err := rows.Err(); err != nil || len(live) == 0 {
		return err
	}
	return fmt.Errorf("older nodes are alive, which cannot work with newer tables: %s. They use version %d, and this program brings "+
		"version %d. Stop them all, or wait until the leases of nodes that have died end, and try again. Nothing was changed",
		strings.Join(live, ", "), have, want)
}

// refuseNewer returns an error if the tables are newer than this program.
func refuseNewer(have, want int64) error {
	if have <= want {
		return nil
	}
	return fmt.Errorf("schema has version %d, newer than %d, the last that this procaas knows: use a newer procaas", have, want)
}
