package main

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
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"procaas/dsl"
	"procaas/engine/api/access"
	"procaas/engine/store"
)

func devCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "dev [DIR…]",
		Short: "Run pipelines here, checking and reloading them on each change",
		Long: `dev serves the pipelines of the given directories (default: the current one) on
this machine, with the stub services (*.stub.yaml) that it finds there. It
watches the files: each change is checked, and takes effect when nothing is
wrong with it. A set with errors, or without pipelines, never replaces a good one.`,
		Example: "  procaas dev flows/",
		Args:    cobra.ArbitraryArgs,
	}
	var f nodeFlags
	f.add(c, "sqlite:.procaas/procaas.db", access.OpenGroups()...)
	f.overrule = true // what is edited here is what runs here
	stubs := c.Flags().Bool("stubs", true, "serve the stub services found beside the pipelines")
	ephemeral := c.Flags().Bool("ephemeral", false, "forget everything at the end")
	c.RunE = func(c *cobra.Command, args []string) error {
		f.pipelines = args
		if len(args) == 0 {
			f.pipelines = []string{"."}
		}
		return dev(c.Context(), s, f, *stubs, *ephemeral)
	}
	return c
}

// dev serves pipelines until ctx ends. The stub services are found once: a change of
// them wants a restart.
func dev(ctx context.Context, s streams, f nodeFlags, stubs, ephemeral bool) error {
	if ephemeral {
		dir, err := os.MkdirTemp("", "procaas-dev-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		f.store = "sqlite:" + filepath.Join(dir, "dev.db")
	}
	if stubs {
		stop, err := f.serveStubs(ctx, s)
		if err != nil {
			return err
		}
		defer stop()
	}
	bundle, err := loadBundle(s, f.pipelines, dsl.Options{ServiceURLs: f.services})
	if err != nil {
		return err
	}
	n, err := openNode(ctx, s, f, bundle)
	if err != nil {
		return err
	}
	banner(s.out, n, f.store, bundle)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.run(ctx) })
	g.Go(func() error {
		return watch(ctx, f.pipelines, func() {
			if _, err := n.reload(ctx, false, store.Actor{Name: "dev", Reason: "files have changed"}); err != nil {
				if !errors.Is(err, errFindings) { // findings are shown already
					fmt.Fprintf(s.err, "procaas: %v\n", err)
				}
				fmt.Fprintln(s.err, "the pipelines that were good go on")
				return
			}
			fmt.Fprintf(s.err, "%s reloaded\n", time.Now().Format(time.TimeOnly))
		})
	})
	return g.Wait()
}

// serveStubs serves the stub services beside the pipelines, if there are any,
// and makes requests go there.
func (f *nodeFlags) serveStubs(ctx context.Context, s streams) (stop func(), err error) {
	files, err := readFiles(f.pipelines, s.in, isStubFile)
	if err != nil {
		return nil, usageError{err}
	}
	if len(files) == 0 {
		return func() {}, nil
	}
	server, err := startStubs(ctx, s, files)
	if err != nil {
		return nil, err
	}
	if f.services == nil {
		f.services = map[string]string{}
	}
	for id, url := range server.URLs() {
		if _, set := f.services[id]; !set {
			f.services[id] = url
		}
	}
	return func() { server.Close() }, nil
}

// watch calls changed after files below paths have changed and settled, until
// ctx ends. It watches directories, not files: editors replace files.
//
// What the system tells of is the least that has happened: changed has to read all.
func watch(ctx context.Context, paths []string, changed func()) error {
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
	return ext == "" || ext == ".json" || isYAML(e.Name)
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
