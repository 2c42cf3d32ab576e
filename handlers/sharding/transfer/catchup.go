package transfer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"procaas/engine/clock"
)

// closeEnough is the latency of the stream at which Stream has caught up. The limit for the cutover
// is much lower.
const closeEnough = time.Second

// Stream applies the changes since the copy until the target keeps up.
func (m *Mover) Stream(ctx context.Context) error { return m.spoilt(ctx, m.catchUp(ctx)) }

// spoilt makes the target forget its position if an error requires a new copy, because Copy does
// nothing if there is a position. It returns the error as [final] does.
func (m *Mover) spoilt(ctx context.Context, reason error) error {
	reason = final(reason)
	if m.back || !MustRestart(reason) {
		return reason
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if err := m.reconnect(ctx); err != nil {
		return errors.Join(reason, err)
	}
	_, err := m.target.Exec(ctx, dropPosition, m.direction())
	return errors.Join(reason, err)
}

func (m *Mover) catchUp(ctx context.Context) error {
	if err := m.resume(ctx); err != nil {
		return err
	}
	if err := m.at("stream"); err != nil {
		return err
	}
	first := true
	// The first ping waits behind everything that was written during the copy, so it says nothing
	// about the next.
	for {
		took, err := m.ping(ctx)
		if err != nil {
			return err
		}
		m.report(m.streamed("stream"), true)
		if took < closeEnough || !first && took < m.limits.Ping {
			return nil
		}
		first = false
	}
}

// Follow applies the stream for a while.
func (m *Mover) Follow(ctx context.Context, d time.Duration) error {
	if err := m.resume(ctx); err != nil {
		return err
	}
	if d > 0 {
		if err := clock.Sleep(ctx, d); err != nil {
			return err
		}
	}
	if _, err := m.ping(ctx); err != nil {
		return m.spoilt(ctx, err)
	}
	m.report(m.streamed("follow"), true)
	return nil
}

func (m *Mover) streamed(step string) Progress {
	a := m.apply
	return Progress{Step: step, Rows: a.applied, Lag: max(0, int64(a.stream.sent.Load())-int64(a.reached))}
}

// resume opens the stream at the target's position.
func (m *Mover) resume(ctx context.Context) error {
	if m.apply != nil {
		return nil
	}
	if err := m.load(ctx); err != nil {
		return err
	}
	lsn, _, ok, err := positionOf(ctx, m.target, m.direction())
	if err != nil {
		return err
	}
	if !ok {
		return &RestartError{fmt.Sprintf("shard %s has no position of the stream", m.spec.TargetShard)}
	}
	if err := m.slotGood(ctx, lsn); err != nil {
		return err
	}
	if err := m.replica(ctx, m.target); err != nil {
		return err
	}
	s, err := openStream(ctx, m.spec.Source, m.slot(), lsn)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "55006" { // object_in_use
		return fmt.Errorf("%w: slot %s is being read", ErrBusy, m.slot())
	}
	if err != nil {
		return err
	}
	m.apply = m.newApplier(s, lsn)
	return nil
}

// stop closes the stream. resume opens it again.
func (m *Mover) stop() {
	if m.apply != nil {
		m.apply.stream.close()
		m.apply = nil
	}
}

// ping sends a barrier through the stream and returns its latency, which is how long a freeze would
// take now.
func (m *Mover) ping(ctx context.Context) (time.Duration, error) {
	token := "ping." + rand.Text()
	began := time.Now()
	if _, err := m.source.Exec(ctx, putBarrier, m.spec.ID, token); err != nil {
		return 0, fmt.Errorf("ping through shard %s: %w", m.spec.SourceShard, err)
	}
	if err := m.until(ctx, goal{token: token}); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}

// until applies up to a goal. After an error the stream is closed, and uncommitted changes come
// again.
func (m *Mover) until(ctx context.Context, g goal) error {
	err := m.apply.until(ctx, g)
	if err != nil {
		m.stop()
	}
	return err
}

// gate waits until the latency of the stream was low three times in a row.
func (m *Mover) gate(ctx context.Context) error {
	if err := m.at("gate"); err != nil {
		return err
	}
	deadline := time.Now().Add(m.limits.Gate)
	// A single ping may slip through between two large transactions of others.
	for good := 0; good < 3; {
		took, err := m.ping(ctx)
		if err != nil {
			return err
		}
		m.report(m.streamed("gate"), false)
		if took <= m.limits.Ping {
			good++
			continue
		}
		good = 0
		if time.Now().After(deadline) {
			return fmt.Errorf("the way through the stream takes %v, which is more than %v: shard %s or %s is too busy for a freeze",
				took.Round(time.Millisecond), m.limits.Ping, m.spec.SourceShard, m.spec.TargetShard)
		}
		if err := clock.Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// passed applies everything that commits before a position.
func (m *Mover) passed(ctx context.Context, lsn pglogrepl.LSN) error {
	// The stream reaches the position only if something comes after it.
	if _, err := m.source.Exec(ctx, putBarrier, m.spec.ID, "pass."+rand.Text()); err != nil {
		return err
	}
	return m.until(ctx, goal{before: lsn})
}
