package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"procaas/engine/clock"
	"procaas/engine/store"
)

const (
	// An Accept that waits for the row of a key would go on without a row after the key is erased. So there is none: each
	// creates missing rows first, and that waits for this lock, which in turn waits for those that have begun.
	lockTable = "lock table keys in share row exclusive mode"
	lockKey   = "select from keys where flow = $1 and key = $2 for update"
)

// LockToErase implements [sqlstore.Tx].
func (t *tx) LockToErase(_ context.Context, flow, key string) error {
	t.queue(shortLocks)
	t.queue(lockTable)
	t.queue(lockKey, flow, key)
	return nil
}

// These bound how long an erasure waits for the locks of a busy store. It waits for each in turn for a short time, and lets the writes that
// queue behind it pass in between.
const (
	eraseTries = 20
	erasePause = 100 * time.Millisecond
)

// EraseKey implements [store.Eraser].
func (s *Store) EraseKey(ctx context.Context, flow, key string) (gone store.KeyData, err error) {
	for try := 1; ; try++ {
		gone, err = s.common.EraseKey(ctx, flow, key)
		e, ok := errors.AsType[*pgconn.PgError](err)
		isBusy := ok && e.Code == lockNotAvailable && gone == (store.KeyData{})
		if !isBusy || try == eraseTries || !clock.Pause(ctx, erasePause) {
			return gone, err
		}
	}
}

// Scrub implements [store.Eraser]. What is removed cannot be read by SQL any more. Its bytes go by means of the server.
func (s *Store) Scrub(context.Context, bool) ([]string, error) {
	return []string{
		"dead rows in the files of tables and indexes, until autovacuum and later rows have overwritten them; vacuum full removes them at once",
		"the write-ahead log, replicas that lag, and archives of the log, until the server removes them",
		"backups, until they expire",
	}, nil
}
