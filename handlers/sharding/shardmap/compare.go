package shardmap

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// A comparer makes the fences of shards match the map.
type comparer struct{ *Map }

// mapCompared reports whether the fences of a map were compared on the timeline of the server. It is
// as in procaas.guard.
const mapCompared = `procaas.timeline() is not distinct from coalesce((select timeline from procaas.compared_maps where map = $1),
	(select timeline from procaas.compared))`

// The comparison goes both ways: what the map has on the shard must be open there, and what is open
// there must be in the map.
const (
	compareLock   = `select pg_advisory_xact_lock(8104928, hashtext($1))`
	voidTransfers = `update shard_placements set owner = null, transfer = null, target = null
		where map = $1 and owner is not null and (shard = $2 or target = $2) returning key`
	fencesOf = `select map, key, epoch, state, coalesce(target, ''), coalesce(owner, ''), attempt
		from procaas.fences where map = $1 and key = any($2)`
	openFences = `select map, key, epoch, state, coalesce(target, ''), coalesce(owner, ''), attempt
		from procaas.fences where map = $1 and state in ('active', 'frozen') and key > $2 order by key limit $3`
	placementsOf = `select ` + placementColumns + ` from shard_placements where map = $1 and key = any($2)`
	ownerOf      = `select coalesce(owner, '') from shard_placements where map = $1 and key = $2`
	confirm      = `insert into procaas.compared_maps (map, timeline) select $1, procaas.timeline() where procaas.timeline() = $2
		on conflict (map) do update set timeline = excluded.timeline, at = clock_timestamp()`
	timelineDone = `select procaas.timeline(), ` + mapCompared
)

// Compare makes the fences on the master of a shard match the map, and then lets writers in. It is
// needed because an asynchronous failover may have lost the latest fences. It ends transfers from
// or to the shard that have not switched, because what they have frozen or copied may be lost, too.
// Other maps with fences in the database are compared by themselves.
func (s *Service) Compare(ctx context.Context, m *Map, shard string) error {
	pool, err := s.Connect(ctx, m, shard)
	if err != nil {
		return err
	}
	pool.Reset() // its connections may be to the former master
	// An older release may have enrolled it.
	if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return installFence(ctx, tx) }); err != nil {
		return fmt.Errorf("map %s: %s: %w", m.ID, shard, err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, compareLock, m.ID); err != nil {
			return err
		}
		var timeline string
		var done bool
		// Another node may have done it while this one waited for the lock.
		if err := tx.QueryRow(ctx, timelineDone, m.ID).Scan(&timeline, &done); err != nil || done {
			return err
		}
		if err := (comparer{m}).compare(ctx, tx, pool, shard); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, confirm, m.ID, timeline)
		return err
	})
	if err != nil {
		return fmt.Errorf("map %s: compare the fences of %s: %w", m.ID, shard, err)
	}
	return nil
}

// A beginner begins transactions.
type beginner interface {
	Begin(context.Context) (pgx.Tx, error)
}

// compare reads with q and changes fences in separate transactions.
func (m comparer) compare(ctx context.Context, q Querier, pool beginner, shard string) error {
	// First, so that no earlier token can switch the map any more. amend respects what a later
	// transfer writes.
	ended, err := m.keys(ctx, m.service.pool, voidTransfers, m.ID, shard)
	if err != nil {
		return err
	}
	if len(ended) > 0 {
		m.service.changed()
	}
	changed := 0
	// In separate transactions: one that held the locks of thousands of fences would block all
	// their writers.
	write := func(f Fence) error {
		changed++
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return m.amend(ctx, tx, f) })
	}
	if err := m.openAll(ctx, q, shard, write); err != nil {
		return err
	}
	if err := m.closeRest(ctx, q, shard, write); err != nil {
		return err
	}
	m.service.log.Info("fences were compared with the map", "map", m.ID, "shard", shard, "changed", changed, "transfers_ended", len(ended))
	return nil
}

// amend writes a fence unless another live transfer has written it meanwhile.
func (m comparer) amend(ctx context.Context, tx pgx.Tx, f Fence) error {
	if _, err := tx.Exec(ctx, lockFence, f.Map, f.Key); err != nil {
		return err
	}
	have, known, err := ReadFence(ctx, tx, f.Map, f.Key)
	if err != nil {
		return err
	}
	if known && have.Owner != "" {
		var owner string
		err := m.service.pool.QueryRow(ctx, ownerOf, m.ID, f.Key).Scan(&owner)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) || owner == have.Owner {
			return err
		}
	}
	return WriteFence(ctx, tx, f)
}

// openAll opens the placements that the map has on the shard.
func (m comparer) openAll(ctx context.Context, q Querier, shard string, write func(Fence) error) error {
	for after := ""; ; {
		page, err := feeder{m.Map}.page(ctx, placedHere, shard, after)
		if err != nil || len(page) == 0 {
			return err
		}
		keys := make([]string, len(page))
		for i, p := range page {
			keys[i] = p.Key
		}
		after = keys[len(keys)-1]
		known, err := readFences(ctx, q, fencesOf, m.ID, keys)
		if err != nil {
			return err
		}
		byKey := map[string]Fence{}
		for _, f := range known {
			byKey[f.Key] = f
		}
		for _, p := range page {
			f, ok := byKey[p.Key]
			// The map itself has failed over to a standby without its latest switch. Nothing here
			// can tell which side is right.
			if ok && f.Epoch > p.Epoch {
				return fmt.Errorf("key %q is at epoch %d on the shard and at %d in the map: the map has lost a transfer; mend its placement by hand",
					p.Key, f.Epoch, p.Epoch)
			}
			if ok && f.Epoch == p.Epoch && f.State == Active {
				continue
			}
			if err := write(Fence{Map: m.ID, Key: p.Key, Epoch: p.Epoch, State: Active}); err != nil {
				return err
			}
		}
	}
}

// closeRest closes what is open on the shard but lives elsewhere according to the map.
func (m comparer) closeRest(ctx context.Context, q Querier, shard string, write func(Fence) error) error {
	for after := ""; ; {
		page, err := readFences(ctx, q, openFences, m.ID, after, placementPage)
		if err != nil || len(page) == 0 {
			return err
		}
		keys := make([]string, len(page))
		for i, f := range page {
			keys[i] = f.Key
		}
		after = keys[len(keys)-1]
		rows, err := m.service.pool.Query(ctx, placementsOf, m.ID, keys)
		if err != nil {
			return err
		}
		placements, err := pgx.CollectRows(rows, scanPlacement)
		if err != nil {
			return err
		}
		home := map[string]Placement{}
		for _, p := range placements {
			home[p.Key] = p
		}
		for _, f := range page {
			p, placed := home[f.Key]
			end := Fence{Map: m.ID, Key: f.Key, Epoch: f.Epoch, State: Closed}
			switch {
			case placed && p.State == Merged: // its rows belong to a wider placement
				end.Epoch = max(p.Epoch, f.Epoch)
			case placed && p.Shard == shard:
				continue // openAll has handled it
			case placed && p.Epoch >= f.Epoch:
				end.Epoch, end.State, end.Target = p.Epoch, Moved, p.Shard
			}
			if err := write(end); err != nil {
				return err
			}
		}
	}
}

func readFences(ctx context.Context, q Querier, sql string, args ...any) ([]Fence, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Fence, error) {
		var f Fence
		err := row.Scan(&f.Map, &f.Key, &f.Epoch, &f.State, &f.Target, &f.Owner, &f.Attempt)
		return f, err
	})
}
