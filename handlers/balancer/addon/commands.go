package addon

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/engine/api/cli"
	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/plant"
	"procaas/handlers/balancer/remote"
)

// balancerCommand has the commands that show and control live clusters.
func balancerCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "balancer",
		Short: "See and control which worker of a cluster serves which partition",
		Long: `balancer shows the clusters of a server and controls which worker serves which
partition. You can ban a worker, drain a worker or a zone, pin a partition, freeze
the cluster, or let the balancer decide moves without making them. Levers take
effect at the next observation and survive restarts. The audit has them with their
reasons. A server with only one cluster needs no --cluster.`,
	}
	c.AddCommand(stepCommand(), balancerStatus(), balancerMoves(), balancerExplain(), balancerRecord(), leversCommand())
	return c
}

// leversCommand has the commands that pull and release levers.
func leversCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "lever",
		Short: "Ban, drain, pin, freeze, and take it back",
		Long: `lever controls which worker of a cluster may serve which partition. Each lever is pulled with a
reason. It holds for the time of --for, or until its opposite releases it.`,
	}
	c.AddCommand(
		leverCommand("ban WORKER", "Take all partitions off a worker at once, and give it none", clusters.LeverBan, false),
		leverCommand("unban WORKER", "Let a worker serve again", clusters.LeverBan, true),
		leverCommand("drain [WORKER]", "Empty a worker, or a zone, in good order", clusters.LeverDrain, false),
		leverCommand("undrain [WORKER]", "Let a worker, or a zone, fill again", clusters.LeverDrain, true),
		leverCommand("pin PARTITION WORKER", "Keep a partition on a worker while that is up", clusters.LeverPin, false),
		leverCommand("unpin PARTITION", "Let a partition move again", clusters.LeverPin, true),
		leverCommand("freeze", "Let nothing move at all", clusters.LeverFreeze, false),
		leverCommand("unfreeze", "Let partitions move again", clusters.LeverFreeze, true),
		leverCommand("dry-run", "Let moves be decided, and not made", clusters.LeverDryRun, false),
		leverCommand("wet-run", "Let moves be made again", clusters.LeverDryRun, true),
		leverCommand("evacuate", "Move partitions off silent workers even if half of the cluster is silent", clusters.LeverEvacuate, false),
		leverCommand("unevacuate", "Wait again if half of the cluster is silent", clusters.LeverEvacuate, true),
	)
	for _, lever := range c.Commands() {
		cli.Formerly(lever, "balancer "+lever.Name())
	}
	return c
}

// clusterFlag adds the flag that chooses a cluster.
func clusterFlag(c *cobra.Command) *string {
	cli.ServerFlags(c)
	return c.Flags().String("cluster", "", "id of the cluster; needed when the server has several")
}

// findCluster returns the chosen cluster, or the only one.
func findCluster(q *cli.Call, named string) (string, error) {
	if named != "" {
		return named, nil
	}
	all, err := remote.Clusters(q.Ctx, q.Client)
	if err != nil {
		return "", err
	}
	switch ids := cli.Names(all, func(c clusters.ClusterView) string { return c.ID }); len(ids) {
	case 0:
		return "", cli.Usagef("the server has no cluster: declare one below clusters:")
	case 1:
		return ids[0], nil
	default:
		return "", cli.Usagef("say which cluster: --cluster %s", strings.Join(ids, " or "))
	}
}

func leverCommand(use, short, lever string, release bool) *cobra.Command {
	name, rest, _ := strings.Cut(use, " ")
	// The example has an argument for each word of the usage, and the required reason.
	example := "  procaas balancer lever " + strings.NewReplacer("[WORKER]", "w3", "WORKER", "w3", "PARTITION", "17").Replace(use)
	if !release {
		example += ` --for 30m --reason "its disk is slow"`
	}
	c := &cobra.Command{
		Use: use, Short: short, Example: example, Args: cobra.ExactArgs(strings.Count(" "+rest, " ") * min(len(rest), 1)),
	}
	cluster := clusterFlag(c)
	reason := c.Flags().String("reason", "", "reason, for the audit and for colleagues")
	var zone, end string
	if lever == clusters.LeverDrain {
		c.Args = cobra.MaximumNArgs(1)
		c.Flags().StringVar(&zone, "zone", "", "a zone, instead of a worker")
	}
	if !release {
		c.Flags().StringVar(&end, "for", "", "ends by itself after this time, such as 30m or 2h (default: until somebody ends it)")
	}
	return cli.Shows(c, func(q *cli.Call) (levers clusters.Levers, err error) {
		pull := clusters.LeverPull{Lever: lever, Zone: zone, Partition: -1, Release: release}
		args := q.Args
		if lever == clusters.LeverPin {
			if pull.Partition, err = partition(args[0]); err != nil {
				return levers, err
			}
			args = args[1:]
		}
		if len(args) > 0 {
			pull.Worker = args[0]
		}
		switch {
		case lever == clusters.LeverDrain && (pull.Worker == "") == (zone == ""):
			return levers, cli.Usagef("%s takes a worker or --zone", name)
		case !release && *reason == "":
			return levers, cli.Usagef("%s wants --reason: all who look will wonder why", name)
		}
		if end != "" {
			until, err := cli.EndAfter(end)
			if err != nil {
				return levers, err
			}
			pull.Until = *until
		}
		id, err := findCluster(q, *cluster)
		if err != nil {
			return levers, err
		}
		return remote.PullLever(q.Ctx, q.Client, id, pull, *reason)
	}, func(q *cli.Call, levers clusters.Levers) error { return writeLevers(q, levers, "no lever is pulled\n") })
}

// partition parses the number of a partition.
func partition(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, cli.Usagef("want the number of a partition, have %q", text)
	}
	return n, nil
}

// writeLevers prints active levers.
func writeLevers(q *cli.Call, l clusters.Levers, none string) error {
	var rows []cli.Row
	line := func(what string, l clusters.Lever) {
		until := "-"
		if !l.Until.IsZero() {
			until = cli.Time(l.Until)
		}
		rows = append(rows, cli.Row{what, l.By, until, l.Reason})
	}
	if l.Frozen != nil {
		line("frozen", *l.Frozen)
	}
	if l.DryRun != nil {
		line("dry run", *l.DryRun)
	}
	if l.Evacuate != nil {
		line("evacuated when silent", *l.Evacuate)
	}
	for _, group := range []struct {
		what string
		of   map[string]clusters.Lever
	}{{"banned ", l.Banned}, {"draining ", l.Draining}, {"draining zone ", l.Zones}} {
		for _, id := range slices.Sorted(maps.Keys(group.of)) {
			line(group.what+id, group.of[id])
		}
	}
	for _, p := range slices.Sorted(maps.Keys(l.Pins)) {
		line(fmt.Sprintf("partition %d on %s", p, l.Pins[p].Worker), l.Pins[p])
	}
	if len(rows) == 0 {
		fmt.Fprint(q.Out, none)
	} else if err := cli.Table(q.Out, "LEVER\tBY\tUNTIL\tREASON", rows, func(r cli.Row) cli.Row { return r }); err != nil {
		return err
	}
	if l.Frozen != nil && len(rows) > 1 {
		fmt.Fprintln(q.Out, "nothing moves while the cluster is frozen, so what the other levers ask for waits for unfreeze")
	}
	for _, text := range l.Warnings {
		fmt.Fprintln(q.Out, "warning: "+text)
	}
	return nil
}

func balancerStatus() *cobra.Command {
	c := &cobra.Command{
		Use: "status", Short: "Show the clusters of a server: workers, their loads, and levers",
		Long: `status shows each cluster of a server as its balancer saw it last. It exits with
code 1 when there is an alert.`,
		Args: cobra.NoArgs,
	}
	cluster := clusterFlag(c)
	return cli.Formatted(c, func(q *cli.Call) (err error) {
		views := make([]clusters.ClusterView, 1)
		if *cluster != "" {
			views[0], err = remote.Cluster(q.Ctx, q.Client, *cluster)
		} else {
			views, err = remote.Clusters(q.Ctx, q.Client)
		}
		if err != nil {
			return err
		}
		err = q.Show(cli.Items(views), func() error { return writeClusters(q, views) })
		alert := slices.ContainsFunc(views, func(v clusters.ClusterView) bool { return len(v.Alerts) > 0 })
		return cmp.Or(err, cli.FindingsIf(alert))
	})
}

func writeClusters(q *cli.Call, views []clusters.ClusterView) error {
	if len(views) == 0 {
		fmt.Fprintln(q.Out, "the server has no cluster: declare one below clusters:")
	}
	for i, v := range views {
		if i > 0 {
			fmt.Fprintln(q.Out)
		}
		if err := writeCluster(q, v); err != nil {
			return err
		}
	}
	return nil
}

// writeCluster prints one cluster.
func writeCluster(q *cli.Call, v clusters.ClusterView) error {
	fmt.Fprintf(q.Out, "%s: %d partitions, policy %s, version %d\n", v.ID, v.Partitions, v.Policy, v.Version)
	switch {
	case v.Observed.IsZero() && v.Failure != nil:
		fmt.Fprintln(q.Out, "nobody has observed it yet")
	case v.Observed.IsZero():
		fmt.Fprintln(q.Out, "nobody has observed it yet: does a trigger start its pipeline?")
	default:
		fmt.Fprintf(q.Out, "Gini %.3f, %.0f requests and %.0f drops a second, %d moves so far", v.Gini, v.Requests, v.Drops, v.Moves)
		if v.BestLoad > 0 {
			fmt.Fprintf(q.Out, "; best reachable load %.2f times the mean", v.BestLoad)
		}
		fmt.Fprintln(q.Out)
	}
	if f := v.Failure; f != nil {
		fmt.Fprintf(q.Out, "the last tick failed at %s, in run %s: %s\n", f.At.Format(time.RFC3339), f.Run, f.Error)
	}
	for _, alert := range v.Alerts {
		fmt.Fprintln(q.Out, "alert: "+alert)
	}
	if v.Unassigned > 0 && v.Version > 0 {
		fmt.Fprintf(q.Out, "%d partitions are on no worker\n", v.Unassigned)
	}
	if len(v.Workers) > 0 {
		header := "WORKER\tZONE\tSTATE\tPARTITIONS\tWEIGHT\tREQUESTS\tDROPS\tBUSY\tPROBLEM"
		err := cli.Table(q.Out, header, v.Workers, func(x clusters.Seen) cli.Row {
			return cli.Row{
				x.ID, cli.Dash(x.Zone), workerState(x), x.Partitions, fmt.Sprintf("%.1f\t%.1f\t%.1f", x.Weight, x.Requests, x.Drops),
				cli.Percent(x.Busy), cli.Dash(x.Problem),
			}
		})
		if err != nil {
			return err
		}
	}
	if err := writeLevers(q, v.Levers, ""); err != nil {
		return err
	}
	for _, m := range v.Would {
		fmt.Fprintf(q.Out, "would move partition %d from %s to %s: %s\n", m.Partition, cli.Dash(m.From), m.To, m.Reason)
	}
	return nil
}

func workerState(x clusters.Seen) string {
	switch {
	case x.Banned:
		return "banned"
	case !x.Up:
		return "silent"
	case x.Draining:
		return "draining"
	}
	return "up"
}

func balancerMoves() *cobra.Command {
	c := &cobra.Command{Use: "moves", Short: "List the latest moves of partitions with their reasons, newest first", Args: cobra.NoArgs}
	cluster := clusterFlag(c)
	limit := c.Flags().Int("limit", 20, "the most moves, up to 500")
	return cli.Lists(c, func(q *cli.Call) ([]clusters.MoveLog, error) {
		id, err := findCluster(q, *cluster)
		if err != nil {
			return nil, err
		}
		return remote.Moves(q.Ctx, q.Client, id, *limit)
	}, "AT\tVERSION\tPARTITION\tFROM\tTO\tREASON", func(m clusters.MoveLog) cli.Row {
		return cli.Row{m.At, m.Version, m.Partition, cli.Dash(m.From), m.To, m.Reason}
	})
}

func balancerExplain() *cobra.Command {
	c := &cobra.Command{
		Use: "explain PARTITION", Short: "Say why a worker serves a partition", Example: "  procaas balancer explain 17",
		Args: cobra.ExactArgs(1),
	}
	cluster := clusterFlag(c)
	return cli.Shows(c, func(q *cli.Call) (v clusters.PartitionView, err error) {
		n, err := partition(q.Args[0])
		if err != nil {
			return v, err
		}
		id, err := findCluster(q, *cluster)
		if err != nil {
			return v, err
		}
		return remote.ExplainPartition(q.Ctx, q.Client, id, n)
	}, func(q *cli.Call, v clusters.PartitionView) error {
		fmt.Fprintf(q.Out, "partition %d of %s is on %s, with %.1f requests a "+
			"second\n", v.Partition, v.Cluster, cmp.Or(v.Worker, "no worker"),
			v.Weight)
		for _, n := range v.Notes {
			fmt.Fprintln(q.Out, "- "+n)
		}
		return cli.Table(q.Out, "MAY BE ON\tZONE\tSTATE\tWEIGHT", v.Holders, func(h clusters.Holder) cli.Row {
			state := workerState(clusters.Seen{Up: h.Up, Draining: h.Draining, Banned: h.Banned})
			if h.Holds {
				state += ", has it"
			}
			return cli.Row{h.Worker, cli.Dash(h.Zone), state, fmt.Sprintf("%.1f", h.Weight)}
		})
	})
}

func balancerRecord() *cobra.Command {
	c := &cobra.Command{
		Use:   "record [CLUSTER]",
		Short: "Write what the balancer saw lately, for simulate balancer --from",
		Long: `record writes the observations of a cluster as lines of JSON. The server keeps those
of the last 15 minutes. The first line has what a policy knows beforehand, and each
other line is one observation. For a longer recording, run record every few minutes
and append to one file. Duplicates count once.`,
		Example: "  procaas balancer record fanout > fanout.jsonl\n" +
			"  procaas simulate balancer --from fanout.jsonl --policy v4,v5",
		Args: cobra.MaximumNArgs(1),
	}
	cli.ServerFlags(c)
	return cli.Calls(c, func(q *cli.Call) error {
		cluster, err := findCluster(q, strings.Join(q.Args, ""))
		if err != nil {
			return err
		}
		recording, err := remote.Recording(q.Ctx, q.Client, cluster)
		if err != nil {
			return err
		}
		if len(recording.Observations) == 0 {
			return fmt.Errorf("nobody has observed cluster %s yet: procaas balancer status says why if its pipeline fails; does a trigger "+
				"start it?", cluster)
		}
		return plant.WriteRecording(q.Out, recording)
	})
}
