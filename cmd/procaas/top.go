package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"procaas/dsl/diag"
	"procaas/engine"
	"procaas/engine/api/client"
)

// topFlags are the flags of top.
type topFlags struct {
	clientFlags
	others []string      // addresses of nodes whose numbers are added
	once   bool          // one view, and no more
	sort   string        // one of topOrders
	every  time.Duration // between two views
}

// topOrders are the orders of handlers, the first being the default.
func topOrders() []string { return []string{"rate", "failures", "latency", "path"} }

// topCommand refuses what cannot be before it asks a server, so that mistakes are told at once.
func topCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "top [PATH]",
		Short: "Watch handlers by path: rate, success, latency, switch, limit, fallback",
		Long: `top shows the handlers of a server, or those below a path, anew each second: calls
and their success in the last minute and in the last ten seconds, the middle and the
slowest hundredth of their latency, calls under way, runs that wait in memory or
are parked in the store, and what keeps a handler from running freely. When runs
stand still, a line says how many, and for what. Parked runs are those of all nodes,
other numbers those of one node; name the others with --node to add theirs. Ctrl-C
ends it.`,
		Example: "  procaas top\n  procaas top new-order-created/notify --sort failures\n  procaas top --once --format json",
		Args:    cobra.MaximumNArgs(1),
	}
	var f topFlags
	f.add(c)
	c.Flags().StringSliceVar(&f.others, "node", nil, "address of another node of the same store, whose numbers are added (repeatable)")
	c.Flags().BoolVar(&f.once, "once", false, "show them once, and exit")
	c.Flags().StringVar(&f.sort, "sort", topOrders()[0], "order: "+strings.Join(topOrders(), ", "))
	c.Flags().DurationVar(&f.every, "every", time.Second, "time between two views")
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, args []string, out string) error {
		if !slices.Contains(topOrders(), f.sort) {
			return usagef("--sort %q: want one of %s", f.sort, strings.Join(topOrders(), ", "))
		}
		if f.every < 100*time.Millisecond {
			return usagef("--every %s: want 100ms or more", f.every)
		}
		below := ""
		if len(args) > 0 {
			below = strings.Trim(args[0], "/")
		}
		return f.run(c.Context(), s, below, out)
	})
	return c
}

// run shows handlers until ctx ends, or once.
func (f *topFlags) run(ctx context.Context, s streams, below, format string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	now, err := f.look(ctx, below)
	if err != nil {
		return err
	}
	if len(now.handlers) == 0 && below != "" {
		if near := diag.Suggest(below, now.known); near != "" {
			return usagef("there is no handler below %s; did you mean %s?", below, near)
		}
		return usagef("there is no handler below %s", below)
	}
	if format == "json" {
		return f.stream(ctx, s, now, below)
	}
	screen := &screen{out: s.out, color: colorful(s.out)}
	if f.once || !terminal(s.out) {
		screen.width = columns(s)
		if _, err := s.out.Write(now.draw(screen)); err != nil || f.once {
			return err
		}
	}
	return f.live(ctx, s, now, below, screen)
}

// live draws the view anew as long as ctx goes on. On a terminal it has a screen of
// its own; elsewhere views follow each other.
func (f *topFlags) live(ctx context.Context, s streams, now topView, below string, screen *screen) error {
	onTerminal := terminal(s.out)
	if onTerminal {
		// The other screen, and no cursor: what was on the terminal comes back at the end.
		fmt.Fprint(s.out, "\x1b[?1049h\x1b[?25l")
		defer fmt.Fprint(s.out, "\x1b[?25h\x1b[?1049l")
	}
	for {
		var b bytes.Buffer
		if onTerminal {
			screen.width, screen.height = size(s)
			b.WriteString("\x1b[H")
			// Over the view before, each line cut off behind its end, and what is below cleared:
			// a screen that is cleared first flickers.
			b.Write(bytes.ReplaceAll(now.draw(screen), []byte("\n"), []byte("\x1b[K\n")))
			b.WriteString("\x1b[J")
			if _, err := s.out.Write(b.Bytes()); err != nil {
				return err
			}
		}
		if !sleep(ctx, f.every) {
			return nil
		}
		next, err := f.look(ctx, below)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			now.trouble = err.Error() // and the last view stays
			if !onTerminal {
				return err
			}
			continue
		}
		// A view replaces the trouble, too.
		now = next
		if !onTerminal {
			fmt.Fprintln(s.out)
			if _, err := s.out.Write(now.draw(screen)); err != nil {
				return err
			}
		}
	}
}

// stream prints JSON: with --once an indented document, without a line for each view.
func (f *topFlags) stream(ctx context.Context, s streams, now topView, below string) error {
	if f.once {
		return printJSON(s.out, map[string]any{"items": now.handlers, "next": nil})
	}
	for {
		if err := json.NewEncoder(s.out).Encode(map[string]any{"time": now.at, "items": now.handlers}); err != nil {
			return err
		}
		if !sleep(ctx, f.every) {
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

// look asks the nodes. Every node answers for all handlers of the definition, but counts only
// its own calls; so those of others are added by path. How many nodes there are, and what
// they work on, any of them knows from the store.
func (f *topFlags) look(ctx context.Context, below string) (topView, error) {
	v := topView{server: f.server, order: f.sort, at: time.Now()}
	for i, server := range append([]string{f.server}, f.others...) {
		client := client.New(server, cmp.Or(f.token, f.adminToken))
		handlers, err := client.Handlers(ctx)
		if err != nil {
			return v, fmt.Errorf("%s: %w", server, err)
		}
		if i > 0 {
			v.add(handlers)
			continue
		}
		v.known = prefixes(handlers)
		v.handlers = slices.DeleteFunc(handlers, func(h engine.HandlerInfo) bool {
			return below != "" && h.Path != below && !strings.HasPrefix(h.Path, below+"/")
		})
		if v.backlog, err = client.Backlog(ctx); err != nil {
			return v, fmt.Errorf("%s: %w", server, err)
		}
		nodes, err := client.Nodes(ctx)
		if err != nil {
			return v, fmt.Errorf("%s: %w", server, err)
		}
		for _, n := range nodes {
			if n.Alive {
				v.nodes++
				v.runs += n.Runs
			}
		}
	}
	v.asked = 1 + len(f.others)
	v.arrange()
	return v, nil
}

// prefixes lists all paths, those of pipelines and stages included.
func prefixes(handlers []engine.HandlerInfo) []string {
	var out []string
	for _, h := range handlers {
		for i, c := range h.Path {
			if c == '/' {
				out = append(out, h.Path[:i])
			}
		}
		out = append(out, h.Path)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// columns gives the width to draw in: that of the terminal, or what COLUMNS says;
// elsewhere 0, which cuts nothing.
func columns(s streams) int {
	if width, _ := size(s); width > 0 {
		return width
	}
	width, _ := strconv.Atoi(os.Getenv("COLUMNS"))
	return width
}

// size gives the size of the terminal; 0 without one.
func size(s streams) (width, height int) {
	f, ok := s.out.(*os.File)
	if !ok {
		return 0, 0
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}
