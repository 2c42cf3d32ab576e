package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"procaas/engine/sqlstore"
)

// Behind a pooler, the store does without session state: see [pgkit.Pooled].

// localSettings are the session's settings for one transaction.
const localSettings = `select set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true),
	set_config('idle_in_transaction_session_timeout', $3, true),
	case when current_setting('server_version_num')::int >= 170000 then set_config('transaction_timeout', $4, true) end`

// A migrationLock lets one process migrate at a time. A transaction holds it, so that it works
// through a pooler, too.
type migrationLock struct {
	db    *sql.DB
	tx    *sql.Tx
	known []sqlstore.History

	floors map[string]int64 // of the tables when all is done, by history
}

// SessionLock implements goose's lock.SessionLocker.
func (l *migrationLock) SessionLock(ctx context.Context, _ *sql.Conn) (err error) {
	if l.tx, err = l.db.BeginTx(ctx, nil); err != nil {
		return err
	}
	const wait = "select set_config('idle_in_transaction_session_timeout', '0', true), set_config('lock_timeout', '0', true), " +
		"pg_advisory_xact_lock(hashtext(current_schema))"
	if _, err := l.tx.ExecContext(ctx, wait); err != nil {
		_ = l.tx.Rollback()
		return fmt.Errorf("wait for another process that migrates: %w", err)
	}
	if err := l.prepareLive(ctx); err != nil {
		return errors.Join(err, l.tx.Rollback())
	}
	return nil
}

// SessionUnlock implements goose's lock.SessionLocker.
func (l *migrationLock) SessionUnlock(context.Context, *sql.Conn) error { return l.tx.Rollback() }
