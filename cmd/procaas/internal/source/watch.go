package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Watch calls changed after files below paths have changed and settled, until
// ctx ends. It watches directories, not files: editors replace files.
//
// What the system tells of is the least that has happened: changed has to read all.
func Watch(ctx context.Context, paths []string, changed func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch files: %w", err)
	}
	defer w.Close()
	for _, path := range paths {
		if err := watchTree(w, path); err != nil {
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
			if info, err := os.Stat(e.Name); err == nil && info.IsDir() {
				// A new directory; a failure to watch it shows when it matters.
				_ = watchTree(w, e.Name)
			}
			if matters(e) {
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

// matters tells whether a change may be one of the pipelines, or of schemas and
// documents that they name. A store that lies among the files changes all the time, and
// reading a file changes its times on some systems. What has no ending may be a
// directory that is gone.
func matters(e fsnotify.Event) bool {
	if e.Op == fsnotify.Chmod {
		return false
	}
	ext := filepath.Ext(e.Name)
	return ext == "" || ext == ".json" || IsYAML(e.Name)
}

func watchTree(w *fsnotify.Watcher, root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir() && path == root:
			return w.Add(filepath.Dir(path))
		case !d.IsDir():
			return nil
		case path != root && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		}
		return w.Add(path)
	})
}
