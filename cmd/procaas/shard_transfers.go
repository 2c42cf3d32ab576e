package main

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"procaas/engine"
	"procaas/engine/api/wire"
)

// shardTransferCommands look after the transfers that shard move begins.
func shardTransferCommands(s streams, f *clientFlags) []*cobra.Command {
	return []*cobra.Command{
		shardTransfers(s, f),
		shardOrder(s, f, engine.OrderPause, "Pause a transfer before the map has switched", "Nothing is frozen meanwhile; the source keeps "+
			"its log for it."),
		shardOrder(s, f, engine.OrderResume, "Let a paused transfer go on", ""),
		shardOrder(s, f, engine.OrderCancel, "Undo a transfer before the map has switched", "The source keeps the key, and the target nothing."),
		shardOrder(s, f, engine.OrderRollback, "Give the key of a transfer back, after the map has switched",
			"What was written to the target goes back as well. It is possible while the transfer\nis observed."),
		shardOrder(s, f, engine.OrderFinish, "End the time in which a transfer may be rolled back", ""),
	}
}

// shardTransfers lists what the map remembers; runs remember longer.
func shardTransfers(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "transfers MAP", Short: "List the transfers of a map", Args: cobra.ExactArgs(1),
		Long:    "transfers lists the keys that move, how far they are, and the latest that have moved.\nruns list --pipeline shard-transfer lists all that ever did.",
		Example: "  procaas shard transfers mail",
	}
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, args []string, out string) error {
		all, err := f.client().ShardTransfers(c.Context(), args[0])
		if err != nil {
			return err
		}
		if out == "json" {
			return printJSON(s.out, map[string]any{"items": all, "next": nil})
		}
		return printTransfers(s.out, all)
	})
	return c
}

// printTransfers shows the error of a transfer before anything else: a step that is tried again says there why.
func printTransfers(out io.Writer, all []engine.ShardTransfer) error {
	w := newTable(out, "TRANSFER\tKEY\tFROM\tTO\tSTATE\tSTEP\tDONE\tROWS\tLAG\tWINDOW\tNOTE")
	for _, t := range all {
		window := "-"
		if t.WindowMS > 0 {
			window = fmt.Sprintf("%.1f ms", t.WindowMS)
		}
		note := cmp.Or(t.Error, t.Waits)
		if note == "" && t.State == engine.TransferObserving {
			note = "rollback until " + t.Observe.UTC().Format("15:04:05")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%.0f %%\t%d\t%d kB\t%s\t%s\n", t.ID, t.Key, t.Source, t.Target, t.State, t.Step, t.Percent,
			t.Rows, t.Lag>>10, window, dash(note))
	}
	return w.Flush()
}

// shardOrder leaves a wish with a transfer, which follows it at its next step: so the answer
// says what it was told, and not what it did.
func shardOrder(s streams, f *clientFlags, want, short, long string) *cobra.Command {
	c := &cobra.Command{Use: want + " TRANSFER", Short: short, Long: long, Args: cobra.ExactArgs(1), Example: "  procaas shard " + want +
		" 01a200cf_7dd7_72c4_9871_ee0be87febda"}
	reason := c.Flags().String("reason", "", "why, for all who look")
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, args []string, out string) error {
		t, err := f.client().OrderShardTransfer(c.Context(), args[0], wire.TransferOrderRequest{Want: want, Reason: *reason})
		if err != nil {
			return err
		}
		if out == "json" {
			return printJSON(s.out, t)
		}
		fmt.Fprintf(s.out, "transfer of key %s from %s to %s, which was %s, is told to %s\n", t.Key, t.Source, t.Target, t.State, want)
		return nil
	})
	return c
}
