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

// Watch calls changed after files below paths have changed and settled, until
// ctx ends. It heeds directories and the files that wanted chooses by their paths. It watches
// directories, not files: editors replace files.
//
// What the system tells of is the least that has happened: changed has to read all.
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
	var unseen time.Time // when the first change happened that was not told yet; zero for none
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
				// A new directory; a failure to watch it shows when it matters.
				_ = watchTree(w, e.Name, dirs)
			}
			// Reading a file changes its times on some systems. A file without an ending may be
			// anything, such as a log: only a directory that is there, or was, may have held pipelines.
			if e.Op != fsnotify.Chmod && (dirs[filepath.Clean(e.Name)] || wanted(e.Name)) {
				touched()
			}
		case err := <-w.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch files: %w", err)
			}
			touched() // more has changed than anybody could tell
		case <-timer.C:
			unseen = time.Time{}
			changed()
		}
	}
}

// Editors, and tools such as git checkout, change several files one after the other:
// what they leave is read when nothing has changed for a while, but not later than a
// time after the first change, whatever goes on.
const (
	settle       = 100 * time.Millisecond
	settleAtMost = time.Second
)

// A Reader reads the files that pipelines name, and remembers their names.
type Reader struct {
	trees Trees
	mu    sync.Mutex
	names map[string]bool
}

// NewReader makes a reader of files in the trees of paths.
func NewReader(paths []string) *Reader {
	return &Reader{trees: TreesOf(paths), names: map[string]bool{}}
}

// Read reads a file that another one names.
func (r *Reader) Read(name string) ([]byte, error) {
	r.mu.Lock()
	r.names[filepath.Clean(name)] = true // even if it is not there yet
	r.mu.Unlock()
	return r.trees.Read(name)
}

// Reads reports whether a file is one of the pipelines, or was read before. It is for [Watch].
func (r *Reader) Reads(path string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return IsPipeline(path) || r.names[filepath.Clean(path)]
}

func hidden(path string) bool {
	return strings.HasPrefix(filepath.Base(path), ".")
}

// watchTree watches a directory and those below, and puts them into dirs.
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
