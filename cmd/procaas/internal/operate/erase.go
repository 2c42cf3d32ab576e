package operate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"procaas/engine/api/cli"
	"procaas/engine/api/wire"
	"procaas/engine/records"
)

func eraseCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "erase FLOW KEY",
		Short: "Erase all data of a key, and print a receipt",
		Long: `erase removes the data of a key from the store: its runs with their events, checkpoints
and recordings, its state, the ids of its events, and its tasks. FLOW is the pipeline if
it has no flow. --dry-run counts and changes nothing. It needs the token of an admin.

erase refuses a key with unfinished runs or tasks. --cancel cancels these first, with
their compensations, and waits up to 30 s for their end. An event that comes meanwhile
begins the key anew, and stays. After an error, repeat the command: it removes the rest.

The receipt has the hash of the key instead of the key. The audit keeps it, too. It
says where copies of the data may remain. --vacuum writes a SQLite file anew, which
takes seconds per gigabyte, and events wait meanwhile. The page operating/erase of
procaas docs lists all tables.`,
		Example: `  procaas erase taxi-order o-1 --dry-run
  procaas erase taxi-order o-1 --cancel --reason "request 4711" --format json > receipt.json`,
		Args: cobra.ExactArgs(2),
	}
	cli.ServerFlags(c)
	var e wire.Erasure
	flags := c.Flags()
	flags.BoolVar(&e.Preview, "dry-run", false, "change nothing, and count")
	flags.BoolVar(&e.Cancel, "cancel", false, "cancel what is unfinished, and wait for its end")
	flags.BoolVar(&e.Vacuum, "vacuum", false, "write a SQLite file anew")
	reason := cli.Reason(c)
	return cli.Shows(c, func(q *cli.Call) (records.ErasureReceipt, error) {
		e.Flow, e.Key, e.Reason = q.Args[0], q.Args[1], *reason
		return q.Erase(q.Ctx, e)
	}, showReceipt)
}

func showReceipt(q *cli.Call, r records.ErasureReceipt) error {
	verb, kinds := "erased", slices.Sorted(maps.Keys(r.Removed))
	if r.Preview {
		verb = "would erase"
	}
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%s %d", strings.ReplaceAll(kind, "_", " "), r.Removed[kind])
	}
	fmt.Fprintf(q.Out, "%s of flow %s: %s\nkey       sha256:%s\n", verb, r.Flow, cmp.Or(strings.Join(kinds, ", "), "nothing"), r.KeyHash)
	if r.Unfinished > 0 {
		fmt.Fprintf(q.Out, "unfinished %d: cancel them first, or use --cancel\n", r.Unfinished)
	}
	if r.Preview {
		return nil
	}
	fmt.Fprintf(q.Out, "cancelled %d\nby        %s\nended     %s\n", r.Cancelled, r.By, cli.Time(r.Ended))
	for _, what := range r.Remains {
		fmt.Fprintf(q.Out, "remains   %s\n", what)
	}
	cli.Outlook{Check: "procaas audit --kind erase"}.Tell(q)
	return nil
}
