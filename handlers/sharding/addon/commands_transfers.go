package addon

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"procaas/engine/api/cli"
	"procaas/handlers/sharding/remote"
	"procaas/handlers/sharding/transfers"
)

// shardTransferCommands are the commands for transfers.
func shardTransferCommands() []*cobra.Command {
	return []*cobra.Command{
		shardTransfers(),
		shardOrder(transfers.OrderPause, "Pause a transfer before the map has switched", "Writers continue meanwhile. The source "+
			"keeps its log for the transfer."),
		shardOrder(transfers.OrderResume, "Resume a paused transfer", ""),
		shardOrder(transfers.OrderCancel, "Undo a transfer before the map has switched", "The source keeps the key, and the "+
			"target keeps nothing."),
		shardOrder(transfers.OrderRollback, "Move the key of a transfer back, after the map has switched",
			"rollback moves the key back with all that services wrote to the target. It works as\nlong as the transfer is observed."),
		shardOrder(transfers.OrderFinish, "End the time in which a transfer can be rolled back", ""),
	}
}

// shardTransfers lists the transfers that the map remembers. Runs are kept longer. It shows errors first, since
// a step that is being retried has its reason there.
func shardTransfers() *cobra.Command {
	c := &cobra.Command{
		Use: "transfers MAP", Short: "List the transfers of a map", Args: cobra.ExactArgs(1),
		Long: "transfers lists current transfers with their progress, and the latest ended ones.\nruns list --pipeline " +
			"shard-transfer lists all of them.",
		Example: "  procaas shard transfers mail",
	}
	return cli.Lists(c, func(q *cli.Call) ([]transfers.ShardTransfer, error) {
		return remote.ShardTransfers(q.Ctx, q.Client, q.Args[0])
	},
		"TRANSFER\tKEY\tFROM\tTO\tSTATE\tSTEP\tDONE\tROWS\tLAG\tWINDOW\tNOTE", func(t transfers.ShardTransfer) cli.Row {
			window := "-"
			if t.WindowMS > 0 {
				window = fmt.Sprintf("%.1f ms", t.WindowMS)
			}
			note := cmp.Or(t.Error, t.Waits)
			if note == "" && t.State == transfers.TransferObserving {
				note = "rollback until " + t.Observe.UTC().Format("15:04:05")
			}
			return cli.Row{
				t.ID, t.Key, t.Source, t.Target, t.State, t.Step, fmt.Sprintf("%.0f %%", t.Percent), t.Rows, fmt.Sprintf("%d "+
					"kB", t.Lag>>10),
				window, cli.Dash(note),
			}
		})
}

// shardOrder records an order, which the transfer follows at its next step. So the answer is the order, not its
// effect.
func shardOrder(want, short, long string) *cobra.Command {
	c := &cobra.Command{Use: want + " TRANSFER", Short: short, Long: long, Args: cobra.ExactArgs(1), Example: "  procaas shard " + want +
		" 06h01jrtqtpc963hto5ugvvbr8"}
	reason := c.Flags().String("reason", "", "reason, for colleagues")
	return cli.Shows(c, func(q *cli.Call) (transfers.ShardTransfer, error) {
		return remote.OrderShardTransfer(q.Ctx, q.Client, q.Args[0], remote.TransferOrderRequest{Want: want, Reason: *reason})
	}, func(q *cli.Call, t transfers.ShardTransfer) error {
		return q.Printf("transfer of key %s from %s to %s, which was %s, is told to %s\n", t.Key, t.Source, t.Target, t.State, want)
	})
}
