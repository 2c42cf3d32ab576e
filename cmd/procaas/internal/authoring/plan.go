package authoring

import (
	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/cli"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/engine/diagram"
)

func planCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "plan PIPELINE",
		Short: "Show what runs when, and why steps may run in parallel",
		Long: `plan shows the stages and handlers of a pipeline: which handlers start at once, and
which wait for others. For each wait it shows the two places in the files that
cause it.`,
		Example: "  procaas plan new-order-created --pipelines flows/\n  procaas plan new-order-created --format mermaid",
		Args:    cobra.ExactArgs(1),
	}
	dirs := source.PipelinesFlag(c)
	format := cli.Format(c, "text", "json", "mermaid", "dot")
	c.RunE = func(c *cobra.Command, args []string) error {
		bundle, err := source.Bundle(cli.Of(c), *dirs, dsl.Options{})
		if err != nil {
			return err
		}
		plan, err := source.Plan(bundle, args[0])
		if err != nil {
			return err
		}
		return diagram.Write(c.OutOrStdout(), plan, diagram.Format(*format))
	}
	return c
}
