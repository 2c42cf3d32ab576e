package sqlite

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// The bytes that SQLite locks begin where its page for locks does, whatever the size of the file.
// SQLite locks none behind them.
const (
	lockBytes   = 1 << 30 // PENDING_BYTE
	sharedFirst = lockBytes + 2
	sharedSize  = 510
	ownerByte   = lockBytes + 512
)

// A hold has locks on the database itself: an own one, and one that is like SQLite's shared lock.
// They belong to its descriptor. So they do not end when the process closes another descriptor of
// the file, and they hold for each path that leads to the file.
type hold struct{ file *os.File }

// holdFile locks the file at path for one store. It creates the file if there is none. A file
// system without such locks gets none: the lock beside the file is all it has.
func holdFile(path string) (*hold, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	h := &hold{f}
	if err := h.lock(unix.F_WRLCK, ownerByte, 1); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// share locks what SQLite locks for a connection that is open. No other program can then believe
// that it is alone. It must begin after SQLite has opened the log, and end before SQLite closes the
// file: SQLite needs the bytes for itself then.
func (h *hold) share() error { return h.lock(unix.F_RDLCK, sharedFirst, sharedSize) }

func (h *hold) unshare() error { return h.lock(unix.F_UNLCK, sharedFirst, sharedSize) }

func (h *hold) lock(kind int16, start, length int64) error {
	l := unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: start, Len: length}
	switch err := unix.FcntlFlock(h.file.Fd(), unix.F_OFD_SETLK, &l); {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		return errInUse
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EOPNOTSUPP):
		return nil
	default:
		return err
	}
}

// Close drops the locks. SQLite must have closed the file. Closing the descriptor would not do: a
// program that this process is about to start has a copy of it until its exec, and with it the locks.
func (h *hold) Close() error {
	return errors.Join(h.lock(unix.F_UNLCK, 0, 0), h.file.Close())
}
