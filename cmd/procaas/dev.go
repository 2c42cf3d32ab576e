package main

import (
	"context"
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
	"procaas/engine"
)

func devCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "dev [DIR…]",
		Short: "Run pipelines here, checking and reloading them on each change",
		Long: `dev serves the pipelines of the given directories (default: the current one) on
this machine, with the stub services (*.stub.yaml) that it finds there. It
watches the files: each change is checked, and takes effect when nothing is
wrong with it. A set with errors never replaces a good one.`,
		Example: "  procaas dev flows/",
		Args:    cobra.ArbitraryArgs,
	}
	var f nodeFlags
	f.add(c, "sqlite:.procaas/procaas.db")
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
			if _, err := n.reload(ctx, engine.Actor{Name: "dev", Reason: "files have changed"}); err != nil {
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
	const settle = 100 * time.Millisecond
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.Events:
			if info, err := os.Stat(e.Name); err == nil && info.IsDir() {
				// A new directory; a failure to watch it shows when it matters.
				_ = watchTree(w, e.Name)
			}
			timer.Reset(settle)
		case err := <-w.Errors:
			return fmt.Errorf("watch files: %w", err)
		case <-timer.C:
			changed()
		}
	}
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
