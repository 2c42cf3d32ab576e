package transfer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	callFence  = "select procaas.fence($1, $2, $3, $4, nullif($5, ''), $6, 0)"
	callClaim  = "select procaas.claim($1, $2, $3, $4)"
	callFreeze = "select procaas.freeze($1, $2, $3, $4, $5, $6, $7)"
	callSeal   = "select procaas.seal($1, $2, $3, $4, $5, $6)"
	readFence  = "select state, epoch from procaas.fences where map = $1 and key = $2"
)

// ErrReplaced reports that a later coordinator has taken the transfer over, or that the key has
// moved. This coordinator changes nothing any more.
var ErrReplaced = errors.New("a later transfer has the key")

// fenceTarget sets the target's fence of the key, at the next epoch.
func (m *sides) fenceTarget(ctx context.Context, c *pgx.Conn, state string) error {
	var done bool
	if err := c.QueryRow(ctx, callFence, m.spec.Map, m.spec.Key, m.next, state, "", m.owner).Scan(&done); err != nil {
		return fmt.Errorf("fence of shard %s: %w", m.spec.TargetShard, err)
	}
	if !done {
		return fmt.Errorf("fence of shard %s: %w", m.spec.TargetShard, ErrReplaced)
	}
	return nil
}

// Claim invalidates older coordinators of the key, and thaws what they have frozen. The map has
// granted this claim, so none of them can switch any more.
func (m *sides) Claim(ctx context.Context) error {
	var done bool
	err := m.source.QueryRow(ctx, callClaim, m.spec.Map, m.spec.Key, m.spec.Epoch, m.next).Scan(&done)
	if err != nil {
		return fmt.Errorf("fence of shard %s: %w", m.spec.SourceShard, err)
	}
	if !done {
		return m.notHere(ctx)
	}
	return nil
}

// notHere explains why the source's fence was not changed.
func (m *sides) notHere(ctx context.Context) error {
	var state string
	var epoch int64
	err := m.source.QueryRow(ctx, readFence, m.spec.Map, m.spec.Key).Scan(&state, &epoch)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return &RefusedError{[]string{fmt.Sprintf("shard %s has no fence for key %s of map %s: enroll it first", m.spec.SourceShard, m.spec.Key,
			m.spec.Map)}}
	case err != nil:
		return err
	}
	return fmt.Errorf("key %s of map %s is %s at epoch %d on shard %s, want epoch %d: %w",
		m.spec.Key, m.spec.Map, state, epoch, m.spec.SourceShard, m.spec.Epoch, ErrReplaced)
}

// errTaken reports that writers held the key longer than the freeze may wait.
var errTaken = errors.New("writers of the key hold it for longer than the freeze may wait")

// freeze stops the writers of the key, and sends the barrier through the stream after the last of
// them.
func (m *sides) freeze(ctx context.Context, attempt int64, token string, d time.Duration) error {
	err := pgx.BeginFunc(ctx, m.source, func(tx pgx.Tx) error {
		// Later writers queue behind the lock, so it must not wait long.
		if _, err := tx.Exec(ctx, lockTimeout(m.limits.Lock)); err != nil {
			return err
		}
		var done bool
		err := tx.QueryRow(ctx, callFreeze, m.spec.Map, m.spec.Key, m.spec.Epoch, m.next, m.owner, attempt, d.Milliseconds()).Scan(&done)
		if err != nil {
			return err
		}
		if !done {
			return ErrReplaced
		}
		_, err = tx.Exec(ctx, putBarrier, m.spec.ID, token)
		return err
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "55P03" { // lock_not_available
		return errTaken
	}
	if err != nil {
		return fmt.Errorf("freeze key %s on shard %s: %w", m.spec.Key, m.spec.SourceShard, err)
	}
	return nil
}

// errRanOut reports that the source has thawed before the target was ready.
var errRanOut = errors.New("the freeze has run out before the target had caught up")

// seal keeps the source from thawing for a time, or forever if d is 0.
func (m *sides) seal(ctx context.Context, c *pgx.Conn, attempt int64, d time.Duration) error {
	var done bool
	var ms *int64
	if d > 0 {
		ms = new(d.Milliseconds())
	}
	if err := c.QueryRow(ctx, callSeal, m.spec.Map, m.spec.Key, m.spec.Epoch, m.next, attempt, ms).Scan(&done); err != nil {
		return fmt.Errorf("seal key %s on shard %s: %w", m.spec.Key, m.spec.SourceShard, err)
	}
	if !done {
		return errRanOut
	}
	return nil
}

func lockTimeout(d time.Duration) string {
	return "set local lock_timeout = " + strconv.FormatInt(max(1, d.Milliseconds()), 10)
}
