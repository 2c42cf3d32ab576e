package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/addons"
	"procaas/cmd/procaas/internal/runview"
	"procaas/cmd/procaas/internal/serve/secret"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/api/cli"
	"procaas/engine/checkpoint"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/sqlite"
)

// runCommand needs no server. The run has its own engine.
func runCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "run PIPELINE",
		Short: "Run one event through a pipeline, without a server",
		Long: `run sends one event through a pipeline without a server. It shows each handler as it
ends, and prints the final shared state. It stores nothing.

The event is plain JSON: {"key": …, "payload": …}. Its type is that of the pipeline,
unless the event names another. With --stubs the stub services (*.stub.yaml) beside
the pipelines answer instead of the real ones, on free ports.`,
		Example: `  echo '{"payload": {"order-id": "o-1"}}' | procaas run new-order-created --event - --stubs -p flows/`,
		Args:    cobra.ExactArgs(1),
	}
	dirs := source.PipelinesFlag(c)
	event := c.Flags().String("event", "", "file with the event, or - for standard input (required)")
	stubs := c.Flags().Bool("stubs", false, "answer requests from the stub services beside the pipelines")
	timeout := c.Flags().Duration("timeout", 5*time.Minute, "give up after this time")
	format := cli.Format(c, "text", "json")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *event == "" {
			return cli.Usagef("run needs --event FILE, or --event - for standard input")
		}
		ctx, cancel := context.WithTimeoutCause(c.Context(), *timeout, fmt.Errorf("the run has not ended within %v", *timeout))
		defer cancel()
		r := oneRun{Streams: cli.Of(c), pipeline: args[0], dirs: *dirs, stubs: *stubs, format: *format}
		return r.do(ctx, *event)
	}
	return c
}

// A oneRun is one run on the terminal.
type oneRun struct {
	cli.Streams
	pipeline string
	dirs     []string
	stubs    bool
	format   string
}

// do returns an error for exit code 1 if the run does not succeed.
func (r oneRun) do(ctx context.Context, eventFile string) error {
	services, stop, err := r.startStubs(ctx)
	if err != nil {
		return err
	}
	defer stop()
	bundle, err := source.Bundle(r.Streams, r.dirs, dsl.Options{ServiceURLs: services})
	if err != nil {
		return err
	}
	for _, note := range source.Unplayed(bundle, services) {
		fmt.Fprintln(r.Err, note)
	}
	plan, err := source.Plan(bundle, r.pipeline)
	if err != nil {
		return err
	}
	event, err := r.readEvent(eventFile, plan)
	if err != nil {
		return err
	}
	view, err := r.execute(ctx, bundle, services, event)
	if err != nil {
		return err
	}
	if r.format == "json" {
		err = r.PrintJSON(view)
	} else {
		err = runview.Print(r.Streams, view)
	}
	return cmp.Or(err, cli.FindingsIf(view.Status != model.Succeeded))
}

// startStubs serves the stub services beside the pipelines. It returns their addresses.
func (r oneRun) startStubs(ctx context.Context) (services map[string]string, stop func(), err error) {
	if !r.stubs {
		return nil, func() {}, nil
	}
	files, err := source.StubsBeside(r.dirs)
	if err != nil {
		return nil, nil, err
	}
	if len(files) == 0 {
		return nil, nil, cli.Usagef("--stubs: no *.stub.yaml in %s", strings.Join(r.dirs, ", "))
	}
	server, err := source.Stubs(ctx, r.Streams, files)
	if err != nil {
		return nil, nil, err
	}
	return server.URLs(), func() { server.Close() }, nil
}

// readEvent reads the event. A missing type is that of the pipeline.
func (r oneRun) readEvent(file string, plan *planner.Plan) (model.Event, error) {
	data, err := r.Streams.Input(file)
	if err != nil {
		return model.Event{}, err
	}
	event, err := source.Event(data)
	if err != nil {
		return model.Event{}, cli.Usagef("the event in %s: %w", file, err)
	}
	if event.Type == "" {
		event.Type = plan.Pipeline.On[0]
	}
	return event, nil
}

// execute runs the event on a temporary store.
func (r oneRun) execute(ctx context.Context, b *tree.Bundle, services map[string]string, event model.Event) (checkpoint.RunView, error) {
	dir, remove, err := cli.Scratch("procaas-run-")
	if err != nil {
		return checkpoint.RunView{}, err
	}
	defer remove()
	store, err := sqlite.Open(ctx, filepath.Join(dir, "run.db"), sqlite.Options{Migrate: true, Addons: addons.Tables()})
	if err != nil {
		return checkpoint.RunView{}, err
	}
	o := engine.DefaultOptions()
	o.Store = store.Ports()
	o.Types = addons.HandlerTypes()
	o.Bundle = b
	o.Name = "run"
	o.Secrets, o.ServiceURLs = secret.Store{}.Value, services
	e, err := engine.New(o)
	if err != nil {
		return checkpoint.RunView{}, errors.Join(err, store.Close())
	}
	// The engine drains and closes even if the run fails.
	working, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- e.Run(working) }()
	view, err := r.follow(ctx, e, event)
	stop()
	return view, errors.Join(err, <-done, store.Close())
}

// follow submits the event and prints each handler as it ends.
func (r oneRun) follow(ctx context.Context, e *engine.Engine, event model.Event) (checkpoint.RunView, error) {
	submitted, err := e.Submit(ctx, []intake.Submission{{Event: event}})
	if err != nil {
		return checkpoint.RunView{}, err
	}
	if err := submitted[0].Err; err != nil {
		return checkpoint.RunView{}, cli.Usagef("the event is refused: %w", err)
	}
	tree := runview.Tree{W: r.Err, Live: true, Quiet: r.format == "json", Color: cli.Colorful(r.Err)}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		view, err := e.RunByID(ctx, submitted[0].Receipt.Run)
		if err != nil {
			return view, err
		}
		tree.Show(view)
		if view.Status.Ended() {
			return view, nil
		}
		select {
		case <-ctx.Done():
			return view, context.Cause(ctx)
		case <-tick.C:
		}
	}
}
