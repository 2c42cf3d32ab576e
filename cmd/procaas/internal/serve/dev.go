package serve

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/engine/api/cli"
	"procaas/engine/api/rest"
	"procaas/engine/definitions"
	"procaas/engine/store"
)

func devCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "dev [DIR…]",
		Short: "Run pipelines here, and reload them on each change",
		Long: `dev serves the pipelines of the given directories (default: the current one) on this
machine, together with the stub services (*.stub.yaml) that it finds there. It watches
the pipelines, the schemas and OpenAPI documents that they name, and the stubs. It
checks each change, and loads it when it has no errors. A set with errors or without pipelines
never replaces a good one.`,
		Example: "  procaas dev flows/",
		Args:    cobra.ArbitraryArgs,
	}
	var f Flags
	f.Add(c, "sqlite:.procaas/procaas.db", rest.OpenGroups()...)
	f.Overrule = true // what is edited here runs here
	stubs := c.Flags().Bool("stubs", true, "serve the stub services beside the pipelines")
	ephemeral := c.Flags().Bool("ephemeral", false, "delete the store at the end")
	c.RunE = func(c *cobra.Command, args []string) error {
		f.Pipelines = args
		if len(args) == 0 {
			f.Pipelines = []string{"."}
		}
		if *ephemeral && c.Flags().Changed("store") {
			return cli.Usagef("dev takes --ephemeral or --store, not both: --ephemeral makes a store of its own")
		}
		return dev(c.Context(), cli.Of(c), f, *stubs, *ephemeral)
	}
	return c
}

// dev serves pipelines until ctx ends.
func dev(ctx context.Context, s cli.Streams, f Flags, stubs, ephemeral bool) error {
	survivePipes()
	if ephemeral {
		dir, remove, err := cli.Scratch("procaas-dev-")
		if err != nil {
			return err
		}
		defer remove()
		f.Store = "sqlite:" + filepath.Join(dir, "dev.db")
	}
	beside := devStubs{Streams: s, paths: f.Pipelines}
	if stubs {
		if err := beside.start(ctx); err != nil {
			return err
		}
		defer beside.close()
		f.Services = beside.services(f.Services)
	}
	reader := source.NewReader(f.Pipelines)
	f.read, f.loader = reader.Read, new(dsl.Loader)
	bundle, err := source.BundleBy(f.loader, s, f.Pipelines, dsl.Options{ServiceURLs: f.Services, Read: f.read})
	if err != nil {
		return err
	}
	n, err := Open(ctx, s, f, bundle)
	if err != nil {
		return err
	}
	n.Banner(s.Out, bundle)
	beside.banner(s.Out)
	beside.tellUnplayed(bundle, beside.urls)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.Run(ctx) })
	if stubs {
		g.Go(func() error {
			return source.Watch(ctx, f.Pipelines, source.IsStub, func() { beside.restart(ctx, n.engine.Bundle()) })
		})
	}
	g.Go(func() error {
		return source.Watch(ctx, f.Pipelines, reader.Reads, func() {
			if _, err := n.reload(ctx, definitions.Change{}, store.Actor{Name: "dev", Reason: "files have changed"}); err != nil {
				if !errors.Is(err, cli.ErrFindings) { // findings are already printed
					fmt.Fprintf(s.Err, "procaas: %v\n", err)
				}
				fmt.Fprintln(s.Err, "the pipelines that were good go on")
				return
			}
			fmt.Fprintf(s.Err, "%s reloaded\n", time.Now().Format(time.TimeOnly))
			beside.tellUnplayed(n.engine.Bundle(), beside.urls)
		})
	})
	return g.Wait()
}
