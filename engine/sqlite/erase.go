package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// LockToErase implements [sqlstore.Tx]. There is only one writer.
func (t *sharedTx) LockToErase(context.Context, string, string) error { return t.err }

// These bound how often Scrub tries to empty the log while others read what it has, and for how long writes wait for one try.
const (
	scrubTries = 20
	scrubPause = 100 * time.Millisecond
)

// Scrub implements [store.Eraser]. Removed rows are overwritten when they go. The log has copies of them until all of it is in
// the file. Unused parts of pages that SQLite has arranged anew have copies until the file is written anew.
func (s *Store) Scrub(ctx context.Context, whole bool) (remains []string, err error) {
	if whole {
		err = s.writer.alone(ctx, func(t *tx) error { return t.exec("vacuum") })
	}
	for try := 1; err == nil; try++ {
		busy := 0
		err = s.writer.alone(ctx, func(t *tx) error {
			_, err := t.row("pragma wal_checkpoint(truncate)", nil, &busy, new(int), new(int))
			return err
		})
		if err != nil || busy == 0 {
			break
		}
		if try == scrubTries {
			err = errors.New("somebody reads the file all the time; repeat it later")
			break
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(scrubPause):
		}
	}
	if err != nil {
		return nil, fmt.Errorf("remove copies of erased data from the file: %w", err)
	}
	if !whole {
		remains = append(remains, "unused parts of pages of the file, until SQLite writes there again; procaas erase --vacuum writes the file anew")
	}
	return append(remains, "backups of the file, until they expire"), nil
}
