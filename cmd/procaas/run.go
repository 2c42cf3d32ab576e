package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/render"
	"procaas/engine"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/sqlite"
	"procaas/engine/stub"
	"procaas/handlers"
)

// runCommand needs no server: the run has an engine of its own for as long as it lasts.
func runCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "run PIPELINE",
		Short: "Run one event through a pipeline, here and now",
		Long: `run sends one event through a pipeline without a server, shows each handler as it
ends, and prints the final shared state. Nothing is kept. The event is plain
JSON: {"key": …, "payload": …}; its type is the pipeline's own unless it says
another. With --stubs the stub services (*.stub.yaml) beside the pipelines answer
in place of the real ones.`,
		Example: `  echo '{"payload": {"order-id": "o-1"}}' | procaas run new-order-created --event - --stubs -p flows/`,
		Args:    cobra.ExactArgs(1),
	}
	dirs := pipelinesFlag(c)
	event := c.Flags().String("event", "", "file with the event, or - for standard input (required)")
	stubs := c.Flags().Bool("stubs", false, "answer requests from the stub services beside the pipelines")
	timeout := c.Flags().Duration("timeout", 5*time.Minute, "give up after this time")
	format := formatFlag(c, "text", "json")
	c.RunE = func(c *cobra.Command, args []string) error {
		f, err := format()
		if err != nil {
			return err
		}
		if *event == "" {
			return usagef("run needs --event FILE, or --event - for standard input")
		}
		ctx, cancel := context.WithTimeoutCause(c.Context(), *timeout, fmt.Errorf("the run has not ended within %v", *timeout))
		defer cancel()
		r := oneRun{streams: s, pipeline: args[0], dirs: *dirs, stubs: *stubs, format: f}
		return r.do(ctx, *event)
	}
	return c
}

// A oneRun is one event's way through a pipeline on the terminal.
type oneRun struct {
	streams
	pipeline string
	dirs     []string
	stubs    bool
	format   string
}

// do exits with 1 when the run does not succeed, so that scripts can tell.
func (r oneRun) do(ctx context.Context, eventFile string) error {
	services, stop, err := r.startStubs(ctx)
	if err != nil {
		return err
	}
	defer stop()
	bundle, err := loadBundle(r.streams, r.dirs, dsl.Options{ServiceURLs: services})
	if err != nil {
		return err
	}
	plan, err := planOf(bundle, r.pipeline)
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
	if err := r.print(view); err != nil {
		return err
	}
	if view.Status != model.Succeeded {
		return errFindings
	}
	return nil
}

// startStubs serves the stub services beside the pipelines and tells where each
// answers.
func (r oneRun) startStubs(ctx context.Context) (services map[string]string, stop func(), err error) {
	if !r.stubs {
		return nil, func() {}, nil
	}
	files, err := readFiles(r.dirs, r.in, isStubFile)
	if err != nil {
		return nil, nil, usageError{err}
	}
	if len(files) == 0 {
		return nil, nil, usagef("--stubs: no *.stub.yaml in %s", strings.Join(r.dirs, ", "))
	}
	server, err := startStubs(ctx, r.streams, files)
	if err != nil {
		return nil, nil, err
	}
	return server.URLs(), func() { server.Close() }, nil
}

// startStubs checks stub files and serves them on free ports.
func startStubs(ctx context.Context, s streams, files []diag.File) (*stub.Server, error) {
	set, found := stub.Parse(files)
	if len(found) > 0 {
		if err := render.Write(s.err, render.Text, files, found, colorful(s.err)); err != nil {
			return nil, err
		}
	}
	if set == nil {
		return nil, errFindings
	}
	return stub.Start(ctx, set, stub.Options{FreePorts: true})
}

// readEvent takes the type of the event from the pipeline when the file does not say it.
func (r oneRun) readEvent(file string, plan *planner.Plan) (model.Event, error) {
	data, err := readInput(r.streams, file)
	if err != nil {
		return model.Event{}, err
	}
	event, err := parseEvent(data)
	if err != nil {
		return model.Event{}, usagef("the event in %s: %w", file, err)
	}
	if event.Type == "" {
		event.Type = plan.Pipeline.On[0]
	}
	return event, nil
}

// execute runs the event on a store that lives as long as the command.
func (r oneRun) execute(ctx context.Context, b *dsl.Bundle, services map[string]string, event model.Event) (checkpoint.RunView, error) {
	dir, err := os.MkdirTemp("", "procaas-run-")
	if err != nil {
		return checkpoint.RunView{}, err
	}
	defer os.RemoveAll(dir)
	store, err := sqlite.Open(ctx, filepath.Join(dir, "run.db"), sqlite.Options{Migrate: true})
	if err != nil {
		return checkpoint.RunView{}, err
	}
	o := engine.DefaultOptions()
	o.Store, o.Types, o.Bundle, o.Name = store, handlers.All(), b, "run"
	o.Secrets, o.ServiceURLs = secretStore{}.value, services
	e, err := engine.New(o)
	if err != nil {
		return checkpoint.RunView{}, errors.Join(err, store.Close())
	}
	// The engine drains and closes whatever became of the run.
	working, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- e.Run(working) }()
	view, err := r.follow(ctx, e, event)
	stop()
	return view, errors.Join(err, <-done, store.Close())
}

// follow submits the event and shows each handler as it ends.
func (r oneRun) follow(ctx context.Context, e *engine.Engine, event model.Event) (checkpoint.RunView, error) {
	submitted, err := e.Submit(ctx, []engine.Submission{{Event: event}})
	if err != nil {
		return checkpoint.RunView{}, err
	}
	if err := submitted[0].Err; err != nil {
		return checkpoint.RunView{}, usagef("the event is refused: %w", err)
	}
	tree := progressTree{w: r.err, quiet: r.format == "json", color: colorful(r.err)}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		view, err := e.RunByID(ctx, submitted[0].Receipt.Run)
		if err != nil {
			return view, err
		}
		tree.show(view)
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

// print shows the run on standard output; its progress was on standard error, so that the
// state can be piped on.
func (r oneRun) print(v checkpoint.RunView) error {
	if r.format == "json" {
		return printJSON(r.out, v)
	}
	fmt.Fprintf(r.out, "%s %s: %s", v.Pipeline, v.Key, v.Status)
	if v.Finished != nil && v.Started != nil {
		fmt.Fprintf(r.out, " in %s", roundDuration(v.Finished.Sub(*v.Started)))
	}
	fmt.Fprintln(r.out)
	for _, why := range []string{v.Error, v.Reason} {
		if why != "" {
			fmt.Fprintln(r.out, why)
		}
	}
	fmt.Fprintln(r.out, "shared-state:")
	return printJSON(r.out, v.SharedState)
}

// A progressTree shows the handlers of a run, each once, as they end.
type progressTree struct {
	w     io.Writer
	quiet bool // for JSON
	color bool
	shown map[string]string // the outcome that was shown last, by handler and by what it is inside of
	stage string            // whose title was shown last
}

// show shows what has ended since the last view. Handlers of a repeated stage are shown when
// all of its elements are done: before, what they tell changes with each element.
func (p *progressTree) show(v checkpoint.RunView) {
	if p.quiet {
		return
	}
	if p.shown == nil {
		p.shown = map[string]string{}
		fmt.Fprintln(p.w, v.Event.Type)
	}
	repeated := map[string]bool{} // stages that are, and whether all elements are done
	for _, h := range v.Handlers {
		if h.RepeatsStage() {
			repeated[h.Path] = h.Finished != nil
		}
	}
	for _, h := range v.Handlers {
		name := h.Within + ">" + h.Path
		if done, ok := repeated[h.Stage()]; ok && !done || h.Outcome == "running" || p.shown[name] == h.Outcome {
			continue
		}
		p.shown[name] = h.Outcome
		p.line(h)
	}
}

// line shows one handler, below the title of its stage.
func (p *progressTree) line(h checkpoint.HandlerView) {
	parts := strings.SplitN(h.Path, "/", 3)
	if stage := parts[0] + "/" + parts[1]; stage != p.stage {
		p.stage = stage
		title := parts[1]
		if h.RepeatsStage() {
			title += " " + handlerNote(h)
		}
		fmt.Fprintf(p.w, "├─ %s\n", title)
	}
	if h.RepeatsStage() {
		return
	}
	name := parts[2]
	if _, index, ok := strings.Cut(h.Within, "["); ok && strings.Count(h.Within, "/") == 1 {
		name += "[" + index
	}
	mark, tint := "✓", "32"
	switch h.Outcome {
	case "failed":
		mark, tint = "✗", "31"
	case "skipped":
		mark, tint = "–", "33"
	case "waiting":
		mark, tint = "…", "36"
	}
	if p.color {
		mark = "\x1b[" + tint + "m" + mark + "\x1b[0m"
	}
	fmt.Fprintf(p.w, "│  %s %s %s\n", mark, name, handlerNote(h))
}

// handlerNote says what to know of a handler besides its name: how long, how often, and why.
func handlerNote(h checkpoint.HandlerView) string {
	var notes []string
	if h.Started != nil && h.Finished != nil {
		notes = append(notes, roundDuration(h.Finished.Sub(*h.Started)).String())
	}
	if h.RepeatsStage() {
		if h.Items != nil {
			notes = append(notes, h.Items.String())
		}
	} else if h.Attempts > 1 {
		notes = append(notes, fmt.Sprintf("%d attempts", h.Attempts))
	}
	if h.Outcome != "succeeded" {
		notes = append(notes, h.Outcome)
	}
	for _, why := range []string{h.Reason, h.Error} {
		if why != "" {
			notes = append(notes, why)
		}
	}
	return strings.Join(notes, ", ")
}

// roundDuration keeps three digits or so: enough for people.
func roundDuration(d time.Duration) time.Duration {
	switch {
	case d > time.Second:
		return d.Round(10 * time.Millisecond)
	case d > time.Millisecond:
		return d.Round(100 * time.Microsecond)
	default:
		return d.Round(time.Microsecond)
	}
}
