package addon

import (
	"context"

	"github.com/spf13/cobra"

	"procaas/engine/addon"
	"procaas/engine/api/cli"
	"procaas/handlers/sharding/demo"
)

const demoShardsHelp = `demo shards shows users that move from one shard to another while services write to them.
It starts two PostgreSQL servers, which are the shards, and two nodes. First one user moves,
then all others leave their shard. Meanwhile a node is killed, and the other one continues
its moves. Each command is printed with its second.

At the end, the demo looks for every letter that was written. The exit code is 0 only if all
users have moved, no write has failed, and no letter is lost or double.

The programs of PostgreSQL must be on this machine. Nothing of its own servers is touched.`

// demoShards makes the command of the demo.
func demoShards() addon.Demo {
	c := &cobra.Command{
		Use:     "shards",
		Short:   "See users move between shards while they are written to",
		Long:    demoShardsHelp,
		Example: "  procaas demo shards\n  procaas demo shards --users 100 --rate 500 --format json",
		Args:    cobra.NoArgs,
	}
	var o demo.Options
	flags := c.Flags()
	flags.IntVar(&o.Users, "users", 24, "number of users")
	flags.Float64Var(&o.Rate, "rate", 200, "letters written per second")
	format := cli.Format(c, "text", "json")
	return addon.Demo{Command: c, Run: func(ctx context.Context, s cli.Streams, open addon.OpenDemo) error {
		o.Format, o.Token = *format, c.Flag("admin-token").Value.String()
		switch {
		case c.Flags().Changed("store"):
			return cli.Usagef("demo shards has a store of its own: leave --store out")
		case c.Flags().Changed("admin-token-file"):
			return cli.Usagef("demo shards calls its node with the admin token: give it by --admin-token")
		case o.Users < 4 || o.Users > 1000:
			return cli.Usagef("--users %d: want 4 to 1000", o.Users)
		case !(o.Rate > 0) || o.Rate > 5000:
			return cli.Usagef("--rate %v: want a number above 0, at most 5000", o.Rate)
		}
		return demo.Run(ctx, s, o, open)
	}}
}
