package operate

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/cli"
	"procaas/cmd/procaas/internal/runview"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
)

func runsCommand() *cobra.Command {
	return group(&cobra.Command{Use: "runs", Short: "List, show, retry, cancel, make up and migrate runs of a server"},
		runsList(), runsShow(), runsRetry(), runsCancel(), runsMakeUp(), runsMigrate())
}

func runsList() *cobra.Command {
	c := &cobra.Command{
		Use:     "list",
		Short:   "List runs, newest first",
		Example: "  procaas runs list --status failed --pipeline new-order-created",
		Args:    cobra.NoArgs,
	}
	var choice choiceFlags
	choice.add(c, "waiting, running, parked, succeeded, failed, cancelled, ignored")
	filter := &choice.filter
	c.Flags().StringVar(&filter.LeftOut, "left-out", "", "only runs that went on without this handler, or one below this pipeline or "+
		"pipeline/stage, though its conditions did not say so")
	c.Flags().IntVar(&filter.Limit, "limit", 20, "how many, at most 1000")
	c.Flags().StringVar(&filter.Cursor, "cursor", "", "go on where the page before ended")
	return cli.Shows(c, func(q *cli.Call) (page wire.Page[checkpoint.RunView], err error) {
		if err := pageSize(filter.Limit); err != nil {
			return page, err
		}
		if err := choice.when.read(&filter.Since, &filter.Until); err != nil {
			return page, err
		}
		page, err = q.Runs(q.Ctx, *filter)
		if err == nil && len(page.Items) == 0 {
			err = checkChoice(q, *filter)
		}
		return page, err
	}, func(q *cli.Call, page wire.Page[checkpoint.RunView]) error {
		err := cli.Table(q.Out, "RUN\tPIPELINE\tKEY\tSTATUS\tVERSION\tACCEPTED\tNOTE", page.Items, func(v checkpoint.RunView) cli.Row {
			return cli.Row{v.ID, cli.Dash(v.Pipeline), v.Key, v.Status, version(v), v.Accepted, runNote(v)}
		})
		if err == nil && page.Next != nil {
			fmt.Fprintf(q.Err, "more: --cursor %s\n", *page.Next)
		}
		return err
	})
}

// runNote is the one thing that is worth telling about a run in a list.
func runNote(v checkpoint.RunView) string {
	switch {
	case v.FailedPath != "":
		return v.FailedPath
	case v.Blocked:
		return "waits for an earlier run of its key"
	case v.Status == model.Parked:
		return cmp.Or(v.Reason, runview.Standstill(v))
	case v.Due != nil:
		return "due " + cli.Time(*v.Due)
	default:
		return v.Reason
	}
}

// version names the definition that a run goes by, in the first digits of its hash.
func version(v checkpoint.RunView) string {
	const digits = 12
	return cli.Dash(v.Bundle[:min(len(v.Bundle), digits)])
}

func runsShow() *cobra.Command {
	return cli.Shows(&cobra.Command{
		Use: "show RUN|KEY", Short: "Show one run, or the newest run of a key, with its handlers and shared state", Args: cobra.ExactArgs(1),
		Example: "  procaas runs show o-1\n  procaas runs show 0199d3f0-6f6e-7c7b-9d0a-6a3c1c2f4e11",
	}, func(q *cli.Call) (v checkpoint.RunView, err error) {
		err = q.ForRun(q.Args[0], nil, func(id string) error {
			v, err = q.Run(q.Ctx, id)
			return err
		})
		return v, err
	}, showRun)
}

func showRun(q *cli.Call, v checkpoint.RunView) error {
	fmt.Fprintf(q.Out, "run       %s\npipeline  %s\nversion   %s\nflow      %s\nkey       %s\nevent     %s %s\naccepted  %s\n",
		v.ID, v.Pipeline, version(v), v.Flow, v.Key, v.Event.Type, v.Event.ID, v.Accepted.Local().Format(time.RFC3339Nano))
	tree := runview.Tree{W: q.Out, Color: cli.Colorful(q.Out)}
	tree.Show(v)
	return runview.Print(q.Streams, v)
}

func runsRetry() *cobra.Command {
	c := &cobra.Command{
		Use:     "retry [RUN|KEY…]",
		Short:   "Go on with failed runs from the handler that failed",
		Long:    "retry goes on with failed runs from the handler that failed." + redriveHelp,
		Example: "  procaas runs retry --handler new-order-created/notify --error-class 5xx --since 1h --dry-run",
		Args:    cobra.ArbitraryArgs,
	}
	var many redriveFlags
	many.add(c)
	reason := addReason(c)
	return cli.Calls(c, func(q *cli.Call) error {
		if len(q.Args) == 0 {
			return many.redrive(q, client.RetryRuns, *reason)
		}
		return eachRun(q, retryable, func(id string) (checkpoint.RunView, error) { return q.Retry(q.Ctx, id, *reason) })
	})
}

func runsMakeUp() *cobra.Command {
	c := &cobra.Command{
		Use:   "make-up --handler PATH",
		Short: "Let runs that went on without a handler do it after all",
		Long: `make-up lets runs that have succeeded without a handler do it after all: it was
switched off or out of the flow, over its limit, had waited for its service for too
long, or had failed. procaas runs list --left-out PATH lists them.

Each run makes that call alone, with the Idempotency-Key that it would have had, or
had. The handler's conditions are asked again. What the call leaves goes to the run,
and not to the key. A handler inside of a call or a repeated stage, one that is
repeated for a list and one that awaits an event cannot be made up; such runs are
counted as moved on, and so are runs that have made it up meanwhile.` + redriveHelp,
		Example: "  procaas runs make-up --handler new-order-created/perform-notifications/notify-user --since 1h --dry-run",
		Args:    cobra.NoArgs,
	}
	var many redriveFlags
	flags := c.Flags()
	flags.StringVar(&many.filter.LeftOut, "handler", "", "the handler that was left out: pipeline/stage/handler")
	flags.StringVar(&many.filter.Flow, "flow", "", "runs of this flow")
	flags.StringVar(&many.filter.Key, "key", "", "runs of this key")
	many.addWhen(c)
	many.addPace(c)
	reason := addReason(c)
	return cli.Calls(c, func(q *cli.Call) error {
		if strings.Count(many.filter.LeftOut, "/") != 2 {
			return cli.Usagef("--handler %q: want the path of the handler that was left out, such as new-order/notify/user", many.filter.LeftOut)
		}
		return many.redrive(q, client.MakeUpRuns, *reason)
	})
}

func runsCancel() *cobra.Command {
	c := &cobra.Command{
		Use:   "cancel [RUN|KEY…]",
		Short: "End runs that have not ended, and let later events of their keys go on",
		Long: `cancel ends runs that have not ended, and failed ones, and lets later events of
their keys go on.

A run of a pipeline with compensations lets its calls under way end, undoes what it
has done, the last first, and ends then. With --no-compensate it ends as it is, even
one that undoes already.` + redriveHelp,
		Example: "  procaas runs cancel --pipeline new-order-created --until 24h --reason \"too late\" --dry-run",
		Args:    cobra.ArbitraryArgs,
	}
	var many redriveFlags
	many.add(c)
	reason := c.Flags().String("reason", "", "why, for the audit and the people who read the run later")
	c.Flags().BoolVar(&many.abandon, "no-compensate", false, "do not undo what the runs have done")
	return cli.Calls(c, func(q *cli.Call) error {
		if len(q.Args) == 0 {
			return many.redrive(q, client.CancelRuns, *reason)
		}
		end := q.Cancel
		if many.abandon {
			end = q.Abandon
		}
		return eachRun(q, unsettled, func(id string) (checkpoint.RunView, error) { return end(q.Ctx, id, *reason) })
	})
}

// statusOf says what a run is at, in a word or two.
func statusOf(v checkpoint.RunView) string {
	if v.Cancelling != "" {
		return "undoing"
	}
	return string(v.Status)
}

// each does something to each run; one that does not work does not keep the others from being
// tried. It gives the gravest error, which decides how the command ends.
func each(q *cli.Call, fits func(checkpoint.RunView) bool, do func(id string) error) (worst error) {
	for _, name := range q.Args {
		if err := q.ForRun(name, fits, do); err != nil {
			worst = cli.Graver(worst, err)
			fmt.Fprintf(q.Err, "procaas: run %s: %v\n", name, err)
		}
	}
	return worst
}

// retryable reports whether a run waits for somebody to retry it.
func retryable(v checkpoint.RunView) bool {
	return v.Status == model.Failed || v.Status == model.Parked
}

// unsettled reports whether a run has more to do, or would have after a retry.
func unsettled(v checkpoint.RunView) bool { return !v.Status.Ended() || v.Status == model.Failed }

// eachRun does something to each run and says what became of it.
func eachRun(q *cli.Call, fits func(checkpoint.RunView) bool, do func(id string) (checkpoint.RunView, error)) error {
	return cli.Told(q.Streams, each(q, fits, func(id string) error {
		view, err := do(id)
		if err != nil {
			return err
		}
		return q.Printf("%s %s\n", view.ID, statusOf(view))
	}))
}

func runsMigrate() *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate [RUN|KEY…]",
		Short: "Let runs in flight go on by the present pipelines",
		Long: `migrate lets runs that have begun by older pipelines, failed ones too, go on by
those that the server has now. A run that does not fit stays as it is, and the
reason is told; procaas diff --server tells it before the pipelines are there.
A run that a node works on is moved when its calls under way have ended.

With conditions in place of ids, all runs are taken that fulfil them, the first
accepted first. --dry-run tells which fit; --rate paces the rest.

Exit codes: 0 when all fit, 1 when some do not.`,
		Example: "  procaas runs migrate --pipeline new-order-created --dry-run",
		Args:    cobra.ArbitraryArgs,
	}
	var many redriveFlags
	many.add(c)
	reason := addReason(c)
	return cli.Calls(c, func(q *cli.Call) error {
		switch {
		case len(q.Args) == 0:
			return many.migrate(q, *reason)
		case many.dryRun:
			return fitRuns(q)
		}
		return eachRun(q, unsettled, func(id string) (checkpoint.RunView, error) { return q.Migrate(q.Ctx, id, *reason) })
	})
}

// fitRuns tells whether runs fit the present pipelines.
func fitRuns(q *cli.Call) error {
	report := runview.Fits{Streams: q.Streams}
	worst := each(q, unsettled, func(id string) error {
		fit, err := q.Fit(q.Ctx, id)
		if err == nil {
			report.Add(fit)
		}
		return err
	})
	fmt.Fprintln(q.Out, report.Sum())
	return cmp.Or(cli.Told(q.Streams, worst), cli.FindingsIf(report.Pinned > 0))
}
