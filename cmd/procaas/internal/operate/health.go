package operate

import (
	"github.com/spf13/cobra"

	"procaas/engine/api/cli"
	"procaas/engine/api/wire"
)

func healthCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "healthcheck",
		Short: "Say whether a node works, for containers and supervisors",
		Long: `healthcheck asks one node whether it accepts and runs events. It needs no token. Its exit
code is 0 if the node does, and 3 if it does not or cannot be reached.

With --live it asks only whether the process answers. A node that waits for its store
is alive, and a restart would not help it.

The certificate of an https server is not verified: the answer is no secret.`,
		Example: "  procaas healthcheck\n  procaas healthcheck --live --server http://127.0.0.1:8080",
		Args:    cobra.NoArgs,
	}
	cli.ServerFlags(c)
	live := c.Flags().Bool("live", false, "ask only whether the process answers")
	return cli.Shows(c, func(q *cli.Call) (wire.Health, error) { return q.Unverified().Health(q.Ctx, *live) }, func(q *cli.Call, h wire.Health) error {
		if h.Degraded != "" {
			return q.Printf("%s, but %s\n", h.Status, h.Degraded)
		}
		return q.Printf("%s\n", h.Status)
	})
}
