package shardmap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"procaas/engine/store"
	"procaas/engine/transfers"
	"procaas/handlers/sharding/transfer"
)

// A splitter splits and merges the stretches of a map.
type splitter struct{ *Map }

// A placement is divided, or ends, while its writers are held back for some milliseconds: on the
// shard they are distinguished by the placement that they name, and whoever goes on under the former
// one would not see a transfer of the new one. The order is that of a transfer's switch: a
// freeze that thaws by itself, a seal, the map by a compare-and-swap, and the fence at the later
// epoch. Who dies behind the seal is helped by [Service.Thaw].
const (
	regroupHold     = 2 * time.Second
	regroupAttempts = 20
	regroupLock     = "set local lock_timeout = 100"

	// drawEpoch takes a number that is later than those of all transfers before; a transfer that
	// begins afterwards takes a later one, and voids it.
	drawEpoch = `update shard_placements set tried = tried + 1 where map = $1 and key = $2 and owner is null and state = 'active'
		returning map, key, shard, epoch, state, '', false, '', tried`

	freezeFence = `select procaas.freeze($1, $2, $3, $4, 'regroup', $5, $6)`
	sealFence   = `select procaas.seal($1, $2, $3, $4, $5, null)`

	raiseWide = `update shard_placements set epoch = $4 where map = $1 and key = $2 and epoch = $3 and tried = $4 and owner is null and state = 'active'`
	putNarrow = `insert into shard_placements (map, key, shard, epoch, tried) values ($1, $2, $3, $4, $4)
		on conflict (map, key) do update set shard = excluded.shard, state = 'active', epoch = shard_placements.tried + 1,
			tried = shard_placements.tried + 1, owner = null, transfer = null, target = null where shard_placements.state in ('merged', 'creating')
		returning epoch`
	nextOfNarrow = `select coalesce((select tried + 1 from shard_placements where map = $1 and key = $2), $3)`

	holdNeighbour = `select shard from shard_placements where map = $1 and key = $2 and owner is null and state = 'active' for update`
	markMerged    = `update shard_placements set epoch = $4, state = 'merged' where map = $1 and key = $2 and epoch = $3 and tried = $4
		and owner is null and state = 'active'`
)

// errRegroup reports that writers or a transfer were in the way.
var errRegroup = errors.New("writers of the key, or a transfer, were in the way")

// SplitAt divides the stretch of keys that a key lies in: those from the key on become one of
// their own, on the same shard. One that begins there already is given as it is.
func (m *Map) SplitAt(ctx context.Context, at string, by store.Actor) (wide, narrow Placement, err error) {
	if wide, err = (splitter{m}).stretchAt(ctx, at); err != nil {
		return wide, narrow, err
	}
	bound := "[" + firstPart(at)
	if wide.Key == bound {
		return wide, wide, nil
	}
	narrow, err = splitter{m}.splitOff(ctx, wide.Key, bound, by)
	return wide, narrow, err
}

// stretchAt returns the stretch that the first part of a key lies in.
func (m splitter) stretchAt(ctx context.Context, at string) (Placement, error) {
	if m.layout.strategy != "range" {
		return Placement{}, fmt.Errorf("map %s: %w: the strategy of the map is %s, and only one by range has stretches of keys", m.ID, ErrKey,
			m.layout.strategy)
	}
	if err := m.layout.check(at); err != nil {
		return Placement{}, fmt.Errorf("map %s: %w", m.ID, err)
	}
	if _, more := cutLast(at); more {
		return Placement{}, fmt.Errorf("map %s: %w: stretches are bounded by the first part of keys: leave out what follows the slash in %q",
			m.ID, ErrKey, at)
	}
	return m.stretch(ctx, m.service.pool, at)
}

// splitOff returns what a narrower name stands for a placement of its own, beside a wider one.
func (m splitter) splitOff(ctx context.Context, wide, narrow string, by store.Actor) (Placement, error) {
	err := m.regroup(ctx, regrouping{key: wide, other: narrow, state: Active, prepare: func(ctx context.Context, tx pgx.Tx,
		p Placement,
	) error {
		if err := m.canHold(ctx, tx, narrow); err != nil {
			return err
		}
		// The new fence is there before anybody can be given its epoch.
		var next int64
		if err := m.service.pool.QueryRow(ctx, nextOfNarrow, m.ID, narrow, p.Epoch+1).Scan(&next); err != nil {
			return err
		}
		return WriteFence(ctx, tx, Fence{Map: m.ID, Key: narrow, Epoch: next, State: Active})
	}, change: func(ctx context.Context, tx pgx.Tx, p Placement, next int64) error {
		tag, err := tx.Exec(ctx, raiseWide, m.ID, wide, p.Epoch, next)
		if err == nil && tag.RowsAffected() == 0 {
			err = errRegroup
		}
		if err != nil {
			return err
		}
		var epoch int64
		err = tx.QueryRow(ctx, putNarrow, m.ID, narrow, p.Shard, p.Epoch+1).Scan(&epoch)
		if errors.Is(err, pgx.ErrNoRows) {
			return errRegroup // somebody was quicker
		}
		if err != nil {
			return err
		}
		return m.audit(ctx, tx, narrow, map[string]any{"split": narrow, "from": wide, "shard": p.Shard}, by)
	}})
	if err != nil {
		return Placement{}, fmt.Errorf("map %s: split %q from %q: %w", m.ID, narrow, wide, err)
	}
	return m.Read(ctx, narrow)
}

// Merge ends a placement: its rows belong to the next wider one, which must be on the same shard. That
// of a key becomes a part of the key, slot or stretch that it was split from; a stretch of keys, named by
// the key that it begins at, one of the stretch before it.
func (m *Map) Merge(ctx context.Context, at string, by store.Actor) (wide, narrow Placement, err error) {
	if wide, narrow, err = (splitter{m}).neighbours(ctx, at); err != nil {
		return wide, narrow, err
	}
	err = splitter{m}.regroup(ctx, regrouping{key: narrow.Key, other: wide.Key, state: Closed, change: func(ctx context.Context, tx pgx.Tx,
		p Placement, next int64,
	) error {
		var shard string
		err := tx.QueryRow(ctx, holdNeighbour, m.ID, wide.Key).Scan(&shard)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && shard != p.Shard {
			return errRegroup // a transfer has it
		}
		if err != nil {
			return err
		}
		// While it is held, nothing can be split off it: what was before comes between the two.
		if now, err := (splitter{m}).before(ctx, tx, narrow.Key); err != nil || now.Key != wide.Key {
			return errors.Join(errRegroup, err)
		}
		tag, err := tx.Exec(ctx, markMerged, m.ID, narrow.Key, p.Epoch, next)
		if err == nil && tag.RowsAffected() == 0 {
			err = errRegroup
		}
		if err != nil {
			return err
		}
		return m.audit(ctx, tx, narrow.Key, map[string]any{"merge": narrow.Key, "from": wide.Key, "shard": shard}, by)
	}})
	if err != nil {
		return wide, narrow, fmt.Errorf("map %s: merge %q into %q: %w", m.ID, narrow.Key, wide.Key, err)
	}
	return wide, narrow, nil
}

// neighbours returns the placement that ends when a key is merged, and the one that gets its rows.
func (m splitter) neighbours(ctx context.Context, at string) (wide, narrow Placement, err error) {
	if err := m.layout.check(at); err != nil {
		return wide, narrow, fmt.Errorf("map %s: %w", m.ID, err)
	}
	narrow, err = m.Read(ctx, at)
	if errors.Is(err, ErrUnknownKey) || err == nil && narrow.State != Ready {
		narrow, err = m.mergeable(ctx, at)
	}
	if err != nil {
		return wide, narrow, err
	}
	wide, err = m.before(ctx, m.service.pool, narrow.Key)
	switch {
	case errors.Is(err, ErrUnknownKey):
		return wide, narrow, fmt.Errorf("map %s: %w: %q is a part of nothing wider", m.ID, ErrKey, at)
	case err != nil:
		return wide, narrow, err
	case wide.Shard != narrow.Shard: // merging moves nothing
		return wide, narrow, fmt.Errorf("map %s: %q is on %s, and %q, which it would be a part of, on %s: move one of them first: %w",
			m.ID, narrow.Key, narrow.Shard, wide.Key, wide.Shard, ErrBusy)
	}
	return wide, narrow, nil
}

// mergeable returns the stretch that begins at a key, which has no placement of its own.
func (m splitter) mergeable(ctx context.Context, at string) (Placement, error) {
	if m.layout.strategy != "range" {
		p, err := m.Find(ctx, at)
		if err == nil {
			err = fmt.Errorf("map %s: %w: %q has no placement of its own: it is a part of %q", m.ID, ErrKey, at, p.Key)
		}
		return p, err
	}
	p, err := m.stretchAt(ctx, at)
	if err == nil && p.Key != "["+firstPart(at) {
		err = fmt.Errorf("map %s: %w: no stretch begins at %q; the one that it lies in begins at %q", m.ID, ErrKey, at, p.Key[1:])
	}
	return p, err
}

// before returns the placement that has the rows of another one when that ends: ErrUnknownKey when none would.
func (m splitter) before(ctx context.Context, q Querier, placement string) (wide Placement, err error) {
	if placement[0] != '[' {
		return m.wider(ctx, q, placement)
	}
	keys, err := rowFinder{m.Map}.stretches(ctx, q)
	if err != nil {
		return wide, err
	}
	i := slices.Index(keys, placement)
	if i < 1 {
		return wide, ErrUnknownKey
	}
	return m.one(ctx, q, keys[i-1], readPlacement, m.ID, keys[i-1])
}

// canHold refuses a key whose rows no table of the map could tell: a placement of it would be a second
// name of rows that another one has, or the name of none.
func (m splitter) canHold(ctx context.Context, tx pgx.Tx, key string) error {
	if key[0] == '[' || len(m.Declared.Tables) == 0 {
		return nil
	}
	var why error
	for _, t := range m.Declared.Tables {
		rows, ok, err := m.Rows(ctx, t, key)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if why, err = transfer.Tells(ctx, tx.Conn(), rows); err != nil || why == nil {
			return err
		}
	}
	if why == nil {
		k, _ := ParseKey(key)
		why = fmt.Errorf("no table of the map has columns for %d parts of a key", len(k))
	}
	return fmt.Errorf("%w: the rows of %q could not be told: %w", ErrKey, key, why)
}

// A regrouping is a change of the map that the writers of one placement must not see half of.
type regrouping struct {
	key   string // the placement whose writers are held back
	other string // the one that gets rows of it, or gives them
	state string // of its fence afterwards, at the later epoch: [Active] or [Closed]

	// prepare does what else the transaction on the shard does that holds the writers back; may be nil.
	prepare func(ctx context.Context, tx pgx.Tx, p Placement) error

	// change changes the map, to the epoch next. errRegroup when somebody has changed it before.
	change func(ctx context.Context, tx pgx.Tx, p Placement, next int64) error
}

// regroup changes the map while the writers of a placement are held back, and leaves its fence in
// a state at the later epoch. It tries again when writers or the clock were in the way.
func (m splitter) regroup(ctx context.Context, g regrouping) error {
	for attempt := int64(1); ; attempt++ {
		err := m.regroupOnce(ctx, g, attempt)
		if !errors.Is(err, errRegroup) || attempt >= regroupAttempts {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(time.Duration(attempt) * 20 * time.Millisecond):
		}
	}
}

func (m splitter) regroupOnce(ctx context.Context, g regrouping, attempt int64) error {
	key := g.key
	// A new epoch for each attempt: what the one before has frozen can be told from this.
	p, next, err := m.drawEpoch(ctx, key)
	if err != nil {
		return err
	}
	// Behind the epoch: a transfer that begins later voids this.
	if err := m.untouched(ctx, key, g.other); err != nil {
		return err
	}
	pool, err := m.service.Connect(ctx, m.Map, p.Shard)
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, regroupLock); err != nil {
			return err
		}
		if err := held(ctx, tx, freezeFence, m.ID, key, p.Epoch, next, attempt, regroupHold.Milliseconds()); err != nil {
			return err
		}
		if g.prepare == nil {
			return nil
		}
		return g.prepare(ctx, tx, p)
	})
	if err == nil {
		err = held(ctx, pool, sealFence, m.ID, key, p.Epoch, next, attempt)
	}
	if err != nil {
		return err // what is frozen thaws by itself
	}
	var refused error // before the commit, so nothing of it can be there
	err = pgx.BeginFunc(ctx, m.service.pool, func(tx pgx.Tx) error {
		refused = g.change(ctx, tx, p, next)
		return refused
	})
	ctx = context.WithoutCancel(ctx) // what is sealed is not left behind
	if err != nil {
		var failure *pgconn.PgError
		if now, readErr := m.Read(ctx, key); readErr == nil && now.Epoch == p.Epoch && (refused != nil || errors.As(err, &failure)) {
			var done bool // writers are let in again, since the change has failed
			return errors.Join(err, pool.QueryRow(ctx, claimFence, m.ID, key, p.Epoch, next).Scan(&done))
		} else if readErr != nil || now.Epoch != next {
			return err // nobody can tell; the freeze is overdue soon, and is ended as the map says
		}
	}
	m.service.changed()
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return raiseFence(ctx, tx, Fence{Map: m.ID, Key: key, Epoch: next, State: g.state})
	})
}

// untouched refuses to change which rows two placements have while a transfer of one has not ended: also
// when it has switched, it may still bring the rows back to its source, and deletes what it has moved there.
func (m splitter) untouched(ctx context.Context, placements ...string) error {
	if m.service.o.Transfers == nil {
		return nil
	}
	all, err := m.service.o.Transfers(ctx, m.ID)
	if err != nil {
		return err
	}
	for _, t := range all {
		if !transfers.TransferEnded(t.State) && slices.Contains(placements, t.Key) {
			return fmt.Errorf("transfer %s of %q is %s: wait for its end, or tell it to finish: %w", t.ID, t.Key, t.State, ErrBusy)
		}
	}
	return nil
}

// drawEpoch takes a later epoch for a placement that no transfer has.
func (m splitter) drawEpoch(ctx context.Context, key string) (p Placement, next int64, err error) {
	err = m.service.pool.QueryRow(ctx, drawEpoch, m.ID, key).Scan(&p.Map, &p.Key, &p.Shard, &p.Epoch, &p.State, &p.Transfer, &p.Owned,
		&p.Target, &next)
	if errors.Is(err, pgx.ErrNoRows) {
		now, err := m.Read(ctx, key)
		if err != nil {
			return now, 0, err
		}
		if now.Owned {
			return now, 0, fmt.Errorf("transfer %s has %q: wait for its end, or cancel it: %w", now.Transfer, key, ErrBusy)
		}
		return now, 0, fmt.Errorf("%q is %s: %w", key, now.State, ErrBusy)
	}
	return p, next, err
}

// held calls a function of the fence that tells whether it did.
func held(ctx context.Context, q Querier, sql string, args ...any) error {
	var done bool
	err := q.QueryRow(ctx, sql, args...).Scan(&done)
	var failure *pgconn.PgError
	if errors.As(err, &failure) && failure.Code == "55P03" || err == nil && !done { // lock_not_available
		return errRegroup
	}
	return err
}

// SplitShard implements [transfers.ShardMaps].
func (s *Service) SplitShard(ctx context.Context, shardMap, at string, dry bool, by store.Actor) (transfers.ShardRegroup, error) {
	m, err := s.shardMap(shardMap)
	if err != nil {
		return transfers.ShardRegroup{}, err
	}
	var wide, narrow Placement
	switch byRange := m.layout.strategy == "range"; {
	case byRange && !dry:
		wide, narrow, err = m.SplitAt(ctx, at, by)
	case byRange:
		wide, err = splitter{m}.stretchAt(ctx, at)
		narrow = Placement{Key: "[" + at, Shard: wide.Shard}
	default:
		if wide, err = m.Find(ctx, at); err == nil && !dry {
			narrow, err = m.Split(ctx, at, by)
		} else {
			narrow = Placement{Key: at, Shard: wide.Shard}
		}
	}
	return splitter{m}.regrouped(wide, narrow, dry, at, err)
}

// MergeShard implements [transfers.ShardMaps].
func (s *Service) MergeShard(ctx context.Context, shardMap, at string, dry bool, by store.Actor) (transfers.ShardRegroup, error) {
	m, err := s.shardMap(shardMap)
	if err != nil {
		return transfers.ShardRegroup{}, err
	}
	var wide, narrow Placement
	if dry {
		wide, narrow, err = splitter{m}.neighbours(ctx, at)
	} else {
		wide, narrow, err = m.Merge(ctx, at, by)
	}
	return splitter{m}.regrouped(wide, narrow, dry, at, err)
}

func (m splitter) regrouped(wide, narrow Placement, dry bool, key string, err error) (transfers.ShardRegroup, error) {
	if errors.Is(err, errRegroup) {
		err = fmt.Errorf("%w: %w", ErrBusy, err)
	}
	if err != nil {
		return transfers.ShardRegroup{}, resolver{m.Map}.publicError(key, err)
	}
	return transfers.ShardRegroup{Map: m.ID, Wide: wide.Key, Narrow: narrow.Key, Shard: wide.Shard, DryRun: dry, Changed: !dry &&
		wide.Key != narrow.Key}, nil
}

// Split gives a key that lives within a wider placement, such as one folder of a user or
// one key of a slot, a placement of its own on the same shard.
func (m *Map) Split(ctx context.Context, key string, by store.Actor) (Placement, error) {
	if err := m.layout.check(key); err != nil {
		return Placement{}, fmt.Errorf("map %s: %w", m.ID, err)
	}
	wide, err := m.Find(ctx, key)
	if err != nil {
		return Placement{}, err
	}
	if wide.Key == key {
		if wide.State == Creating {
			return m.Complete(ctx, wide)
		}
		return wide, nil
	}
	return splitter{m}.splitOff(ctx, wide.Key, key, by)
}
