package shardmap

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"procaas/handlers/sharding/language"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/singleflight"
)

// A Map is one shard map: its declaration, and its placements in the database of the store. The
// package comment has its contract.
type Map struct {
	ID       string
	Declared *language.ShardMap

	layout   layout
	service  *Service
	shards   map[string]*shard
	index    *index
	position string        // of the feed
	loaded   chan struct{} // closed when all placements are in the index
	asking   singleflight.Group

	head   []byte // of answers; see AppendAnswer
	active activity

	registering singleflight.Group

	// Lanes is held while a transfer of this process asks for a lane. Other processes need no lock,
	// because lanes are taken by comparing and setting.
	Lanes sync.Mutex
}

const placementColumns = `map, key, shard, epoch, state, coalesce(transfer, ''), owner is not null, coalesce(target, '')`

// These query placements.
const (
	readPlacement = `select ` + placementColumns + ` from shard_placements where map = $1 and key = $2`
	findPlacement = `select ` + placementColumns + ` from shard_placements where map = $1 and key = any($2) and state <> 'merged'
		order by array_position($2, key) limit 1`
	findText = `select ` + placementColumns + ` from shard_placements where map = $1 and key between '[' and '[' || $2 and state <> 'merged'
		order by key desc limit 1`
	findNumber = `select ` + placementColumns + ` from shard_placements where map = $1 and key >= '[' and key < '\' and state <> 'merged'
		and (key = '[' or substr(key, 2)::numeric <= $2::numeric)
		order by nullif(substr(key, 2), '')::numeric desc nulls last limit 1`
)

func scanPlacement(row pgx.CollectableRow) (Placement, error) {
	var p Placement
	err := row.Scan(&p.Map, &p.Key, &p.Shard, &p.Epoch, &p.State, &p.Transfer, &p.Owned, &p.Target)
	return p, err
}

// one reads one placement. The error is ErrUnknownKey if there is none.
func (m *Map) one(ctx context.Context, q Querier, key, sql string, args ...any) (Placement, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return Placement{}, fmt.Errorf("map %s: read placement: %w", m.ID, err)
	}
	p, err := pgx.CollectOneRow(rows, scanPlacement)
	if errors.Is(err, pgx.ErrNoRows) {
		return Placement{}, fmt.Errorf("map %s: key %q: %w", m.ID, key, ErrUnknownKey)
	}
	if err != nil {
		return Placement{}, fmt.Errorf("map %s: read placement: %w", m.ID, err)
	}
	return p, nil
}

func (m *Map) keys(ctx context.Context, q Querier, sql string, args ...any) ([]string, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// Read reads a placement by its own key from the database.
func (m *Map) Read(ctx context.Context, placement string) (Placement, error) {
	return m.one(ctx, m.service.pool, placement, readPlacement, m.ID, placement)
}

// Find reads the longest placement of a key from the database.
func (m *Map) Find(ctx context.Context, key string) (Placement, error) {
	if err := m.layout.check(key); err != nil {
		return Placement{}, fmt.Errorf("map %s: %w", m.ID, err)
	}
	p, err := m.one(ctx, m.service.pool, key, findPlacement, m.ID, m.layout.candidates(key))
	if !errors.Is(err, ErrUnknownKey) || m.layout.strategy != "range" {
		return p, err
	}
	return m.stretch(ctx, m.service.pool, key)
}

// stretch reads the placement of the stretch that contains a key.
func (m *Map) stretch(ctx context.Context, q Querier, key string) (Placement, error) {
	if m.layout.ints {
		return m.one(ctx, q, key, findNumber, m.ID, firstPart(key))
	}
	return m.one(ctx, q, key, findText, m.ID, firstPart(key))
}

// Overlap reports whether two placements may have rows in common, now or before one was split off.
func (m *Map) Overlap(a, b string) bool { return m.layout.overlap(a, b) }

// A Begin says what to transfer.
type Begin struct {
	Key      string // of a placement
	Target   string // shard
	Transfer string // the same id takes over from itself

	// Force allows a target that is closed for transfers, for a rollback.
	Force bool
}

const beginTransfer = `update shard_placements set owner = $4, transfer = $3, target = $5, tried = tried + 1
	where map = $1 and key = $2 and state = 'active' and shard <> $5 and (owner is null or transfer = $3)
	returning shard, epoch, tried`

// BeginTransfer takes a placement over for a transfer, or takes over a transfer from a lost
// coordinator. If that transfer has already switched, the result says so.
func (m *Map) BeginTransfer(ctx context.Context, b Begin) (Transfer, error) {
	t := Transfer{Map: m.ID, Key: b.Key, ID: b.Transfer, Target: b.Target, Owner: rand.Text()}
	before, err := m.Read(ctx, b.Key)
	if err != nil {
		return t, err
	}
	// A transfer that has begun continues even if its target was closed since.
	if before.Transfer != b.Transfer && !b.Force {
		if err := m.mayReceive(ctx, b.Target); err != nil {
			return t, err
		}
	}
	err = m.service.pool.QueryRow(ctx, beginTransfer, m.ID, b.Key, b.Transfer, t.Owner, b.Target).Scan(&t.Source, &t.Epoch, &t.Next)
	if err == nil {
		m.service.changed()
		return t, nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return t, fmt.Errorf("map %s: begin transfer of %q: %w", m.ID, b.Key, err)
	}
	p, err := m.Read(ctx, b.Key)
	switch {
	case err != nil:
		return t, err
	case p.Shard == b.Target && p.Transfer == b.Transfer && !p.Owned:
		t.Epoch = p.Epoch
		t.Next = p.Epoch
		t.Switched = true
		t.Owner = ""
		return t, nil
	case p.State != Ready:
		return t, fmt.Errorf("map %s: %q is %s: %w", m.ID, b.Key, p.State, ErrBusy)
	case p.Owned:
		return t, fmt.Errorf("map %s: transfer %s has %q: %w", m.ID, p.Transfer, b.Key, ErrBusy)
	}
	return t, fmt.Errorf("map %s: %q lives on %s already: %w", m.ID, b.Key, b.Target, ErrClosed)
}

const targetFlags = `select s.transfer and draining is null from shards s where map = $1 and id = $2 and declared`

// mayReceive refuses a target that accepts no keys.
func (m *Map) mayReceive(ctx context.Context, shard string) error {
	var open bool
	err := m.service.pool.QueryRow(ctx, targetFlags, m.ID, shard).Scan(&open)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("map %s: shard %q: %w", m.ID, shard, ErrUnknownShard)
	case err != nil:
		return fmt.Errorf("map %s: read shard %s: %w", m.ID, shard, err)
	case !open:
		return fmt.Errorf("map %s: shard %s is closed for transfers or being drained: %w", m.ID, shard, ErrClosed)
	}
	return nil
}

const switchPlacement = `update shard_placements set shard = $6, epoch = $5, owner = null, target = null
	where map = $1 and key = $2 and owner = $3 and epoch = $4 and state = 'active'`

// Switch moves the placement to the target in one step: a compare-and-swap on owner and epoch. If
// the error is [ErrLost], nothing has changed. After another error the outcome is unknown, and
// [Map.Read] shows it.
func (m *Map) Switch(ctx context.Context, t Transfer) error {
	return m.swap(ctx, t, switchPlacement, m.ID, t.Key, t.Owner, t.Epoch, t.Next, t.Target)
}

const abortTransfer = `update shard_placements set owner = null, transfer = null, target = null
	where map = $1 and key = $2 and owner = $3`

// Abort ends a transfer that has not switched. It invalidates the token, so the source may accept
// writes again. The error is [ErrLost] if the token was invalid before.
func (m *Map) Abort(ctx context.Context, t Transfer) error {
	return m.swap(ctx, t, abortTransfer, m.ID, t.Key, t.Owner)
}

func (m *Map) swap(ctx context.Context, t Transfer, sql string, args ...any) error {
	tag, err := m.service.pool.Exec(ctx, sql, args...)
	if err != nil {
		return fmt.Errorf("map %s: transfer %s of %q: %w", m.ID, t.ID, t.Key, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("map %s: transfer %s of %q: %w", m.ID, t.ID, t.Key, ErrLost)
	}
	m.service.changed()
	return nil
}
