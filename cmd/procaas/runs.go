package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/engine/api/client"
	"procaas/engine/checkpoint"
	"procaas/engine/store"
)

func runsCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "runs",
		Short: "List, show, retry, cancel, make up and migrate runs of a server",
		Args:  onlySubcommands,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var f clientFlags
	f.add(c)
	c.AddCommand(runsList(s, &f), runsShow(s, &f), runsRetry(s, &f), runsCancel(s, &f), runsMakeUp(s, &f), runsMigrate(s, &f))
	return c
}

func runsList(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use:     "list",
		Short:   "List runs, newest first",
		Example: "  procaas runs list --status failed --pipeline new-order-created",
		Args:    cobra.NoArgs,
	}
	var filter store.RunFilter
	c.Flags().StringVar(&filter.Pipeline, "pipeline", "", "only runs of this pipeline")
	c.Flags().StringVar(&filter.Flow, "flow", "", "only runs of this flow")
	c.Flags().StringVar(&filter.Key, "key", "", "only runs of this key")
	c.Flags().StringVar((*string)(&filter.Status), "status", "", "only runs of this status: waiting, running, parked, succeeded, failed, "+
		"cancelled, ignored")
	c.Flags().StringVar(&filter.FailedPath, "handler", "", "only runs that failed in this handler, or below this pipeline or pipeline/stage")
	c.Flags().StringVar(&filter.LeftOut, "left-out", "", "only runs that went on without this handler, or one below this pipeline or "+
		"pipeline/stage, though its conditions did not say so")
	c.Flags().StringVar(&filter.ErrorClass, "error-class", "", "only runs that failed by timeout, connection, schema, a status such as "+
		"503, 4xx, 5xx, status or other; quarantined: nodes have died of them")
	c.Flags().IntVar(&filter.Limit, "limit", 20, "how many, at most 1000")
	c.Flags().StringVar(&filter.Cursor, "cursor", "", "go on where the page before ended")
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, _ []string, out string) error {
		if err := pageSize(filter.Limit); err != nil {
			return err
		}
		page, err := f.client().Runs(c.Context(), filter)
		if err != nil {
			return err
		}
		if out == "json" {
			return printJSON(s.out, page)
		}
		w := newTable(s.out, "RUN\tPIPELINE\tKEY\tSTATUS\tACCEPTED\tNOTE")
		for _, v := range page.Items {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", v.ID, v.Pipeline, v.Key, v.Status, v.Accepted.Local().Format(time.DateTime), runNote(v))
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if page.Next != nil {
			fmt.Fprintf(s.err, "more: --cursor %s\n", *page.Next)
		}
		return nil
	})
	return c
}

// runNote is the one thing that is worth telling about a run in a list.
func runNote(v checkpoint.RunView) string {
	switch {
	case v.FailedPath != "":
		return v.FailedPath
	case v.Blocked:
		return "waits for an earlier run of its key"
	case v.Due != nil:
		return "due " + v.Due.Local().Format(time.DateTime)
	default:
		return v.Reason
	}
}

func runsShow(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "show RUN", Short: "Show one run with its handlers and shared state", Args: cobra.ExactArgs(1),
		Example: "  procaas runs show 0199d3f0-6f6e-7c7b-9d0a-6a3c1c2f4e11",
	}
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, args []string, out string) error {
		view, err := f.client().Run(c.Context(), args[0])
		if err != nil {
			return err
		}
		return showRun(s, view, out)
	})
	return c
}

func showRun(s streams, v checkpoint.RunView, format string) error {
	if format == "json" {
		return printJSON(s.out, v)
	}
	fmt.Fprintf(s.out, "run       %s\npipeline  %s\nflow      %s\nkey       %s\nevent     %s %s\naccepted  %s\n",
		v.ID, v.Pipeline, v.Flow, v.Key, v.Event.Type, v.Event.ID, v.Accepted.Local().Format(time.RFC3339Nano))
	tree := progressTree{w: s.out, color: colorful(s.out)}
	tree.show(v)
	return oneRun{streams: s, format: format}.print(v)
}

func runsRetry(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use:     "retry [RUN…]",
		Short:   "Go on with failed runs from the handler that failed",
		Long:    "retry goes on with failed runs from the handler that failed." + redriveHelp,
		Example: "  procaas runs retry --handler new-order-created/notify --error-class 5xx --since 1h --dry-run",
		Args:    cobra.ArbitraryArgs,
	}
	var many redriveFlags
	many.add(c)
	reason := c.Flags().String("reason", "", "why, for the audit")
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return many.redrive(c.Context(), s, f.client(), client.RetryRuns, *reason)
		}
		return forEachRun(s, args, func(id string) (checkpoint.RunView, error) { return f.client().Retry(c.Context(), id, *reason) })
	}
	return c
}

func runsMakeUp(s streams, f *clientFlags) *cobra.Command {
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
	many.addPace(c)
	reason := flags.String("reason", "", "why, for the audit")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if strings.Count(many.filter.LeftOut, "/") != 2 {
			return usagef("--handler %q: want the path of the handler that was left out, such as new-order/notify/user", many.filter.LeftOut)
		}
		return many.redrive(c.Context(), s, f.client(), client.MakeUpRuns, *reason)
	}
	return c
}

func runsCancel(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "cancel [RUN…]",
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
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return many.redrive(c.Context(), s, f.client(), client.CancelRuns, *reason)
		}
		end := f.client().Cancel
		if many.abandon {
			end = f.client().Abandon
		}
		return forEachRun(s, args, func(id string) (checkpoint.RunView, error) { return end(c.Context(), id, *reason) })
	}
	return c
}

// statusOf says what a run is at, in a word or two.
func statusOf(v checkpoint.RunView) string {
	if v.Cancelling != "" {
		return "undoing"
	}
	return string(v.Status)
}

// forEachRun does something to each run and says what became of it; one that
// does not work does not keep the others from being tried. The gravest error
// decides how the command ends.
func forEachRun(s streams, ids []string, do func(string) (checkpoint.RunView, error)) error {
	var worst error
	for _, id := range ids {
		view, err := do(id)
		if err != nil {
			worst = graver(worst, err)
			fmt.Fprintf(s.err, "procaas: run %s: %v\n", id, err)
			continue
		}
		fmt.Fprintf(s.out, "%s %s\n", view.ID, statusOf(view))
	}
	return told(s, worst)
}
