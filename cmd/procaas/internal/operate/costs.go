package operate

import (
	"fmt"

	"github.com/spf13/cobra"

	"procaas/dsl/diag"
	"procaas/engine/api/cli"
	"procaas/engine/api/ui/words"
	"procaas/engine/api/wire"
	"procaas/engine/stats"
	"procaas/engine/store"
)

func costsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "costs",
		Short: "Show what pipelines, owners and handlers cost, by day",
		Long: `costs shows what each pipeline cost on each day, on all nodes: calls and their time, the
size of requests and replies, processor time, and ended runs with what they left in the
store. With --by it shows owners or handlers instead. Days are those of UTC.

Processor time is that of the nodes, divided by calls, so it is an estimate. Nodes add to
the store once a minute and when they stop. A node that dies loses at most its last minute.
The store keeps 90 days.`,
		Example: "  procaas costs\n  procaas costs --by owner --days 30\n  procaas costs --by handler --days 1 --format json",
		Args:    cobra.NoArgs,
	}
	cli.ServerFlags(c)
	by := c.Flags().String("by", stats.ByPipeline, "what to show: pipeline, owner or handler")
	days := c.Flags().Int("days", 7, "how many days, with today, up to 90")
	limit := c.Flags().Int("limit", 100, "the most entries, up to 1000")
	return cli.Shows(c, func(q *cli.Call) (none wire.Page[stats.Cost], err error) {
		if err := cli.PageSize(*limit); err != nil {
			return none, err
		}
		switch *by {
		case stats.ByPipeline, stats.ByOwner, stats.ByHandler:
		default:
			return none, cli.Usagef("--by %s: want pipeline, owner or handler", *by)
		}
		if *days < 1 || *days > store.UsageKept {
			return none, cli.Usagef("--days %d: want 1 to %d, which the store keeps", *days, store.UsageKept)
		}
		all, err := q.Costs(q.Ctx, *by, *days, *limit)
		return cli.Items(all), err
	}, func(q *cli.Call, page wire.Page[stats.Cost]) error {
		if len(page.Items) == 0 {
			return q.Printf("The store has no costs of the last %s. Nodes add theirs once a minute, and when they stop.\n", diag.Plural(*days, "day"))
		}
		return cli.Table(q.Out, "DAY\tNAME\tCALLS\tCALL-TIME\tSENT\tREPLIES\tCPU\tRUNS\tSTORED", page.Items, func(r stats.Cost) cli.Row {
			return cli.Row{
				r.Day, r.Name, r.Calls, fmt.Sprintf("%.1fs", r.CallSeconds), words.Bytes(r.RequestBytes), words.Bytes(r.Bytes),
				fmt.Sprintf("%.1fs", r.CPUSeconds), r.Runs, words.Bytes(r.StoredBytes),
			}
		})
	})
}
