package sqlite

import (
	"fmt"
	"io/fs"
	"os"

	"procaas/engine/store"
)

// A presence tells whether the files of a store are still where they were opened. One that
// was removed, or has another one in its place, takes writes as before, and nobody will ever
// read them.
type presence struct {
	files map[string]fs.FileInfo
}

// watch begins with the files that are there: the store's own, and its log.
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

// check is an [store.ErrLost] when one of them is not.
func (p presence) check() error {
	for name, was := range p.files {
		if info, err := os.Stat(name); err != nil || !os.SameFile(was, info) {
			return fmt.Errorf("%w: %s was removed while the process ran, or another file is in its place. "+
				"Put the file back, or restart this process to go on with what is there", store.ErrLost, name)
		}
	}
	return nil
}
