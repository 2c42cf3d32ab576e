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
	"procaas/handlers/sharding/transfer"
	"procaas/handlers/sharding/transfers"
)

// A splitter splits and merges the stretches of a map.
type splitter struct{ *Map }

// While a placement is divided or ended, its writers wait for some milliseconds. The shard knows
// writers by the placement that they name, and a writer with the former placement would not notice
// a transfer of the new one. The order is that of a transfer's switch: a freeze that thaws by
// itself, a seal, a compare-and-swap of the map, and the fence at the later epoch. If the process
// dies after the seal, [Service.Thaw] helps.
const (
	regroupHold     = 2 * time.Second
	regroupAttempts = 20
	regroupLock     = "set local lock_timeout = 100"

	// drawEpoch draws a number later than those of all earlier transfers. A later transfer draws a
	// later one, and so invalidates it.
	drawEpoch = `update shard_placements set tried = tried + 1 where map = $1 and key = $2 and owner is null and state = 'active'
		returning map, key, shard, epoch, state, '', false, '', tried`

	freezeFence = `select procaas.freeze($1, $2, $3, $4, 'regroup', $5, $6)`
	sealFence   = `select procaas.seal($1, $2, $3, $4, $5, null)`

	raiseWide = `update shard_placements set epoch = $4
	where map = $1 and key = $2 and epoch = $3 and tried = $4 and owner is null and state = 'active'`
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

// SplitAt divides the stretch that contains a key. The part from the key on becomes a stretch on
// the same shard. If a stretch begins there already, it is returned unchanged.
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

// stretchAt returns the stretch with the first part of a key.
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

// splitOff gives a narrower name its own placement beside a wider one.
func (m splitter) splitOff(ctx context.Context, wide, narrow string, by store.Actor) (Placement, error) {
	err := m.regroup(ctx, regrouping{key: wide, other: narrow, state: Active, prepare: func(ctx context.Context, tx pgx.Tx,
		p Placement,
	) error {
		if err := m.canHold(ctx, tx, narrow); err != nil {
			return err
		}
		// The new fence exists before any client can get its epoch.
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
			return errRegroup // another process was faster
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

// Merge ends a placement. Its rows belong to the next wider one, which must be on the same shard. A
// key becomes a part of the key, slot or stretch that it was split from. A stretch, named by its
// first key, becomes a part of the stretch before it.
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
		// While it is locked, nothing can be split off it. A placement that was split off before
		// lies between the two.
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

// neighbours returns the placement that a merge ends, and the one that gets its rows.
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
	case wide.Shard != narrow.Shard: // a merge moves no rows
		return wide, narrow, fmt.Errorf("map %s: %q is on %s, and %q, which it would be a part of, on %s: move one of them first: %w",
			m.ID, narrow.Key, narrow.Shard, wide.Key, wide.Shard, ErrBusy)
	}
	return wide, narrow, nil
}

// mergeable returns the stretch that begins at a key without its own placement.
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

// before returns the placement that gets the rows of another one when that ends. The error is
// ErrUnknownKey if there is none.
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

// canHold refuses a key whose rows no table of the map can distinguish. Its placement would be a
// second name for rows of another one, or have no rows.
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
		k, _ := parseKey(key)
		why = fmt.Errorf("no table of the map has columns for %d parts of a key", len(k))
	}
	return fmt.Errorf("%w: the rows of %q could not be told: %w", ErrKey, key, why)
}

// A regrouping is a change of the map that must be atomic for the writers of one placement.
type regrouping struct {
	key   string // the placement whose writers wait
	other string // the one that gets or gives rows
	state string // of its fence after the change, at the later epoch: [Active] or [Closed]

	// prepare adds work to the transaction on the shard that stops the writers. It may be nil.
	prepare func(ctx context.Context, tx pgx.Tx, p Placement) error

	// change changes the map to the epoch next. The error is errRegroup if another process has
	// changed it before.
	change func(ctx context.Context, tx pgx.Tx, p Placement, next int64) error
}

// regroup changes the map while the writers of a placement wait, and sets its fence to a state at
// the later epoch. It retries if writers or the clock were in the way.
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
	// A new epoch for each attempt, to recognize what the previous one has frozen.
	p, next, err := m.drawEpoch(ctx, key)
	if err != nil {
		return err
	}
	// After drawing the epoch, so that a later transfer invalidates this attempt.
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
	var refused error // before the commit, so nothing was written
	err = pgx.BeginFunc(ctx, m.service.pool, func(tx pgx.Tx) error {
		refused = g.change(ctx, tx, p, next)
		return refused
	})
	ctx = context.WithoutCancel(ctx) // do not leave a sealed freeze behind
	if err != nil {
		var failure *pgconn.PgError
		if now, readErr := m.Read(ctx, key); readErr == nil && now.Epoch == p.Epoch && (refused != nil || errors.As(err, &failure)) {
			var done bool // writers may write again, because the change has failed
			return errors.Join(err, pool.QueryRow(ctx, claimFence, m.ID, key, p.Epoch, next).Scan(&done))
		} else if readErr != nil || now.Epoch != next {
			return err // the outcome is unknown; the freeze becomes overdue, and ends according to the map
		}
	}
	m.service.changed()
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return raiseFence(ctx, tx, Fence{Map: m.ID, Key: key, Epoch: next, State: g.state})
	})
}

// untouched refuses to change the rows of two placements while one of them has an unfinished
// transfer. Even after its switch, a transfer may bring rows back to its source, and deletes moved
// rows there.
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

// drawEpoch draws a later epoch for a placement without a transfer.
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

// held calls a fence function that reports success.
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

// Split creates a placement for a key inside a wider one, such as one folder of a user or one key
// of a slot. It stays on the same shard.
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
