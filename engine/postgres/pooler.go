package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// A pooler that works by transaction gives each transaction any connection to the
// server. What a session keeps between transactions then belongs to somebody else:
// prepared statements, settings, LISTEN, and locks that are not of the
// transaction. With a pooler in between, the store does without them.

// isPooled tells whether a pooler stands before the server: the process that the
// connection was announced as is not the one that serves it.
func isPooled(ctx context.Context, config *pgx.ConnConfig) (bool, error) {
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return false, err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	results, err := c.PgConn().Exec(ctx, "select pg_backend_pid()").ReadAll()
	if err != nil {
		return false, err
	}
	pid, err := strconv.ParseUint(string(results[0].Rows[0][0]), 10, 32)
	if err != nil {
		return false, fmt.Errorf("process number of the server: %w", err)
	}
	return uint32(pid) != c.PgConn().PID(), nil
}

// localSettings are those of a session, for one transaction.
const localSettings = `select set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true),
	set_config('idle_in_transaction_session_timeout', $3, true),
	case when current_setting('server_version_num')::int >= 170000 then set_config('transaction_timeout', $4, true) end`

// A migrationLock lets one process migrate at a time. It is held by a transaction
// of its own, so that it holds through a pooler, too.
type migrationLock struct {
	db *sql.DB
	tx *sql.Tx
}

// SessionLock implements goose's lock.SessionLocker.
func (l *migrationLock) SessionLock(ctx context.Context, _ *sql.Conn) (err error) {
	if l.tx, err = l.db.BeginTx(ctx, nil); err != nil {
		return err
	}
	const wait = "select set_config('idle_in_transaction_session_timeout', '0', true), pg_advisory_xact_lock(hashtext(current_schema))"
	if _, err := l.tx.ExecContext(ctx, wait); err != nil {
		_ = l.tx.Rollback()
		return fmt.Errorf("wait for another process that migrates: %w", err)
	}
	return nil
}

// SessionUnlock implements goose's lock.SessionLocker.
func (l *migrationLock) SessionUnlock(context.Context, *sql.Conn) error { return l.tx.Rollback() }
