// Package runs has the commands that submit events, and that show and change runs.
package runs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/runview"
	"procaas/dsl/expr"
	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
)

// Commands returns the commands.
func Commands() []*cobra.Command { return []*cobra.Command{submitCommand(), runsCommand()} }

func runsCommand() *cobra.Command {
	return cli.Group(&cobra.Command{Use: "runs", Short: "List, show, export, retry, cancel, rerun, make up and migrate runs of a server"},
		runsList(), runsSlow(), runsShow(), runsExport(), runsRetry(), runsCancel(), runsRerun(), runsMakeUp(), runsMigrate())
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
	c.Flags().StringVar(&filter.LeftOut, "left-out", "", "only runs that continued without this handler, or one below this "+
		"pipeline or pipeline/stage, for another reason than its conditions")
	addLeftBy(c, filter)
	c.Flags().IntVar(&filter.Limit, "limit", 20, "the most entries, up to 1000")
	c.Flags().StringVar(&filter.Cursor, "cursor", "", "continue after the previous page")
	return cli.Shows(c, func(q *cli.Call) (page wire.Page[checkpoint.RunView], err error) {
		if err := cli.PageSize(filter.Limit); err != nil {
			return page, err
		}
		if err := choice.read(q); err != nil {
			return page, err
		}
		page, err = q.Runs(q.Ctx, *filter)
		if err == nil && len(page.Items) == 0 {
			err = checkChoice(q, *filter)
		}
		return page, err
	}, func(q *cli.Call, page wire.Page[checkpoint.RunView]) error {
		err := cli.Table(q.Out, "RUN\tPIPELINE\tKEY\tSTATUS\tVERSION\tACCEPTED\tNOTE", page.Items, func(v checkpoint.RunView) cli.Row {
			note := strings.TrimSpace(runNote(v, filter.LeftOut) + " " + labelsText(v))
			return cli.Row{v.ID, cli.Dash(v.Pipeline), v.Key, v.Status, cli.Dash(cli.Short(v.Bundle)), v.Accepted, note}
		})
		if err == nil && page.Next != nil {
			fmt.Fprintf(q.Err, "more: --cursor %s\n", *page.Next)
		}
		return err
	})
}

// labelsText formats labels in brackets, or returns "".
func labelsText(v checkpoint.RunView) string {
	labels, err := model.FormatLabels(v.Labels)
	if labels == "" || err != nil {
		return ""
	}
	return "[" + labels + "]"
}

// runNote returns the most important fact about a run in a list. In a list of runs that left out a handler,
// or one below leftOut, it is why.
func runNote(v checkpoint.RunView, leftOut string) string {
	switch {
	case leftOut != "":
		return whyLeftOut(v, leftOut)
	case v.Status == model.Cancelled:
		return cmp.Or(v.Reason, v.FailedPath)
	case v.FailedPath != "":
		return v.FailedPath
	case v.Blocked:
		return "waits for an earlier run of its key"
	case v.Status == model.Parked:
		return cmp.Or(v.Reason, runview.Standstill(v))
	case v.Status == model.Waiting && v.ErrorClass == model.ClassKept && v.Due != nil:
		return v.Reason + ", until " + cli.Time(*v.Due)
	case v.Due != nil:
		return "due " + cli.Time(*v.Due)
	default:
		return v.Reason
	}
}

// whyLeftOut says why a run left out a handler, or those below a pipeline or stage.
func whyLeftOut(v checkpoint.RunView, path string) string {
	var why []string
	for _, h := range v.Handlers {
		below := strings.HasPrefix(h.Path, path+"/")
		if !below && h.Path != path || model.LeftBy(h.Outcome, h.Reason) == "" {
			continue
		}
		reason := h.Reason
		if h.Outcome == model.OutcomeFailed {
			reason = "failed: " + h.Error
		}
		if below {
			reason = h.Path + ": " + reason
		}
		if !slices.Contains(why, reason) {
			why = append(why, reason)
		}
	}
	return strings.Join(why, "; ")
}

func runsShow() *cobra.Command {
	return cli.Shows(&cobra.Command{
		Use: "show RUN|KEY", Short: "Show one run, or the newest run of a key, with its handlers and shared " +
			"state", Args: cobra.ExactArgs(1),
		Example: "  procaas runs show o-1\n  procaas runs show 06ct7s3fdpu7n78ad8u1obqe24",
	}, func(q *cli.Call) (v checkpoint.RunView, err error) {
		err = q.ForRun(q.Args[0], nil, func(id string) error {
			v, err = q.Run(q.Ctx, id)
			return err
		})
		return v, err
	}, showRun)
}

// mostPayload is how many characters of a payload are shown in the text of a run.
const mostPayload = 1000

func showRun(q *cli.Call, v checkpoint.RunView) error {
	fmt.Fprintf(q.Out, "run       %s\npipeline  %s\nversion   %s\nflow      %s\nkey       %s\nevent     %s %s\naccepted  %s\n",
		v.ID, v.Pipeline, cli.Dash(cli.Short(v.Bundle)), v.Flow, v.Key, v.Event.Type, v.Event.ID, v.Accepted.Local().Format(time.RFC3339Nano))
	if from := cmp.Or(v.Event.Origin, v.Event.Source); from != "" {
		fmt.Fprintf(q.Out, "from      %s\n", from)
	}
	if labels := labelsText(v); labels != "" {
		fmt.Fprintf(q.Out, "labels    %s\n", strings.Trim(labels, "[]"))
	}
	if v.Event.Payload != nil {
		fmt.Fprintf(q.Out, "payload   %s\n", expr.Shorten(cli.Compact(v.Event.Payload), mostPayload))
	}
	if v.RerunOf != "" {
		fmt.Fprintf(q.Out, "rerun of  %s%s%s\n", v.RerunOf, fromStage(v.RerunFrom), orderedBy(v.RerunBy, v.RerunReason))
	}
	if v.RerunAs != "" {
		fmt.Fprintf(q.Out, "rerun as  %s\n", v.RerunAs)
	}
	fmt.Fprint(q.Out, runview.Behind(q, v)+runview.Before(q, v))
	if v.Blocks {
		fmt.Fprintln(q.Out, "blocks    "+cmp.Or(runview.Followers(q, v), "later events of its key, until you retry or cancel it"))
	}
	for _, n := range v.NotUndone {
		fmt.Fprintf(q.Out, "not undone  %s: %s\n", n.Handler, n.Error)
	}
	tree := runview.Tree{W: q.Out, Color: cli.Colorful(q.Out)}
	tree.Show(v)
	return runview.Print(q.Streams, v)
}

func runsRetry() *cobra.Command {
	c := &cobra.Command{
		Use:     "retry [RUN|KEY…]",
		Short:   "Resume failed runs from the handler that failed",
		Long:    "retry resumes failed runs from the handler that failed." + redriveHelp,
		Example: "  procaas runs retry --handler new-order-created/notify --error-class 5xx --failed-since 1h --dry-run",
		Args:    cobra.ArbitraryArgs,
	}
	var many redriveFlags
	many.add(c)
	reason := cli.Reason(c)
	return cli.Formatted(c, func(q *cli.Call) error {
		if len(q.Args) == 0 {
			return many.redrive(q, client.RetryRuns, *reason)
		}
		return many.named(q, client.RetryRuns, retryable, func(id string) (checkpoint.RunView, error) { return q.Retry(q.Ctx, id, *reason) })
	})
}

func runsMakeUp() *cobra.Command {
	c := &cobra.Command{
		Use:   "make-up --handler PATH",
		Short: "Call a handler that runs left out",
		Long: `make-up calls a handler in succeeded runs that left it out. A run leaves a handler out
when it is switched off, out of the flow or over its limit. It also does so when the
service is down for too long, or when the handler fails. procaas runs list --left-out PATH
lists these runs. NOTE says why each of them left the handler out.

--left-by chooses by this reason. It is switch if an operator had switched the handler
off, and fallback if fallback had turned it off. It is limit if the handler was over its
rate limit, wait if its service was down for too long, and failed if all its attempts
failed.

Each run makes only this call, with the Idempotency-Key that the call had or would
have had. It evaluates the handler's conditions again. The result goes to the run,
and not to the shared state of the key. You cannot make up a handler inside a call or
a repeated stage, a handler with for-each, or one that awaits an event. make-up counts
such runs as moved on, and also runs that have made up the handler meanwhile. It refuses
to begin while the handler is still switched off or out of the flow.

A queued run leaves runs list --left-out at once, and comes back if its call is left
out again.` + redriveHelp,
		Example: "  procaas runs make-up --handler new-order-created/perform-notifications/notify-user --since 1h --dry-run",
		Args:    cobra.NoArgs,
	}
	var many redriveFlags
	flags := c.Flags()
	flags.StringVar(&many.filter.LeftOut, "handler", "", "the handler that was left out: pipeline/stage/handler")
	addLeftBy(c, &many.filter)
	flags.StringVar(&many.filter.Flow, "flow", "", "only runs of this flow")
	flags.StringVar(&many.filter.Key, "key", "", "only runs of this key")
	addVersion(c, &many.filter)
	many.addLabel(c)
	many.addWhen(c)
	many.addPace(c)
	reason := cli.Reason(c)
	return cli.Formatted(c, func(q *cli.Call) error {
		if err := many.read(q); err != nil {
			return err
		}
		if strings.Count(many.filter.LeftOut, "/") != 2 {
			return cli.Usagef("--handler %q: want the path of the handler that was left out, such as "+
				"new-order/notify/user", many.filter.LeftOut)
		}
		return many.redrive(q, client.MakeUpRuns, *reason)
	})
}

func runsCancel() *cobra.Command {
	c := &cobra.Command{
		Use:   "cancel [RUN|KEY…]",
		Short: "End unfinished runs, and unblock later events of their keys",
		Long: `cancel ends unfinished and failed runs, and unblocks later events of their keys.

If the pipeline has compensations, the run waits for its calls in flight. Then it
compensates what it has done, the latest first, and ends. With --no-compensate the run
ends as it is, even if it already compensates.` + redriveHelp,
		Example: "  procaas runs cancel --pipeline new-order-created --until 24h --reason \"too late\" --dry-run",
		Args:    cobra.ArbitraryArgs,
	}
	var many redriveFlags
	many.add(c)
	reason := c.Flags().String("reason", "", "reason, for the audit and for readers of the run")
	c.Flags().BoolVar(&many.abandon, "no-compensate", false, "do not compensate what the runs have done")
	return cli.Formatted(c, func(q *cli.Call) error {
		if len(q.Args) == 0 {
			return many.redrive(q, client.CancelRuns, *reason)
		}
		end := q.Cancel
		if many.abandon {
			end = q.Abandon
		}
		return many.named(q, client.CancelRuns, unsettled, func(id string) (checkpoint.RunView, error) { return end(q.Ctx, id, *reason) })
	})
}

// statusOf describes the state of a run in a word or two.
func statusOf(v checkpoint.RunView) string {
	if v.Cancelling != "" {
		return "undoing"
	}
	return string(v.Status)
}

// each calls do for each run, even after errors. It returns the gravest error, which decides about the exit
// code.
func each(q *cli.Call, fits func(checkpoint.RunView) bool, do func(id string) error) (worst error) {
	for _, name := range q.Args {
		if err := q.ForRun(name, fits, do); err != nil {
			worst = cli.Graver(worst, err)
			fmt.Fprintf(q.Err, "procaas: run %s: %v\n", name, err)
		}
	}
	return worst
}

// retryable reports whether a run can be retried.
func retryable(v checkpoint.RunView) bool {
	return v.Status == model.Failed || v.Status == model.Parked
}

// unsettled reports whether a run has more to do, now or after a retry.
func unsettled(v checkpoint.RunView) bool { return !v.Status.Ended() || v.Status == model.Failed }

// eachRun calls do for each run and prints the outcome.
func eachRun(q *cli.Call, fits func(checkpoint.RunView) bool, do func(id string) (checkpoint.RunView, error),
	told func(id string) cli.Outlook,
) error {
	views := []checkpoint.RunView{}
	worst := each(q, fits, func(id string) error {
		view, err := do(id)
		if err != nil {
			return err
		}
		views = append(views, view)
		if q.JSON() {
			return nil
		}
		return q.Printf("%s %s\n", view.ID, statusOf(view))
	})
	if q.JSON() {
		worst = cmp.Or(worst, q.PrintJSON(cli.Items(views)))
	}
	if len(views) > 0 {
		told(views[0].ID).Tell(q)
	}
	return cli.Told(q.Streams, worst)
}

func runsMigrate() *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate [RUN|KEY…]",
		Short: "Move runs in flight to the present pipelines",
		Long: `migrate moves runs that began with older pipelines to the present pipelines of the
server, including failed runs. A run that does not fit stays as it is, and migrate
prints the reason. procaas diff --server shows this before you deploy the pipelines.
If a node works on a run, the run moves after its calls in flight.

Conditions instead of ids choose all runs that match, oldest first. --dry-run lists
them, up to 20 that fit and 20 that do not. --rate sets the pace.

Exit codes: 0 when all fit, 1 when some do not.`,
		Example: "  procaas runs migrate --pipeline new-order-created --dry-run",
		Args:    cobra.ArbitraryArgs,
	}
	var many redriveFlags
	many.add(c)
	reason := cli.Reason(c)
	return cli.Calls(c, func(q *cli.Call) error {
		switch {
		case len(q.Args) == 0:
			return many.migrate(q, *reason)
		case many.dryRun:
			return fitRuns(q)
		}
		return many.named(q, "migrate", unsettled, func(id string) (checkpoint.RunView, error) { return q.Migrate(q.Ctx, id, *reason) })
	})
}

// fitRuns prints whether runs fit the current definition.
func fitRuns(q *cli.Call) error {
	report := runview.Fits{Streams: q.Streams, Lists: true}
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
