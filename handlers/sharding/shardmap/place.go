package shardmap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const reserve = `insert into shard_placements (map, key, shard, state, attrs) values ($1, $2, $3, 'creating', $4)
	on conflict (map, key) do nothing`

// Place creates a placement for a key on a shard: a reservation in the map, the fence on the shard,
// and then the map again. Any process that finds a reservation completes it. A key that has a
// placement keeps it, even on another shard.
func (m *Map) Place(ctx context.Context, key, shard string, attrs map[string]any) (Placement, error) {
	if err := m.layout.check(key); err != nil {
		return Placement{}, fmt.Errorf("map %s: %w", m.ID, err)
	}
	if m.Declared.Shard(shard) == nil {
		return Placement{}, fmt.Errorf("map %s: %w %q", m.ID, ErrUnknownShard, shard)
	}
	data, err := json.Marshal(attrs)
	if err != nil {
		return Placement{}, fmt.Errorf("map %s: attributes of %q: %w", m.ID, key, err)
	}
	if _, err := m.service.pool.Exec(ctx, reserve, m.ID, key, shard, data); err != nil {
		return Placement{}, fmt.Errorf("map %s: reserve %q: %w", m.ID, key, err)
	}
	p, err := m.Read(ctx, key)
	if err != nil || p.State != Creating {
		return p, err
	}
	return m.Complete(ctx, p)
}

const activate = `update shard_placements set state = 'active' where map = $1 and key = $2 and state = 'creating'`

// Complete completes the registration of a key: the shard gets its fence, then the map says that
// the key is ready. Any number of processes may do so at once.
func (m *Map) Complete(ctx context.Context, p Placement) (Placement, error) {
	pool, err := m.service.Connect(ctx, m, p.Shard)
	if err != nil {
		return p, err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return m.fenceNew(ctx, tx, p) })
	if err != nil && !errors.Is(err, ErrFence) { // another process has completed it, and it has moved on
		return p, fmt.Errorf("map %s: register %q on %s: %w", m.ID, p.Key, p.Shard, err)
	}
	if _, err := m.service.pool.Exec(ctx, activate, m.ID, p.Key); err != nil {
		return p, fmt.Errorf("map %s: register %q: %w", m.ID, p.Key, err)
	}
	m.service.changed()
	return m.Read(ctx, p.Key)
}

// fenceNew writes the fence of a new placement. Before that, it raises the fence of the one it was
// split from, so that writers that know only that one ask again.
func (m *Map) fenceNew(ctx context.Context, tx pgx.Tx, p Placement) error {
	wide, err := m.wider(ctx, m.service.pool, p.Key)
	if err != nil && !errors.Is(err, ErrUnknownKey) {
		return err
	}
	if err == nil && wide.Shard == p.Shard {
		if err := raiseFence(ctx, tx, Fence{Map: m.ID, Key: wide.Key, Epoch: wide.Epoch, State: Active}); err != nil {
			return err
		}
	}
	return raiseFence(ctx, tx, Fence{Map: m.ID, Key: p.Key, Epoch: p.Epoch, State: Active})
}

// wider returns the placement that a key would have without its own.
func (m *Map) wider(ctx context.Context, q Querier, key string) (Placement, error) {
	p, err := m.one(ctx, q, key, findPlacement, m.ID, m.layout.candidates(key)[1:])
	if errors.Is(err, ErrUnknownKey) && m.layout.strategy == "range" {
		return m.stretch(ctx, q, key)
	}
	return p, err
}
