package runs

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"procaas/dsl/diag"
	"procaas/engine/api/cli"
	"procaas/engine/checkpoint"
	"procaas/engine/intake"
)

func runsRerun() *cobra.Command {
	c := &cobra.Command{
		Use:   "rerun RUN|KEY…",
		Short: "Run ended runs again, as new runs",
		Long: `rerun starts a new run with the event of a run that has ended: succeeded, failed,
cancelled or ignored. The new run has its own id and its own idempotency keys, so
services do its calls again. It uses the present pipelines, and waits behind the other
runs of its key. procaas runs show links the two runs.

With --from, the new run starts at that stage. Outcomes of earlier stages come from the
old run, and so does the shared state before the stage. Names that the old run has saved
to its key are read from the key. If the new run compensates, it compensates only its
own calls.

The server refuses to rerun a failed run that blocks its key: use procaas runs retry. It
also refuses a run whose last rerun has not ended, and --from if the state before the
stage is not known or does not fit the present pipelines. --dry-run shows what would
happen.`,
		Example: "  procaas runs rerun o-1 --from charge --reason \"refunded by mistake\" --dry-run",
		Args:    cobra.MinimumNArgs(1),
	}
	from := c.Flags().String("from", "", "start at this stage, and keep what the run did before")
	dryRun := c.Flags().Bool("dry-run", false, "change nothing, and show what would happen")
	reason := cli.Reason(c)
	ended := func(v checkpoint.RunView) bool { return v.Status.Ended() }
	return cli.Formatted(c, func(q *cli.Call) error {
		if !*dryRun {
			return eachRun(q, ended, func(id string) (checkpoint.RunView, error) { return q.Rerun(q.Ctx, id, *from, *reason) },
				func(id string) cli.Outlook {
					return cli.Outlook{Now: "each waits for its turn in its key", Check: "procaas runs show " + id}
				})
		}
		plans := []intake.RerunPlan{}
		worst := each(q, ended, func(id string) error {
			p, err := q.RerunPlan(q.Ctx, id, *from)
			if err != nil {
				return err
			}
			plans = append(plans, p)
			if q.JSON() {
				return nil
			}
			return showRerun(q, p)
		})
		if q.JSON() {
			worst = cmp.Or(worst, q.PrintJSON(cli.Items(plans)))
		}
		return cli.Told(q.Streams, worst)
	})
}

// showRerun prints what a rerun would do.
func showRerun(q *cli.Call, p intake.RerunPlan) error {
	fmt.Fprintf(q.Out, "%s would run again%s: pipeline %s, key %s, version %s", p.Of, fromStage(p.Stage), p.Pipeline, p.Key, cli.Short(p.Bundle))
	if p.Was != p.Bundle {
		fmt.Fprintf(q.Out, " (it ran by %s)", cli.Dash(cli.Short(p.Was)))
	}
	fmt.Fprintln(q.Out)
	for _, path := range p.Kept {
		fmt.Fprintf(q.Out, "  keeps the outcome of %s\n", path)
	}
	if p.Ahead > 0 {
		fmt.Fprintf(q.Out, "  waits behind %s of its key\n", diag.Plural(p.Ahead, "run"))
	}
	if p.Behind != "" {
		fmt.Fprintf(q.Out, "  waits until run %s, which blocks its key, is retried or cancelled\n", p.Behind)
	}
	return nil
}

func fromStage(stage string) string {
	if stage == "" {
		return ""
	}
	return " from stage " + stage
}

// orderedBy formats who ordered something, and why.
func orderedBy(who, why string) string {
	switch {
	case who == "" && why == "":
		return ""
	case why == "":
		return " (by " + who + ")"
	}
	return fmt.Sprintf(" (by %s: %s)", cmp.Or(who, "nobody"), why)
}
