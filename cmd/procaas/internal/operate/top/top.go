// Package top has the commands that watch handlers and services.
package top

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/problem"
	"procaas/engine/clock"
	"procaas/engine/guard"
	"procaas/engine/stats"
)

// Commands returns the commands.
func Commands() []*cobra.Command { return []*cobra.Command{topCommand(), servicesCommand()} }

// topFlags are the flags of top.
type topFlags struct {
	*cli.Call
	others []string      // addresses of further nodes, whose numbers are added
	once   bool          // print a single view
	sort   string        // one of topOrders
	window string        // one of stats.Periods
	every  time.Duration // interval between views
}

// topOrders are the orders of handlers. The first is the default.
func topOrders() []string { return []string{"rate", "failures", "latency", "path"} }

// topCommand refuses invalid flags before it asks a server.
func topCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "top [PATH]",
		Short: "Watch handlers by path: rate, success, latency, switch, limit, fallback",
		Long: `top shows the handlers of a server, or those below a path, and updates each second.
Columns are calls and success in the last minute and the last 10 seconds, and the median
and the 99th percentile of latency. --window shows 10 seconds, 10 minutes or an hour
instead of the minute. An attempt fails by an error of its call, and also by an
expression, a schema or a deadline. Other columns are calls in flight, runs that wait in memory or are
parked in the store, and what restricts a handler. CRIT and OWNER say whether a handler
is critical and whose it is, where 120 columns or the terminal have room.

Above the handlers are the slowest pipelines, or the pipeline of PATH and its stages. Their
durations of the last hour stand beside those of the hour before. A run counts from the
acceptance of its event, and a stage from the end of the one before it.

Below a handler are its last error, and who switched it off, until when and why. At
the top are a canary, the services that are down, and how many runs wait or stand still, for
what and for how long. A line says how much of its memory each node uses, and how many
runs and requests wait for some.

Parked runs are those of all nodes. Other numbers are those of one node: pass --node
to add other nodes. Ctrl-C ends it. Without a terminal, top prints once.`,
		Example: "  procaas top\n  procaas top new-order-created/notify --sort failures\n  procaas top --once --format json",
		Args:    cobra.MaximumNArgs(1),
	}
	var f topFlags
	cli.ServerFlags(c)
	c.Flags().StringSliceVar(&f.others, "node", nil, "address of another node of the same store, to add its numbers (repeatable)")
	c.Flags().BoolVar(&f.once, "once", false,
		"print once, and exit, as without a terminal; --format json then prints one document instead of a line per update")
	c.Flags().StringVar(&f.sort, "sort", topOrders()[0], "order: "+strings.Join(topOrders(), ", "))
	c.Flags().StringVar(&f.window, "window", stats.Periods()[1], "time that the columns are of: "+strings.Join(stats.Periods(), ", "))
	c.Flags().DurationVar(&f.every, "every", time.Second, "time between updates")
	return cli.Formatted(c, func(q *cli.Call) error {
		if !slices.Contains(topOrders(), f.sort) {
			return cli.Usagef("--sort %q: want one of %s", f.sort, strings.Join(topOrders(), ", "))
		}
		if !slices.Contains(stats.Periods(), f.window) {
			return cli.Usagef("--window %q: want one of %s", f.window, strings.Join(stats.Periods(), ", "))
		}
		if f.every < 100*time.Millisecond {
			return cli.Usagef("--every %s: want 100ms or more", f.every)
		}
		f.Call = q
		below, err := q.WholePath(strings.Trim(strings.Join(q.Args, ""), "/"))
		if err != nil {
			return err
		}
		return f.run(below)
	})
}

// run shows handlers once, or until ctx ends.
func (f *topFlags) run(below string) error {
	ctx, stop := signal.NotifyContext(f.Ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	now, err := f.look(ctx, below)
	if err != nil {
		return err
	}
	if len(now.handlers) == 0 && below != "" {
		return cli.Usagef("there is no handler below %s%s", below, cli.Meant(below, now.known, "; did you mean %s?", ""))
	}
	if f.JSON() {
		return f.stream(ctx, now, below)
	}
	screen := &screen{out: f.Out, color: cli.Colorful(f.Out)}
	if f.once || !cli.Terminal(f.Out) {
		screen.width = columns(f.Out)
		_, err := f.Out.Write(now.draw(screen))
		return err
	}
	return f.live(ctx, now, below, screen)
}

// live redraws the view on the alternate screen of a terminal until ctx ends.
func (f *topFlags) live(ctx context.Context, now topView, below string, screen *screen) error {
	// The alternate screen without a cursor. The end restores what was on the terminal.
	if err := cli.Control(f.Out, "\x1b[?1049h\x1b[?25l"); err != nil {
		return err
	}
	defer cli.Control(f.Out, "\x1b[?25h\x1b[?1049l") //nolint:errcheck // nothing is left to be done about it
	for {
		var b bytes.Buffer
		screen.width, screen.height = size(f.Out)
		b.WriteString("\x1b[H")
		// Draw over the last view, clear the end of each line and what is below. Clearing the screen first
		// would flicker.
		b.Write(bytes.ReplaceAll(cli.Clean(now.draw(screen), screen.color), []byte("\n"), []byte("\x1b[K\n")))
		b.WriteString("\x1b[J")
		if err := cli.Control(f.Out, b.String()); err != nil {
			return err
		}
		if !clock.Pause(ctx, f.every) {
			return nil
		}
		next, err := f.look(ctx, below)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			now.trouble = err.Error() // the last view stays
			continue
		}
		now = next // without trouble
	}
}

// stream prints JSON: an indented document with --once, otherwise a line per view.
func (f *topFlags) stream(ctx context.Context, now topView, below string) error {
	if f.once {
		return f.PrintJSON(now.report())
	}
	for {
		report := now.report()
		report.Time = &now.at
		if err := json.NewEncoder(f.Out).Encode(report); err != nil {
			return err
		}
		if !clock.Pause(ctx, f.every) {
			return nil
		}
		next, err := f.look(ctx, below)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		now = next
	}
}

// look asks the nodes. Each node lists all handlers, but counts only its own calls, so look adds them by path.
// The number of nodes and their runs come from the store, so any node knows them.
func (f *topFlags) look(ctx context.Context, below string) (topView, error) {
	v := topView{server: f.Server, order: f.sort, window: f.window, at: time.Now(), asked: 1 + len(f.others)}
	if err := v.ask(ctx, f.At(f.Server), below); err != nil {
		return v, fmt.Errorf("%s: %w", f.Server, err)
	}
	for _, server := range f.others {
		other := f.At(server)
		handlers, services, err := seen(ctx, other)
		if err != nil {
			return v, fmt.Errorf("%s: %w", server, err)
		}
		v.add(handlers)
		v.addServices(services)
		took, err := durations(ctx, other, below)
		if err != nil {
			return v, fmt.Errorf("%s: %w", server, err)
		}
		v.addTook(took)
		piped, err := pipelines(ctx, other)
		if err != nil {
			return v, fmt.Errorf("%s: %w", server, err)
		}
		v.addPipelines(piped)
		nodes, err := other.Nodes(ctx)
		if err != nil {
			return v, fmt.Errorf("%s: %w", server, err)
		}
		v.addMemory(nodes)
	}
	v.arrange()
	return v, nil
}

// seen returns what a node has counted for handlers and services.
func seen(ctx context.Context, node *client.Client) (handlers []stats.HandlerInfo, services []guard.ServiceInfo, err error) {
	if handlers, err = node.Handlers(ctx); err != nil {
		return nil, nil, err
	}
	services, err = node.Services(ctx)
	return handlers, services, err
}

// pipelines returns what a node has counted for pipelines. A node of an older version has not.
func pipelines(ctx context.Context, node *client.Client) ([]stats.PipelineInfo, error) {
	all, err := node.Pipelines(ctx)
	if refused, ok := errors.AsType[*problem.Problem](err); ok && refused.Status == http.StatusNotFound {
		return nil, nil
	}
	return all, err
}

// ask sets what a node has counted for the handlers below a path, and what it reads from the store.
func (v *topView) ask(ctx context.Context, node *client.Client, below string) error {
	handlers, services, err := seen(ctx, node)
	if err != nil {
		return err
	}
	v.known, v.services = cli.Paths(handlers), services
	v.handlers = slices.DeleteFunc(handlers, func(h stats.HandlerInfo) bool {
		return below != "" && h.Path != below && !strings.HasPrefix(h.Path, below+"/")
	})
	all, err := pipelines(ctx, node)
	if err != nil {
		return err
	}
	v.piped = slices.DeleteFunc(all, func(p stats.PipelineInfo) bool {
		return below != "" && p.Pipeline != below && !strings.HasPrefix(below, p.Pipeline+"/")
	})
	if v.backlog, err = node.Backlog(ctx); err != nil {
		return err
	}
	if v.took, err = durations(ctx, node, below); err != nil {
		return err
	}
	if v.canary, err = node.Canary(ctx); err != nil {
		return err
	}
	controls, err := node.Controls(ctx)
	if err != nil {
		return err
	}
	v.controls = guard.Apart(controls, v.at)
	nodes, err := node.Nodes(ctx)
	for _, n := range nodes {
		if n.Alive {
			v.nodes++
			v.runs += n.Runs
		}
	}
	v.addMemory(nodes)
	return err
}

// columns returns the width of the terminal, or COLUMNS, or 0 for no limit.
func columns(out io.Writer) int {
	if width, _ := size(out); width > 0 {
		return width
	}
	width, _ := strconv.Atoi(os.Getenv("COLUMNS"))
	return width
}

// size returns the size of the terminal, or 0 if there is none.
func size(out io.Writer) (width, height int) {
	f := cli.File(out)
	if f == nil {
		return 0, 0
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}
