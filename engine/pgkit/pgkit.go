// Package pgkit helps packages that keep tables in PostgreSQL: poolers, locks, partitions by day, and notifications
// between processes.
package pgkit

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"procaas/engine/clock"
)

// Pooled reports whether there is a pooler in front of the server. Then the process id that the
// connection announced is not that of the serving process.
//
// A transaction pooler runs each transaction on any connection to the server. Session state between
// transactions then belongs to other clients: prepared statements, settings, LISTEN, and session
// locks.
func Pooled(ctx context.Context, config *pgx.ConnConfig) (bool, error) {
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return false, err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	var pid uint32
	// Nothing is prepared, because a pooler might not support it.
	err = c.QueryRow(ctx, "select pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	return pid != c.PgConn().PID(), err
}

// LockSlots takes the shared lock of the slots of an inbox. A transaction that stops slots waits
// for it. It comes before all other locks.
const LockSlots = "select pg_advisory_xact_lock_shared(('inbox_slots'::regclass::oid::bigint - 2147483648)::int, 0)"

// Signal signals news. It does nothing if a signal is pending.
func Signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Tell calls send after each signal until ctx ends, with a gap in between. Call it outside of the
// transactions that make the news, because PostgreSQL serializes the commits of transactions that
// notify. Signals during a notification are merged.
func Tell(ctx context.Context, news <-chan struct{}, gap time.Duration, send func() error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-news:
		}
		if send() != nil && !clock.Pause(ctx, time.Second) {
			return
		}
		if !clock.Pause(ctx, gap) {
			return
		}
	}
}

// Listen calls hear until ctx ends, again each time its connection is lost. It logs the reason,
// once as long as it stays the same.
func Listen(ctx context.Context, log *slog.Logger, lost string, hear func(context.Context) error) {
	for last := ""; ; {
		err := hear(ctx)
		if ctx.Err() != nil {
			return
		}
		if err.Error() != last {
			last = err.Error()
			log.Warn(lost, "error", err)
		}
		if !clock.Pause(ctx, time.Second) {
			return
		}
	}
}

// Take takes a connection out of the pool. A listening connection must not go back, because its
// notifications would reach others. The caller closes it.
func Take(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	c, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return c.Hijack(), nil
}

// Subscribe makes a connection listen to channels. Each query returns the listen statement, with
// the channel's name, which contains that of the schema.
func Subscribe(ctx context.Context, c *pgx.Conn, queries ...string) error {
	for _, query := range queries {
		var listen string
		if err := c.QueryRow(ctx, query).Scan(&listen); err != nil {
			return err
		}
		if _, err := c.Exec(ctx, listen); err != nil {
			return err
		}
	}
	return nil
}
