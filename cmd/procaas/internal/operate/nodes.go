package operate

import (
	"github.com/spf13/cobra"

	"procaas/engine/api/cli"
	"procaas/engine/api/ui/words"
	"procaas/engine/records"
)

func nodesCommand() *cobra.Command {
	c := &cobra.Command{Use: "nodes", Short: "List the nodes of a server's store", Args: cobra.NoArgs}
	cli.ServerFlags(c)
	return cli.Lists(c, func(q *cli.Call) ([]records.NodeView, error) { return q.Nodes(q.Ctx) },
		"NODE\tNAME\tALIVE\tRUNS\tMEMORY\tPIPELINES\tSTARTED\tSEEN", func(n records.NodeView) cli.Row {
			memory := ""
			if m := n.Memory; m != nil {
				memory = words.Bytes(m.Used) + " of " + words.Bytes(m.Budget)
			}
			return cli.Row{n.Node, n.Name, n.Alive, n.Runs, cli.Dash(memory), cli.Dash(cli.Short(n.Bundle)), n.Started, n.Seen}
		})
}
