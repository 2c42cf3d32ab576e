// Package pgkit is what those have in common who keep tables in PostgreSQL, and tell other
// processes what has changed there.
package pgkit

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"procaas/engine/clock"
)

// Pooled reports whether a pooler stands before the server: the process that the connection
// was announced as is not the one that serves it.
//
// A pooler that works by transaction gives each transaction any connection to the server. What
// a session keeps between transactions then belongs to somebody else: prepared statements,
// settings, LISTEN, and locks that are not of the transaction.
func Pooled(ctx context.Context, config *pgx.ConnConfig) (bool, error) {
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return false, err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	var pid uint32
	// Nothing is prepared, which a pooler might not understand.
	err = c.QueryRow(ctx, "select pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	return pid != c.PgConn().PID(), err
}

// LockSlots shares the lock of the slots of an inbox: whoever stops slots waits for those who have it. It comes before
// all other locks.
const LockSlots = "select pg_advisory_xact_lock_shared(('inbox_slots'::regclass::oid::bigint - 2147483648)::int, 0)"

// Signal tells that there is news. A signal that nobody has taken yet says the same.
func Signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Tell calls send after each signal until ctx ends, with a gap in between. It belongs outside of
// the transactions that make the news: PostgreSQL lets those that notify commit one by one only.
// What comes while a notification is on its way is one.
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

// Listen calls hear until ctx ends, again each time when its connection is lost. It logs why, once
// as long as that stays the same.
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

// Take takes a connection out of the pool. One that listens must not go back, where its
// notifications would meet others: the caller closes it.
func Take(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	c, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return c.Hijack(), nil
}

// Subscribe lets a connection hear channels. Each query gives the statement that does so, with
// the name of the channel, which has that of the schema in it.
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
