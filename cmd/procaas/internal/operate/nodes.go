package operate

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/cli"
	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
	"procaas/engine/diff"
	"procaas/engine/records"
)

func nodesCommand() *cobra.Command {
	c := &cobra.Command{Use: "nodes", Short: "List the nodes of a server's store", Args: cobra.NoArgs}
	cli.ServerFlags(c)
	return cli.Lists(c, func(q *cli.Call) ([]records.NodeView, error) { return q.Nodes(q.Ctx) },
		"NODE\tNAME\tALIVE\tRUNS\tPIPELINES\tSTARTED\tSEEN", func(n records.NodeView) cli.Row {
			return cli.Row{n.Node, n.Name, n.Alive, n.Runs, cli.Dash(short(n.Bundle)), n.Started, n.Seen}
		})
}

// short is enough of a hash to tell definitions apart.
func short(hash string) string {
	const digits = 12
	return hash[:min(digits, len(hash))]
}

func reloadCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "reload",
		Short: "Make a server read its pipelines again, and show what changes",
		Long: `reload makes a server read its pipelines again. All nodes of its store use them for
new events. Runs that have begun keep their definition. The server refuses pipelines
with errors and lists all findings. It also refuses files without pipelines if it has
some now. A refused reload changes nothing.

The server also refuses to remove a pipeline while accepted events wait for it. Put
the pipeline back, wait until the events have run, or pass --drop to cancel them.`,
		Args: cobra.NoArgs,
	}
	cli.ServerFlags(c)
	reason := addReason(c)
	drop := c.Flags().Bool("drop", false, "cancel accepted events that wait for removed pipelines")
	return cli.Formatted(c, func(q *cli.Call) error {
		found, err := q.Reload(q.Ctx, wire.Reload{Reason: *reason, Drop: *drop})
		var refused *problem.Problem
		if errors.As(err, &refused) && (refused.Code == problem.InvalidPipelines || refused.Code == problem.EventsWait) {
			return showFindings(q, refused)
		}
		if err != nil {
			return err
		}
		return q.Show(found, func() error {
			if found.Old == found.New {
				return q.Printf("nothing has changed: %s\n", found.New)
			}
			fmt.Fprintf(q.Out, "before %s\nnow    %s\n", found.Old, found.New)
			return diff.Write(q.Out, found)
		})
	})
}

// showFindings tells why a server refuses pipelines.
func showFindings(q *cli.Call, refused *problem.Problem) error {
	err := q.Show(refused, func() error {
		for _, d := range refused.Diagnostics {
			fmt.Fprintf(q.Out, "%s:%d:%d: %s[%s]: %s\n", d.File, d.Line, d.Column, d.Severity, d.Code, d.Message)
			if d.Hint != "" {
				fmt.Fprintf(q.Out, "    help: %s\n", d.Hint)
			}
		}
		why := "the server refuses these pipelines; those before stay"
		if len(refused.Diagnostics) == 0 {
			why = refused.Error() // it is nothing that is wrong at one place of a file
		}
		fmt.Fprintln(q.Err, "procaas: "+why)
		return nil
	})
	if err != nil {
		return err
	}
	return cli.ErrFindings
}
