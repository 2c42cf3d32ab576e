package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"procaas/engine"
)

// leverFlags are what the commands that look at a live cluster have in common.
type leverFlags struct {
	clientFlags
	cluster string
	reason  string
	until   string
	format  func() (string, error)
}

// addLevers adds the commands that look at live clusters, and steer them.
func addLevers(parent *cobra.Command, s streams) {
	parent.Long = `balancer shows the clusters of a server, and lets people steer who serves which
partition: ban a worker, drain a worker or a zone, pin a partition, freeze the
cluster, or let moves be decided and not made. Levers count from the next
observation on, survive restarts, and are audited with their reasons. A cluster
need not be named where the server has one only.`
	parent.AddCommand(
		balancerStatusCommand(s), balancerMovesCommand(s), balancerExplainCommand(s), balancerRecordCommand(s),
		leverCommand(s, "ban WORKER", "Take all partitions off a worker at once, and give it none", engine.LeverBan, false),
		leverCommand(s, "unban WORKER", "Let a worker serve again", engine.LeverBan, true),
		leverCommand(s, "drain [WORKER]", "Empty a worker, or a zone, in good order", engine.LeverDrain, false),
		leverCommand(s, "undrain [WORKER]", "Let a worker, or a zone, fill again", engine.LeverDrain, true),
		leverCommand(s, "pin PARTITION WORKER", "Keep a partition on a worker while that is up", engine.LeverPin, false),
		leverCommand(s, "unpin PARTITION", "Let a partition move again", engine.LeverPin, true),
		leverCommand(s, "freeze", "Let nothing move at all", engine.LeverFreeze, false),
		leverCommand(s, "unfreeze", "Let partitions move again", engine.LeverFreeze, true),
		leverCommand(s, "dry-run", "Let moves be decided, and not made", engine.LeverDryRun, false),
		leverCommand(s, "wet-run", "Let moves be made again", engine.LeverDryRun, true),
	)
}

func (f *leverFlags) add(c *cobra.Command) {
	f.clientFlags.add(c)
	c.Flags().StringVar(&f.cluster, "cluster", "", "id of the cluster; needed where the server has several")
	f.format = formatFlag(c, "text", "json")
}

// find gives the cluster that is meant.
func (f *leverFlags) find(ctx context.Context) (string, error) {
	if f.cluster != "" {
		return f.cluster, nil
	}
	clusters, err := f.client().Clusters(ctx)
	if err != nil {
		return "", err
	}
	var ids []string
	for _, c := range clusters {
		ids = append(ids, c.ID)
	}
	switch len(ids) {
	case 0:
		return "", usagef("the server has no cluster: declare one below clusters:")
	case 1:
		return ids[0], nil
	}
	return "", usagef("say which cluster: --cluster %s", strings.Join(ids, " or "))
}

func leverCommand(s streams, use, short, lever string, release bool) *cobra.Command {
	name, rest, _ := strings.Cut(use, " ")
	// The example has an argument for each word behind the name, and the reason that no lever is pulled without.
	example := "  procaas balancer " + strings.NewReplacer("[WORKER]", "w3", "WORKER", "w3", "PARTITION", "17").Replace(use)
	if !release {
		example += ` --for 30m --reason "its disk is slow"`
	}
	c := &cobra.Command{
		Use: use, Short: short, Example: example, Args: cobra.ExactArgs(strings.Count(" "+rest, " ") * min(len(rest), 1)),
	}
	var f leverFlags
	f.add(c)
	c.Flags().StringVar(&f.reason, "reason", "", "why, for the audit and for all who look")
	var zone string
	if lever == engine.LeverDrain {
		c.Args = cobra.MaximumNArgs(1)
		c.Flags().StringVar(&zone, "zone", "", "a zone, in place of a worker")
	}
	if !release {
		c.Flags().StringVar(&f.until, "for", "", "when it ends by itself, such as 30m or 2h; without, somebody has to end it")
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		out, err := f.format()
		if err != nil {
			return err
		}
		pull := engine.LeverPull{Lever: lever, Zone: zone, Partition: -1, Release: release}
		if lever == engine.LeverPin {
			if pull.Partition, err = strconv.Atoi(args[0]); err != nil || pull.Partition < 0 {
				return usagef("want the number of a partition, have %q", args[0])
			}
			args = args[1:]
		}
		if len(args) > 0 {
			pull.Worker = args[0]
		}
		switch {
		case lever == engine.LeverDrain && (pull.Worker == "") == (zone == ""):
			return usagef("%s takes a worker or --zone", name)
		case !release && f.reason == "":
			return usagef("%s wants --reason: all who look will wonder why", name)
		}
		if f.until != "" {
			end, err := endAfter(f.until)
			if err != nil {
				return err
			}
			pull.Until = *end
		}
		cluster, err := f.find(c.Context())
		if err != nil {
			return err
		}
		levers, err := f.client().PullLever(c.Context(), cluster, pull, f.reason)
		if err != nil {
			return err
		}
		if out == "json" {
			return printJSON(s.out, levers)
		}
		return writeLevers(s, levers, "no lever is pulled\n")
	}
	return c
}

// writeLevers lists the levers that hold.
func writeLevers(s streams, l engine.Levers, none string) error {
	w := newTable(s.out, "")
	n := 0
	line := func(what string, l engine.Lever) {
		if n++; n == 1 {
			fmt.Fprintln(w, "LEVER\tBY\tUNTIL\tREASON")
		}
		until := "-"
		if !l.Until.IsZero() {
			until = l.Until.Local().Format(time.DateTime)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", what, l.By, until, l.Reason)
	}
	if l.Frozen != nil {
		line("frozen", *l.Frozen)
	}
	if l.DryRun != nil {
		line("dry run", *l.DryRun)
	}
	for _, group := range []struct {
		what string
		of   map[string]engine.Lever
	}{{"banned ", l.Banned}, {"draining ", l.Draining}, {"draining zone ", l.Zones}} {
		for _, id := range sortedKeys(group.of) {
			line(group.what+id, group.of[id])
		}
	}
	for _, p := range sortedKeys(l.Pins) {
		line(fmt.Sprintf("partition %d on %s", p, l.Pins[p].Worker), l.Pins[p])
	}
	if n == 0 {
		fmt.Fprint(w, none)
	}
	if l.Frozen != nil && n > 1 {
		fmt.Fprintln(w, "nothing moves while the cluster is frozen, so what the other levers ask for waits for unfreeze")
	}
	for _, text := range l.Warnings {
		fmt.Fprintln(w, "warning: "+text)
	}
	return w.Flush()
}

func balancerStatusCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "status", Short: "Show the clusters of a server: workers, how even they are, and levers",
		Long: `status shows each cluster of a server as its balancer has seen it last. It ends with
exit code 1 when there is an alert.`,
		Args: cobra.NoArgs,
	}
	var f leverFlags
	f.add(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		out, err := f.format()
		if err != nil {
			return err
		}
		var views []engine.ClusterView
		if f.cluster != "" {
			v, err := f.client().Cluster(c.Context(), f.cluster)
			if err != nil {
				return err
			}
			views = []engine.ClusterView{v}
		} else if views, err = f.client().Clusters(c.Context()); err != nil {
			return err
		}
		switch {
		case out == "json":
			err = printJSON(s.out, map[string]any{"items": views, "next": nil})
		case len(views) == 0:
			fmt.Fprintln(s.out, "the server has no cluster: declare one below clusters:")
		}
		alerts := 0
		for i, v := range views {
			alerts += len(v.Alerts)
			if out == "json" {
				continue
			}
			if i > 0 {
				fmt.Fprintln(s.out)
			}
			if err := writeCluster(s, v); err != nil {
				return err
			}
		}
		if err == nil && alerts > 0 {
			err = errFindings
		}
		return err
	}
	return c
}

// writeCluster shows one cluster.
func writeCluster(s streams, v engine.ClusterView) error {
	fmt.Fprintf(s.out, "%s: %d partitions, policy %s, version %d\n", v.ID, v.Partitions, v.Policy, v.Version)
	if v.Observed.IsZero() {
		fmt.Fprintln(s.out, "nobody has observed it yet: does a trigger start its pipeline?")
	} else {
		fmt.Fprintf(s.out, "Gini %.3f, %.0f requests and %.0f drops a second, %d moves so far", v.Gini, v.Requests, v.Drops, v.Moves)
		if v.BestLoad > 0 {
			fmt.Fprintf(s.out, "; best reachable load %.2f times the mean", v.BestLoad)
		}
		fmt.Fprintln(s.out)
	}
	for _, alert := range v.Alerts {
		fmt.Fprintln(s.out, "alert: "+alert)
	}
	if v.Unassigned > 0 && v.Version > 0 {
		fmt.Fprintf(s.out, "%d partitions are on no worker\n", v.Unassigned)
	}
	w := newTable(s.out, "")
	if len(v.Workers) > 0 {
		fmt.Fprintln(w, "WORKER\tZONE\tSTATE\tPARTITIONS\tWEIGHT\tREQUESTS\tDROPS\tBUSY\tPROBLEM")
	}
	for _, x := range v.Workers {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%.1f\t%.1f\t%.1f\t%.0f %%\t%s\n",
			x.ID, dash(x.Zone), workerState(x), x.Partitions, x.Weight, x.Requests, x.Drops, 100*x.Busy, dash(x.Problem))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := writeLevers(s, v.Levers, ""); err != nil {
		return err
	}
	for _, m := range v.Would {
		fmt.Fprintf(s.out, "would move partition %d from %s to %s: %s\n", m.Partition, dash(m.From), m.To, m.Reason)
	}
	return nil
}

func workerState(x engine.Seen) string {
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

func balancerMovesCommand(s streams) *cobra.Command {
	c := &cobra.Command{Use: "moves", Short: "List the last moves of partitions with their reasons, the newest first", Args: cobra.NoArgs}
	var f leverFlags
	f.add(c)
	limit := c.Flags().Int("limit", 20, "the most moves, up to 500")
	c.RunE = func(c *cobra.Command, _ []string) error {
		out, err := f.format()
		if err != nil {
			return err
		}
		cluster, err := f.find(c.Context())
		if err != nil {
			return err
		}
		moves, err := f.client().Moves(c.Context(), cluster, *limit)
		if err != nil {
			return err
		}
		if out == "json" {
			return printJSON(s.out, map[string]any{"items": moves, "next": nil})
		}
		w := newTable(s.out, "AT\tVERSION\tPARTITION\tFROM\tTO\tREASON")
		for _, m := range moves {
			fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\n", m.At.Local().Format(time.DateTime), m.Version, m.Partition, dash(m.From), m.To, m.Reason)
		}
		return w.Flush()
	}
	return c
}

func balancerExplainCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "explain PARTITION", Short: "Tell why a partition is where it is", Example: "  procaas balancer explain 17",
		Args: cobra.ExactArgs(1),
	}
	var f leverFlags
	f.add(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		out, err := f.format()
		if err != nil {
			return err
		}
		partition, err := strconv.Atoi(args[0])
		if err != nil || partition < 0 {
			return usagef("want the number of a partition, have %q", args[0])
		}
		cluster, err := f.find(c.Context())
		if err != nil {
			return err
		}
		v, err := f.client().ExplainPartition(c.Context(), cluster, partition)
		if err != nil {
			return err
		}
		if out == "json" {
			return printJSON(s.out, v)
		}
		fmt.Fprintf(s.out, "partition %d of %s is on %s, with %.1f requests a second\n", v.Partition, v.Cluster, cmp.Or(v.Worker, "no worker"),
			v.Weight)
		for _, n := range v.Notes {
			fmt.Fprintln(s.out, "- "+n)
		}
		w := newTable(s.out, "MAY BE ON\tZONE\tSTATE\tWEIGHT")
		for _, h := range v.Holders {
			state := workerState(engine.Seen{Up: h.Up, Draining: h.Draining, Banned: h.Banned})
			if h.Holds {
				state += ", has it"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%.1f\n", h.Worker, dash(h.Zone), state, h.Weight)
		}
		return w.Flush()
	}
	return c
}

// sortedKeys lists the keys of a map in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
