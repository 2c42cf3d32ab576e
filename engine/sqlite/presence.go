package sqlite

import (
	"fmt"
	"io/fs"
	"os"

	"procaas/engine/store"
)

// A presence checks whether the files of a store are still where they were opened. A file that was
// removed or replaced still accepts writes, which nobody will ever read.
type presence struct {
	files map[string]fs.FileInfo
}

// watch remembers the current files: the store's own, and its log.
func watch(path string) (presence, error) {
	p := presence{map[string]fs.FileInfo{}}
	for _, name := range []string{path, path + "-wal"} {
		info, err := os.Stat(name)
		if err != nil {
			return p, err
		}
		p.files[name] = info
	}
	return p, nil
}

// check returns an [store.ErrLost] if a file is missing or replaced.
func (p presence) check() error {
	for name, was := range p.files {
		if info, err := os.Stat(name); err != nil || !os.SameFile(was, info) {
			return fmt.Errorf("%w: %s was removed while the process ran, or another file is in its place. "+
				"Put the file back, or restart this process to go on with what is there", store.ErrLost, name)
		}
	}
	return nil
}
