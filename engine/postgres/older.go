package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"procaas/engine/sqlstore"
)

// Nodes of two releases must not use tables of different versions at once: the older ones would fail
// runs. A migration holds the migration lock, and is refused while nodes are alive. A node joins
// under the same lock, shared, and reads the version first. So it joins either before, and is seen by
// the migration, or after, and learns that the tables are newer. A node that was paused during the
// migration learns it from its next beat, before it renews its lease.

const (
	lockJoin = "select pg_advisory_xact_lock_shared(hashtext(current_schema))" // see migrationLock

	hasLeases     = "select to_regclass('leases') is not null"
	findLive      = "select node, name, lease_until from nodes join leases using (node)" + isAlive
	findLiveFirst = "select node, name, lease_until from nodes" + isAlive // before version 8
	isAlive       = " where gone is null and lease_until >= clock_timestamp() order by node"
)

// refuseLive returns an error if a migration is due while nodes are alive.
func refuseLive(ctx context.Context, tx *sql.Tx, known []sqlstore.History) error {
	have, err := sqlstore.Versions(known, existing, func(sql string) interface{ Scan(...any) error } { return tx.QueryRowContext(ctx, sql) })
	if err != nil || have[0] == 0 { // a new store
		return err
	}
	due := 0
	for due < len(known) && have[due] >= known[due].Latest {
		due++
	}
	if due == len(known) {
		return nil
	}
	var leases bool
	if err := tx.QueryRowContext(ctx, hasLeases).Scan(&leases); err != nil {
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
		strings.Join(live, ", "), have[due], known[due].Latest)
}
