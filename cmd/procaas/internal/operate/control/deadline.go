package control

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/dsl/datum"
	"procaas/engine/api/cli"
	"procaas/engine/guard"
	"procaas/engine/steering"
)

func deadlineCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "deadline [PATH [DURATION | --remove]]",
		Short: "Bound the time of handlers below a path for a while, on all nodes",
		Long: `deadline bounds how long each handler below a path may take, all its attempts together.
Use it when a service has become slow, and runs should not wait for it. It acts as the
field deadline does: a call ends when the time is over, and its run continues without the
handler. The shorter one of this deadline and that of the file holds.

It takes effect within a second for calls that start from then on. Calls in flight
keep their time. It ends by itself, after an hour by default, survives restarts, and is
audited. Waits for a time or an event are not bounded.

Critical handlers are not bounded, since their runs would fail. With --force they are.
--dry-run shows which calls of the last ten minutes took longer. Without a duration,
deadline lists what is set.`,
		Example: `  procaas deadline
  procaas deadline new-order-created/notify 300ms --dry-run
  procaas deadline new-order-created/notify 300ms --for 1h --reason "push is slow"
  procaas deadline new-order-created/notify --remove`,
		Args: cobra.MaximumNArgs(2),
	}
	cli.ServerFlags(c)
	duration := c.Flags().String("for", "1h", "the deadline ends after this time, such as 30m or 2h")
	remove := c.Flags().Bool("remove", false, "remove the deadline")
	force := c.Flags().Bool("force", false, "also bound critical handlers: their runs fail at the deadline")
	set := changes(c, func(x *controlChange) (edit, error) {
		if *remove == (len(x.Args) == 2) {
			return nil, cli.Usagef("deadline takes a duration such as 300ms, or --remove; use: %s", c.UseLine())
		}
		if *remove {
			return func(now *guard.Control) { now.Deadline, now.DeadlineForce, now.DeadlineUntil = "", false, nil }, nil
		}
		until, err := cli.EndAfter(*duration)
		return func(now *guard.Control) {
			now.Deadline, now.DeadlineForce, now.DeadlineUntil = x.Args[1], *force, until
		}, err
	}).RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) < 2 && !*remove {
			return listDeadlines(cli.CallOf(c, args))
		}
		return set(c, args)
	}
	return c
}

// listDeadlines prints the deadlines that operators have set, or those below a path.
func listDeadlines(q *cli.Call) error {
	below, err := q.WholePath(strings.Join(q.Args, ""))
	if err != nil {
		return err
	}
	all, err := q.Controls(q.Ctx)
	if err != nil {
		return err
	}
	set := slices.DeleteFunc(all, func(v guard.ControlView) bool {
		return v.Deadline == "" || v.Expired || below != "" && v.Path != below && !strings.HasPrefix(v.Path, below+"/")
	})
	return q.Show(cli.Items(set), func() error {
		parts := slices.DeleteFunc(guard.Apart(set, time.Now()), func(v guard.ControlView) bool { return v.Deadline == "" })
		return cli.Table(q.Out, "PATH\tDEADLINE\tCRITICAL\tBY\tREASON", parts, func(v guard.ControlView) cli.Row {
			critical := "-"
			if v.DeadlineForce {
				critical = "too"
			}
			return cli.Row{v.Path, v.Deadline + cli.Until(v.DeadlineUntil), critical, v.By, v.Reason}
		})
	})
}

// cutText says how many calls a deadline would have cut, or nothing if none is set.
func cutText(e *steering.ControlEffect) string {
	most, err := datum.ParseDuration(e.Control.Deadline)
	switch {
	case err != nil:
		return ""
	case e.Ended == 0:
		return "no call ended in the last ten minutes (this node)"
	}
	return fmt.Sprintf("about %d of %d calls of the last ten minutes took longer than %s (this node)", e.Slower, e.Ended, most)
}
