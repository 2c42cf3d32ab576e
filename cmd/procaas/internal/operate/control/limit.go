package control

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/engine/api/cli"
	"procaas/engine/guard"
	"procaas/engine/stats"
)

func limitCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "limit [PATH [RATE | --remove]]",
		Short: "Limit the calls below a path, on all nodes together",
		Long: `limit limits how many calls below a path start, on all nodes together. Without a
rate it lists the limits that apply now, those of the files included.

Calls over the limit wait in order, or are left out with --over skip. If more calls
come than the limit allows, they wait longer and longer: with 20 calls/s and a limit
of 10/s, each minute adds a minute. Deadlines stand still while a call waits for a
limit that you set here, but not for a rate-limit of the files. Later events of the
keys wait, too.

Each node begins with an equal part of the rate. A node whose calls wait gets the
parts that other nodes do not use, within a second.

The parts never add up to more than the rate. Up to 10/s, a node spaces its calls
evenly. Above that, it may start the calls of a tenth of a second at once. In the
second in which parts move, calls that already hold a place still start: up to the
calls of one more second. A node that lends keeps a little more than it used in the
last two seconds.`,
		Example: `  procaas limit
  procaas limit new-order-created/notify 10/s --reason "push is slow"
  procaas limit new-order-created/notify --remove`,
		Args: cobra.MaximumNArgs(2),
	}
	cli.ServerFlags(c)
	over := c.Flags().String("over", "wait", "what a call over the limit does: wait or skip; critical handlers always wait")
	duration := c.Flags().String("for", "", "the limit ends after this time, such as 30m (default: never)")
	remove := c.Flags().Bool("remove", false, "remove the limit")
	set := changes(c, func(x *controlChange) (_ edit, err error) {
		if *remove == (len(x.Args) == 2) {
			return nil, cli.Usagef("limit takes a rate such as 10/s, or --remove; use: %s", c.UseLine())
		}
		if *remove {
			return func(now *guard.Control) { now.RateLimit, now.Over, now.LimitUntil = "", "", nil }, nil
		}
		var until *time.Time
		if *duration != "" {
			until, err = cli.EndAfter(*duration)
		}
		return func(now *guard.Control) { now.RateLimit, now.Over, now.LimitUntil = x.Args[1], *over, until }, err
	}).RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) < 2 && !*remove {
			return listLimits(cli.CallOf(c, args))
		}
		return set(c, args)
	}
	return c
}

// listLimits prints the limits of handlers below a path, or of all pipelines that have limits.
func listLimits(q *cli.Call) error {
	below := strings.Join(q.Args, "")
	if below == "list" { // as for switch and config
		below = ""
	}
	below, err := q.WholePath(below)
	if err != nil {
		return err
	}
	all, err := q.Handlers(q.Ctx)
	if err != nil {
		return err
	}
	known := cli.Paths(all)
	if below != "" && !slices.Contains(known, below) {
		return cli.Usagef("there is no path %q%s", below, cli.Meant(below, known, "; did you mean %q?", "; procaas top lists all handlers"))
	}
	limited := slices.DeleteFunc(all, func(h stats.HandlerInfo) bool {
		if below == "" {
			return len(limitsOf(&h)) == 0
		}
		return h.Path != below && !strings.HasPrefix(h.Path, below+"/")
	})
	return q.Show(cli.Items(limited), func() error {
		err := cli.Table(q.Out, "HANDLER\tLIMIT\tCALLS/S\tWAITING\tSET", limited, func(h stats.HandlerInfo) cli.Row {
			return cli.Row{
				h.Path, cli.Dash(h.RateLimit), cli.Rate(h.CallsPerS), cli.Count(h.Waiting + int64(h.Parked)),
				cli.Dash(strings.Join(limitsOf(&h), "; ")),
			}
		})
		if err == nil && len(limited) > 0 {
			fmt.Fprintf(q.Err, "LIMIT is the lowest rate that applies. A limit at a stage or a pipeline counts all calls below it. %s.\n",
				capital(sharedText(q)))
		}
		return err
	})
}

// limitsOf lists the limits of a handler, with who set them.
func limitsOf(h *stats.HandlerInfo) (out []string) {
	for _, effect := range h.Effective {
		if text, ok := strings.CutPrefix(effect, "limited to "); ok {
			out = append(out, text)
		}
	}
	return out
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// sharedText returns how nodes share a limit. If the caller may not list nodes, the text fits any number.
func sharedText(q *cli.Call) string {
	nodes, err := q.Nodes(q.Ctx)
	alive := 0
	for _, n := range nodes {
		if n.Alive {
			alive++
		}
	}
	switch {
	case err != nil:
		return "all nodes share a limit"
	case alive == 1:
		return "one node is alive, and has the whole limit"
	}
	return fmt.Sprintf("%d nodes share a limit; see procaas limit --help", alive)
}
