package source

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace replaces the content of a file atomically. The content is on disk before it gets the name. Links to
// the file stay valid.
func Replace(path string, data []byte) (err error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(real)
	if err != nil {
		return err
	}
	return placeFile(real, data, info.Mode().Perm())
}

// placeFile writes a file atomically.
func placeFile(path string, data []byte, mode os.FileMode) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(path), ".procaas-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temp.Name()))
		}
	}()
	_, err = temp.Write(data)
	err = errors.Join(err, temp.Chmod(mode), temp.Sync(), temp.Close())
	if err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}

// New writes a new file atomically. It fails if the file exists.
func New(path string, data []byte) (err error) {
	if _, err := os.Lstat(path); err == nil {
		return fs.ErrExist
	}
	return placeFile(path, data, 0o644)
}
