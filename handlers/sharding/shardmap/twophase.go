package shardmap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"procaas/engine/clock"
)

// A pairing writes to the map and to a shard atomically, by two-phase commits.
type pairing struct{ *Map }

// In a registration in two phases, the row of the map and the fence of the shard are prepared, then
// committed, the map first. A process that dies in between leaves prepared transactions. Sweep
// commits what the other side has, and rolls back the rest.
const (
	tryRegister = `select pg_try_advisory_xact_lock(hashtextextended('register ' || $1 || chr(10) || $2, 0))`
	reserveNow  = `insert into shard_placements (map, key, shard, attrs) values ($1, $2, $3, $4)`
	oldPrepared = `select substr(gid, length($1) + 1), extract(epoch from now() - prepared)::float8 from pg_prepared_xacts
		where starts_with(gid, $1) and database = current_database() and prepared <= now() - make_interval(secs => $2) order by gid`
	isPrepared = `select exists (select from pg_prepared_xacts where gid = $1)`
)

// maxTwoPhase bounds keys of registrations in two phases, because the name of a prepared
// transaction contains the key.
const maxTwoPhase = 100

// These are the names of the prepared transactions of a key.
func (m pairing) mapGID() string { return "procaas:map:" + m.ID + ":" }

func (m pairing) shardGID(shard string) string { return "procaas:shard:" + m.ID + ":" + shard + ":" }
func prepare(gid string) string                { return "prepare transaction " + quote(gid) }
func commitPrepared(gid string) string         { return "commit prepared " + quote(gid) }
func rollbackPrepared(gid string) string       { return "rollback prepared " + quote(gid) }
func ignoreGone(err error) error {
	var failure *pgconn.PgError
	if errors.As(err, &failure) && failure.Code == "42704" { // undefined_object: another process has ended it
		return nil
	}
	return err
}

// placeAtOnce creates the row of the map and the fence of the shard atomically.
func (m pairing) placeAtOnce(ctx context.Context, key, shard string, attrs map[string]any) (Placement, error) {
	if len(key) > maxTwoPhase {
		return Placement{}, fmt.Errorf("%w: keys of registration in two phases have %d bytes at most", ErrKey, maxTwoPhase)
	}
	pool, err := m.service.Connect(ctx, m.Map, shard)
	if err != nil {
		return Placement{}, err
	}
	mine, err := m.prepareBoth(ctx, pool, key, shard, attrs)
	if err == nil && mine {
		err = m.commitBoth(ctx, pool, key, shard)
	}
	if err != nil {
		return Placement{}, fmt.Errorf("map %s: register %q on %s in two phases: %w", m.ID, key, shard, err)
	}
	m.service.changed()
	// Another process may be doing it.
	backoff := clock.Backoff{First: 5 * time.Millisecond, Most: 500 * time.Millisecond}
	for {
		p, err := m.Read(ctx, key)
		if !errors.Is(err, ErrUnknownKey) {
			return p, err
		}
		if !backoff.Pause(ctx) {
			return Placement{}, fmt.Errorf("map %s: key %q is being registered by somebody else: %w", m.ID, key, ErrBusy)
		}
	}
}

// prepareBoth prepares the row and the fence. It returns false if another process is registering
// the key or has registered it.
func (m pairing) prepareBoth(ctx context.Context, pool *pgxpool.Pool, key, shard string, attrs map[string]any) (mine bool, err error) {
	data, err := json.Marshal(attrs)
	if err != nil {
		return false, err
	}
	err = prepared(ctx, m.service.pool, m.mapGID()+key, func(tx pgx.Tx) (bool, error) {
		if err := tx.QueryRow(ctx, tryRegister, m.ID, key).Scan(&mine); err != nil || !mine {
			return false, err
		}
		_, err := tx.Exec(ctx, reserveNow, m.ID, key, shard, data)
		var failure *pgconn.PgError
		if errors.As(err, &failure) && failure.Code == "23505" { // unique_violation: it is registered
			mine = false
			return false, nil
		}
		return err == nil, err
	})
	if err != nil || !mine {
		return false, err
	}
	err = prepared(ctx, pool, m.shardGID(shard)+key, func(tx pgx.Tx) (bool, error) {
		return true, raiseFence(ctx, tx, Fence{Map: m.ID, Key: key, Epoch: 1, State: Active})
	})
	if err == nil {
		return true, nil
	}
	_, undo := m.service.pool.Exec(context.WithoutCancel(ctx), rollbackPrepared(m.mapGID()+key))
	return false, errors.Join(err, ignoreGone(undo))
}

// prepared runs work in a transaction and prepares it, if work says so.
func prepared(ctx context.Context, pool *pgxpool.Pool, gid string, work func(pgx.Tx) (bool, error)) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // no effect on a prepared one
	ok, err := work(tx)
	if err != nil || !ok {
		return err
	}
	_, err = tx.Exec(ctx, prepare(gid))
	return err
}

// commitBoth commits what was prepared, the map first. If a sweep has removed the map's part
// meanwhile, it rolls back the shard's part.
func (m pairing) commitBoth(ctx context.Context, pool *pgxpool.Pool, key, shard string) error {
	ctx = context.WithoutCancel(ctx)
	// The map first: a sweep commits the fence of a key in the map, and rolls back others.
	if _, err := m.service.pool.Exec(ctx, commitPrepared(m.mapGID()+key)); ignoreGone(err) != nil {
		return err // a sweep ends both
	}
	_, err := m.Read(ctx, key)
	if errors.Is(err, ErrUnknownKey) {
		_, err = pool.Exec(ctx, rollbackPrepared(m.shardGID(shard)+key))
		return errors.Join(ErrBusy, ignoreGone(err))
	}
	if err != nil {
		return err
	}
	_, err = pool.Exec(ctx, commitPrepared(m.shardGID(shard)+key))
	return ignoreGone(err)
}

// A Swept is one finding of a sweep.
type Swept struct {
	Map       string
	Key       string
	Side      string // map, or the shard
	Committed bool   // otherwise it was rolled back
}

// Sweep ends prepared transactions of registrations older than an age. It commits those that the
// other side has, and rolls back the rest. With dryRun it changes nothing.
func (m *Map) Sweep(ctx context.Context, age time.Duration, dryRun bool) ([]Swept, error) {
	swept, err := pairing{m}.sweepMap(ctx, age, dryRun)
	if err != nil {
		return swept, fmt.Errorf("map %s: sweep: %w", m.ID, err)
	}
	for _, d := range m.Declared.Shards {
		more, err := pairing{m}.sweepShard(ctx, d.ID, age, dryRun)
		swept = append(swept, more...)
		if err != nil {
			return swept, fmt.Errorf("map %s: sweep shard %s: %w", m.ID, d.ID, err)
		}
	}
	return swept, nil
}

// dangling lists the keys of old prepared transactions with a name prefix.
func dangling(ctx context.Context, q Querier, prefix string, age time.Duration) ([]string, error) {
	rows, err := q.Query(ctx, oldPrepared, prefix, age.Seconds())
	if err != nil {
		return nil, err
	}
	var keys []string
	var key string
	var old float64
	_, err = pgx.ForEachRow(rows, []any{&key, &old}, func() error { keys = append(keys, key); return nil })
	return keys, err
}

// sweepMap ends prepared rows. It commits a row if any shard has its fence, prepared or committed.
func (m pairing) sweepMap(ctx context.Context, age time.Duration, dryRun bool) ([]Swept, error) {
	keys, err := dangling(ctx, m.service.pool, m.mapGID(), age)
	if err != nil {
		return nil, err
	}
	var swept []Swept
	for _, key := range keys {
		has, err := m.anyShardHas(ctx, key)
		if err != nil {
			return swept, err
		}
		swept = append(swept, Swept{m.ID, key, "map", has})
		if dryRun {
			continue
		}
		end := rollbackPrepared
		if has {
			end = commitPrepared
		}
		if _, err := m.service.pool.Exec(ctx, end(m.mapGID()+key)); ignoreGone(err) != nil {
			return swept, err
		}
		m.service.changed()
	}
	return swept, nil
}

// anyShardHas reports whether any shard has the fence of a key, prepared or committed. All shards
// must answer.
func (m pairing) anyShardHas(ctx context.Context, key string) (bool, error) {
	for _, d := range m.Declared.Shards {
		pool, err := m.service.Connect(ctx, m.Map, d.ID)
		if err != nil {
			return false, err
		}
		var has bool
		if err := pool.QueryRow(ctx, isPrepared, m.shardGID(d.ID)+key).Scan(&has); err != nil || has {
			return has, err
		}
		if _, has, err = ReadFence(ctx, pool, m.ID, key); err != nil || has {
			return has, err
		}
	}
	return false, nil
}

// sweepShard ends prepared fences. It commits those of keys that the map has on the shard. Those
// whose row is prepared still wait for it.
func (m pairing) sweepShard(ctx context.Context, shard string, age time.Duration, dryRun bool) ([]Swept, error) {
	pool, err := m.service.Connect(ctx, m.Map, shard)
	if err != nil {
		return nil, err
	}
	keys, err := dangling(ctx, pool, m.shardGID(shard), age)
	if err != nil {
		return nil, err
	}
	var swept []Swept
	for _, key := range keys {
		var waits bool
		if err := m.service.pool.QueryRow(ctx, isPrepared, m.mapGID()+key).Scan(&waits); err != nil {
			return swept, err
		}
		// sweepMap has left it because it is too young: it decides for both.
		if waits && !dryRun {
			continue
		}
		p, err := m.Read(ctx, key)
		if err != nil && !errors.Is(err, ErrUnknownKey) {
			return swept, err
		}
		has := waits || err == nil && p.Shard == shard
		swept = append(swept, Swept{m.ID, key, shard, has})
		if dryRun {
			continue
		}
		end := rollbackPrepared
		if has {
			end = commitPrepared
		}
		if _, err := pool.Exec(ctx, end(m.shardGID(shard)+key)); ignoreGone(err) != nil {
			return swept, err
		}
	}
	return swept, nil
}

// quote returns text as an SQL literal.
func quote(text string) string {
	text = strings.ReplaceAll(text, "'", "''")
	if strings.Contains(text, `\`) {
		return ` E'` + strings.ReplaceAll(text, `\`, `\\`) + `'`
	}
	return "'" + text + "'"
}
