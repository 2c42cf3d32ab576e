package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"procaas/engine/sqlstore"
	"procaas/engine/store"
)

// A seen is a small file beside the store. It has the time when a node last renewed its lease, in microseconds. A store that knows only
// of earlier signs of a node was restored from a backup.
type seen struct{ *os.File }

// seenFormat has a fixed width, since the file is written in place.
const seenFormat = "%019d\n"

func openSeen(path string) (*seen, error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	f, err := os.OpenFile(path+"-seen", os.O_CREATE|os.O_RDWR, 0o600)
	return &seen{f}, err
}

// write notes that a lease has been renewed. The commit comes first, so the store never knows less than the file. A write that fails
// leaves an earlier time, with which less is noticed.
func (s *seen) write(at time.Time) { _, _ = s.WriteAt(fmt.Appendf(nil, seenFormat, at.UnixMicro()), 0) }

// read returns the zero time if nothing was written yet, or if the file has something else.
func (s *seen) read() (t time.Time, err error) {
	text, err := os.ReadFile(s.Name())
	if micros, failed := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); failed == nil {
		t = time.UnixMicro(micros)
	}
	return t, err
}

const readLastSign = "select max(seen) from nodes"

// restored says why the store is an earlier state. It is empty if it is not, as far as one can tell.
func (s *Store) restored(ctx context.Context) (why string, last time.Time, err error) {
	var micros sql.NullInt64
	if err := s.read.QueryRowContext(ctx, readLastSign).Scan(&micros); err != nil {
		return "", last, err
	}
	known, err := s.seen.read()
	last = fromMicros(micros)
	if err == nil && !last.IsZero() && known.After(last) {
		why = fmt.Sprintf("a node worked with this file until %s, as %s says", known.UTC().Format(time.RFC3339), s.seen.Name())
	}
	return why, last, err
}

// recognize refuses a file that was restored and not adopted.
func (s *Store) recognize(ctx context.Context) error {
	why, last, err := s.restored(ctx)
	if err != nil {
		return err
	}
	return store.Refused(why, last)
}

// Adopt accepts a file that was restored, so that a node starts with it. It returns what will be repeated. With preview, it changes
// nothing, and neither does it if nodes do not refuse the file. triggers is the prefix of the sources of triggers.
func (s *Store) Adopt(ctx context.Context, triggers string, preview bool, by store.Actor) (r store.Restored, err error) {
	why, _, err := s.restored(ctx)
	if err == nil {
		r, err = s.Repeats(ctx, why, triggers)
	}
	if err != nil || why == "" || preview {
		return r, err
	}
	err = s.writer.do(ctx, func(t *tx) error {
		return t.share(func(t sqlstore.Tx) error { return sqlstore.AuditAdopted(ctx, t, r, by) })
	})
	if err == nil {
		err = s.seen.Truncate(0)
	}
	return r, err
}
