package shardmap

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	readOverdue = `select map, key, epoch from procaas.overdue() where map = $1`

	// takeFromCoordinator invalidates the token of a transfer that has not switched, and returns
	// the number of a later claim. The transfer keeps the placement.
	takeFromCoordinator = `update shard_placements set tried = tried + 1, owner = case when owner is not null then $4 end
		where map = $1 and key = $2 and epoch = $3 returning tried`

	claimFence = `select procaas.claim($1, $2, $3, $4)`
)

// thawPatience bounds one attempt to end the overdue freezes of a shard.
const thawPatience = 10 * time.Second

// Thaw ends the freezes of a map on a shard whose coordinator has died between the seal and the switch, or
// is too slow. It returns how many keys accept writes again. An unsealed freeze ends by itself. For
// a sealed one, only the map knows how it ends.
func (s *Service) Thaw(ctx context.Context, m *Map, shard string) (thawed int, err error) {
	pool, err := s.Connect(ctx, m, shard)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, thawPatience)
	defer cancel()
	rows, err := pool.Query(ctx, readOverdue, m.ID)
	if err != nil {
		return 0, fmt.Errorf("map %s: freezes of %s: %w", m.ID, shard, err)
	}
	overdue, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (f Fence, err error) {
		err = row.Scan(&f.Map, &f.Key, &f.Epoch)
		return f, err
	})
	if err != nil {
		return 0, fmt.Errorf("map %s: freezes of %s: %w", m.ID, shard, err)
	}
	for _, f := range overdue {
		done, thawErr := m.thaw(ctx, pool, shard, f)
		if thawErr != nil {
			err = errors.Join(err, fmt.Errorf("map %s: thaw key %q on %s: %w", f.Map, f.Key, shard, thawErr))
		}
		if done {
			thawed++
		}
	}
	return thawed, err
}

// thaw ends one freeze according to the map. If the map has switched, the source learns that. If
// not, the token of the freeze can never switch, and the source accepts writes.
func (m *Map) thaw(ctx context.Context, q *pgxpool.Pool, shard string, f Fence) (done bool, err error) {
	p, err := m.Read(ctx, f.Key)
	if err != nil {
		return false, err
	}
	if p.Epoch > f.Epoch {
		now := Fence{Map: m.ID, Key: f.Key, Epoch: p.Epoch, State: Moved, Target: p.Shard}
		switch {
		case p.State == Merged:
			now.State, now.Target = Closed, ""
		case p.Shard == shard: // others were split off
			now.State, now.Target = Active, ""
		}
		return now.State == Active, pgx.BeginFunc(ctx, q, func(tx pgx.Tx) error { return raiseFence(ctx, tx, now) })
	}
	var next int64
	err = m.service.pool.QueryRow(ctx, takeFromCoordinator, m.ID, f.Key, f.Epoch, rand.Text()).Scan(&next)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil // it has switched just now
	}
	if err != nil {
		return false, err
	}
	if err := q.QueryRow(ctx, claimFence, m.ID, f.Key, f.Epoch, next).Scan(&done); err != nil {
		return false, err
	}
	m.service.changed()
	m.service.log.Warn("a key was frozen for too long; its shard takes writes again, and the transfer is done anew",
		"map", m.ID, "key", f.Key, "shard", p.Shard, "transfer", p.Transfer)
	return done, nil
}
