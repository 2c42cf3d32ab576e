package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// keepPrivate sees to it that nobody but its owner reads a database: all payloads, settings
// and hashes of tokens are in it. SQLite gives what it makes beside the file the same
// rights. Where the file system knows no such rights, or the file is another one's, it is
// left as it is.
func keepPrivate(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
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
