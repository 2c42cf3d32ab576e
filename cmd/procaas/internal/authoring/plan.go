package authoring

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/dsl/tree"
	"procaas/engine/api/cli"
	"procaas/engine/diagram"
)

func planCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "plan [PIPELINE] [PATH...]",
		Short: "Show what runs when, and why steps may run in parallel",
		Long: `plan shows the stages and handlers of a pipeline: which handlers start at once, and
which wait for others. For each wait it shows the two places in the files that
cause it. If the files have a single pipeline, you may leave out its name.
An argument that exists as a file or directory is a path. With --pipelines all
arguments are names.`,
		Example: "  procaas plan new-order-created flows/\n  procaas plan new-order-created --format mermaid",
	}
	dirs := source.PipelinesFlag(c)
	format := cli.Format(c, "text", "json", "mermaid", "dot")
	c.RunE = func(c *cobra.Command, args []string) error {
		ids, paths := args, *dirs
		if !c.Flags().Changed("pipelines") {
			ids, paths = splitPaths(args)
			if len(paths) == 0 {
				paths = *dirs
			}
		}
		if len(ids) > 1 {
			return cli.Usagef("plan shows one pipeline: want one id, and paths that exist; have %s", strings.Join(ids, ", "))
		}
		bundle, err := source.Bundle(cli.Of(c), paths, dsl.Options{})
		if err != nil {
			return err
		}
		id, err := planned(bundle, ids)
		if err != nil {
			return err
		}
		plan, err := source.Plan(bundle, id)
		if err != nil {
			return err
		}
		return diagram.Write(c.OutOrStdout(), plan, diagram.Format(*format))
	}
	return c
}

// splitPaths separates the id of a pipeline from files and directories.
func splitPaths(args []string) (ids, paths []string) {
	for _, arg := range args {
		if _, err := os.Stat(arg); err == nil {
			paths = append(paths, arg)
		} else {
			ids = append(ids, arg)
		}
	}
	return ids, paths
}

// planned returns the requested pipeline, or the only one.
func planned(b *tree.Bundle, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	ids := cli.Names(b.Pipelines, func(p *tree.Pipeline) string { return p.ID })
	switch len(ids) {
	case 0:
		return "", cli.Usagef("these files have no pipeline")
	case 1:
		return ids[0], nil
	}
	return "", cli.Usagef("which pipeline? There are %s", strings.Join(ids, ", "))
}
