package versions

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/engine/api/cli"
	"procaas/engine/api/wire"
	"procaas/engine/canary"
	"procaas/engine/clock"
)

func deployCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "deploy PATH…",
		Short: "Send pipelines to a server, and make them current on all nodes",
		Long: `deploy checks pipelines here, and sends them with all files that they name to a server.
The server checks them again and keeps them in its store, so nodes need no files. The
rules are those of procaas release reload, and so are --canary, --shadow and --drop. A refused
set changes nothing. To deploy the same set again changes nothing, and to deploy an
older one is a rollback.

With --dry-run the server only says what would change, or why it would refuse it. With
--wait the command ends when all live nodes use the version. If a canary is rolled
back meanwhile, it exits with 1.`,
		Example: "  procaas release deploy flows/ --server https://procaas.example --dry-run\n" +
			"  procaas release deploy flows/ --canary 5% --wait --source \"$(git rev-parse --short HEAD)\"",
		Args: cobra.MinimumNArgs(1),
	}
	cli.ServerFlags(c)
	f := addRelease(c)
	from := c.Flags().String("source", "", "where the set comes from, such as a commit, for the audit")
	dry := c.Flags().Bool("dry-run", false, "change nothing, and show what would change")
	wait := c.Flags().Bool("wait", false, "end when all live nodes use the version, after a canary when it is promoted")
	return cli.Formatted(c, func(q *cli.Call) error {
		how, tried, err := f.read(c)
		if err != nil {
			return err
		}
		if *wait && (*dry || how.Shadow > 0) {
			return cli.Usagef("--wait: no node uses the version with --dry-run or --shadow")
		}
		d := wire.Deployment{Reload: how, Source: *from, DryRun: *dry}
		if d.Files, err = deployed(q); err != nil {
			return err
		}
		found, err := q.Deploy(q.Ctx, d)
		if *dry {
			tried = func(version string) string { return "would be " + version }
		}
		if err := showChange(q, found, err, tried); err != nil || !*wait {
			return err
		}
		return awaitVersion(q, found.New, how.Canary > 0)
	})
}

// deployed reads a set of pipelines, with all files that it names.
func deployed(q *cli.Call) (files []wire.DeployedFile, err error) {
	bundle, err := source.Bundle(q.Streams, q.Args, dsl.Options{})
	if err != nil {
		return nil, err
	}
	for _, f := range bundle.Files {
		files = append(files, wire.DeployedFile{Name: cmp.Or(f.ID, f.Name), Text: string(f.Data)})
	}
	return files, nil
}

// awaitVersion waits until all live nodes use a version for new events. The error is [cli.ErrFindings] if it is on trial and its
// canary ends otherwise.
func awaitVersion(q *cli.Call, version string, onTrial bool) error {
	for {
		if onTrial {
			t, err := q.Canary(q.Ctx)
			if err != nil {
				return err
			}
			if t.New != version || t.Ended != nil && t.Phase != canary.Promoted {
				fmt.Fprintf(q.Err, "procaas: %s is not used: %s\n", cli.Short(version), cmp.Or(t.Why, t.Phase))
				return cli.ErrFindings
			}
		}
		nodes, err := q.Nodes(q.Ctx)
		if err != nil {
			return err
		}
		alive, use := 0, 0
		for _, n := range nodes {
			if n.Alive {
				alive++
				if n.Bundle == version {
					use++
				}
			}
		}
		if use == alive && alive > 0 {
			fmt.Fprintf(q.Err, "%d of %d live nodes use %s\n", use, alive, cli.Short(version))
			return nil
		}
		if !clock.Pause(q.Ctx, 200*time.Millisecond) {
			return q.Ctx.Err()
		}
	}
}
