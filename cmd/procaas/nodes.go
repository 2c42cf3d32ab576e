package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"procaas/engine"
	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
)

func nodesCommand(s streams) *cobra.Command {
	c := &cobra.Command{Use: "nodes", Short: "List the nodes of a server's store", Args: cobra.NoArgs}
	var f clientFlags
	f.add(c)
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, _ []string, out string) error {
		nodes, err := f.client().Nodes(c.Context())
		if err != nil {
			return err
		}
		if out == "json" {
			return printJSON(s.out, map[string]any{"items": nodes, "next": nil})
		}
		w := newTable(s.out, "NODE\tNAME\tALIVE\tRUNS\tPIPELINES\tSTARTED\tSEEN")
		for _, n := range nodes {
			fmt.Fprintf(w, "%d\t%s\t%v\t%d\t%s\t%s\t%s\n", n.Node, n.Name, n.Alive, n.Runs, dash(short(n.Bundle)),
				n.Started.Local().Format(time.DateTime), n.Seen.Local().Format(time.DateTime))
		}
		return w.Flush()
	})
	return c
}

// short is enough of a hash to tell definitions apart.
func short(hash string) string {
	const digits = 12
	return hash[:min(digits, len(hash))]
}

func reloadCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "reload",
		Short: "Let a server read its pipelines again, and tell what that changes",
		Long: `reload makes a server read the pipelines that it was started with again. New
events are served by them on all nodes of its store; runs that have begun keep
their definition. Pipelines with errors are refused with all findings, and so are
files that have none while the server has some; then nothing changes. The same goes
for pipelines that are gone while accepted events wait for them: put them back, wait
until the events have run, or give the events up with --drop, which cancels them.`,
		Args: cobra.NoArgs,
	}
	var f clientFlags
	f.add(c)
	reason := c.Flags().String("reason", "", "why, for the audit")
	drop := c.Flags().Bool("drop", false, "cancel accepted events that wait for pipelines that are gone, instead of refusing")
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, _ []string, out string) error {
		diff, err := f.client().Reload(c.Context(), wire.Reload{Reason: *reason, Drop: *drop})
		var refused *problem.Problem
		if errors.As(err, &refused) && (refused.Code == problem.InvalidPipelines || refused.Code == problem.EventsWait) {
			return showFindings(s, refused, out)
		}
		if err != nil {
			return err
		}
		if out == "json" {
			return printJSON(s.out, diff)
		}
		if diff.Old == diff.New {
			fmt.Fprintf(s.out, "nothing has changed: %s\n", diff.New)
			return nil
		}
		fmt.Fprintf(s.out, "before %s\nnow    %s\n", diff.Old, diff.New)
		return engine.WriteDiff(s.out, diff)
	})
	return c
}

// showFindings tells why a server refuses pipelines.
func showFindings(s streams, refused *problem.Problem, format string) error {
	if format == "json" {
		if err := printJSON(s.out, refused); err != nil {
			return err
		}
		return errFindings
	}
	for _, d := range refused.Diagnostics {
		fmt.Fprintf(s.out, "%s:%d:%d: %s[%s]: %s\n", d.File, d.Line, d.Column, d.Severity, d.Code, d.Message)
		if d.Hint != "" {
			fmt.Fprintf(s.out, "    help: %s\n", d.Hint)
		}
	}
	why := "the server refuses these pipelines; those before stay"
	if len(refused.Diagnostics) == 0 {
		why = refused.Error() // it is nothing that is wrong at one place of a file
	}
	fmt.Fprintln(s.err, "procaas: "+why)
	return errFindings
}
