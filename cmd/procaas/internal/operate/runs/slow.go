package runs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/engine/api/cli"
	"procaas/engine/api/wire"
	"procaas/engine/stats"
)

func runsSlow() *cobra.Command {
	c := &cobra.Command{
		Use:   "slow [PIPELINE]",
		Short: "List the slowest runs, with the handler that cost the time",
		Long: `slow lists the slowest runs that succeeded, of a pipeline or of all. A run counts from
the acceptance of its event. TURN is how long it waited until it began: for earlier
events of its key, or for a node. HANDLER is the handler that took longest, with all its
attempts and the waits between them. TARGET is that of the pipeline, and whether the run
kept it.

Each node remembers the ten slowest runs of each pipeline in each five minutes of the last
two hours, and forgets them with a restart. Pass --node to add other nodes. Runs that have
not ended are not listed: see procaas runs list --status running and --status parked.`,
		Example: "  procaas runs slow --since 1h\n  procaas runs slow new-order-created --since 10m",
		Args:    cobra.MaximumNArgs(1),
	}
	since := c.Flags().String("since", "1h", "runs that ended since then: a time, or a duration before now such as 10m")
	limit := c.Flags().Int("limit", 20, "the most entries, up to 1000")
	others := c.Flags().StringSlice("node", nil, "address of another node of the same store, to add its runs (repeatable)")
	return cli.Shows(c, func(q *cli.Call) (none wire.Page[stats.SlowRun], err error) {
		if err := cli.PageSize(*limit); err != nil {
			return none, err
		}
		from, err := cli.Instant("--since", *since, time.Now())
		if err != nil {
			return none, err
		}
		if time.Since(from) > stats.SlowKept+time.Minute {
			return none, cli.Usagef("--since %s: want at most 2h, since nodes remember slow runs for two hours", *since)
		}
		pipeline := strings.Join(q.Args, "")
		var all []stats.SlowRun
		for _, server := range append([]string{q.Server}, *others...) {
			runs, err := q.At(server).SlowRuns(q.Ctx, pipeline, from, *limit)
			if err != nil {
				return none, fmt.Errorf("%s: %w", server, err)
			}
			all = append(all, runs...)
		}
		slices.SortStableFunc(all, func(a, b stats.SlowRun) int { return cmp.Compare(b.TookMS, a.TookMS) })
		return cli.Items(all[:min(len(all), *limit)]), nil
	}, func(q *cli.Call, page wire.Page[stats.SlowRun]) error {
		return cli.Table(q.Out, "RUN\tPIPELINE\tKEY\tTOOK\tTARGET\tTURN\tHANDLER\tTOOK\tATTEMPTS", page.Items, func(r stats.SlowRun) cli.Row {
			return cli.Row{r.Run, r.Pipeline, r.Key, tookText(r.TookMS), targetText(&r), tookText(r.TurnMS), cli.Dash(r.Handler), tookText(r.HandlerMS), r.Attempts}
		})
	})
}

// targetText says whether a run kept its target.
func targetText(r *stats.SlowRun) string {
	switch {
	case r.TargetMS == 0:
		return "-"
	case r.TookMS > r.TargetMS:
		return tookText(r.TargetMS) + " missed"
	}
	return tookText(r.TargetMS) + " kept"
}

// tookText formats milliseconds.
func tookText(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }
