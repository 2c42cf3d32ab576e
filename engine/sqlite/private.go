package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// keepPrivate lets only the owner read a database, because it has all payloads, settings and hashes
// of tokens. SQLite gives the files beside it the same permissions. It leaves the file alone if the
// file system has no such permissions or another user owns the file.
//
// It must not open a file that exists. When a process closes any descriptor of a file, the system
// drops all POSIX locks of the process on that file, and so those of SQLite. Another program that
// opens the database would then believe that it is alone, and delete the log.
func keepPrivate(path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	for _, suffix := range []string{"", "-wal", "-shm", "-journal", "-seen"} {
		info, err := os.Stat(path + suffix)
		if err != nil || info.Mode().Perm()&0o077 == 0 {
			continue
		}
		if err := os.Chmod(path+suffix, info.Mode().Perm()&0o700); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}
