package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Watch calls changed after files below paths have changed and settled, until ctx ends. It heeds directories
// and files for which wanted returns true. It watches directories, since editors replace files.
//
// The system does not report all changes, so changed must read everything.
func Watch(ctx context.Context, paths []string, wanted func(path string) bool, changed func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch files: %w", err)
	}
	defer w.Close()
	dirs := map[string]bool{}
	for _, path := range paths {
		if err := watchTree(w, path, dirs); err != nil {
			return fmt.Errorf("watch %s: %w", path, err)
		}
	}
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	var unseen time.Time // time of the first unreported change; zero for none
	touched := func() {
		if unseen.IsZero() {
			unseen = time.Now()
		}
		timer.Reset(min(settle, time.Until(unseen.Add(settleAtMost))))
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.Events:
			if info, err := os.Stat(e.Name); err == nil && info.IsDir() && !hidden(e.Name) {
				// A new directory. If it cannot be watched, reading it reports the error.
				_ = watchTree(w, e.Name, dirs)
			}
			// Reading changes the times of files on some systems. A name without an extension may be anything,
			// such as a log. It matters only if it is or was a directory.
			if e.Op != fsnotify.Chmod && (dirs[filepath.Clean(e.Name)] || wanted(e.Name)) {
				touched()
			}
		case err := <-w.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch files: %w", err)
			}
			touched() // the system reports that events were lost
		case <-timer.C:
			unseen = time.Time{}
			changed()
		}
	}
}

// Editors and tools such as git checkout change several files in a row. Their result is read when nothing has
// changed for a while, or at the latest some time after the first change.
const (
	settle       = 100 * time.Millisecond
	settleAtMost = time.Second
)

// A Reader reads files that pipelines name, and remembers their names.
type Reader struct {
	trees Trees
	mu    sync.Mutex
	names map[string]bool
}

// NewReader returns a reader for the trees of paths.
func NewReader(paths []string) *Reader {
	return &Reader{trees: TreesOf(paths), names: map[string]bool{}}
}

// Read reads a file that another file names.
func (r *Reader) Read(name string) ([]byte, error) {
	r.mu.Lock()
	r.names[filepath.Clean(name)] = true // even if it does not exist yet
	r.mu.Unlock()
	return r.trees.Read(name)
}

// Reads reports whether a file is a pipeline or was read before. It is for [Watch].
func (r *Reader) Reads(path string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return IsPipeline(path) || r.names[filepath.Clean(path)]
}

func hidden(path string) bool {
	return strings.HasPrefix(filepath.Base(path), ".")
}

// watchTree watches a directory and its subdirectories, and adds them to dirs.
func watchTree(w *fsnotify.Watcher, root string, dirs map[string]bool) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir() && path == root:
			return w.Add(filepath.Dir(path))
		case !d.IsDir():
			return nil
		case path != root && hidden(path):
			return fs.SkipDir
		}
		dirs[filepath.Clean(path)] = true
		return w.Add(path)
	})
}
