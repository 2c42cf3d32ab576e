package authoring

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/cli"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/dsl/tree"
	"procaas/engine/diagram"
)

func planCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "plan [PIPELINE]",
		Short: "Show what runs when, and why steps may run in parallel",
		Long: `plan shows the stages and handlers of a pipeline: which handlers start at once, and
which wait for others. For each wait it shows the two places in the files that
cause it. If the files have a single pipeline, you may leave out its name.`,
		Example: "  procaas plan new-order-created --pipelines flows/\n  procaas plan new-order-created --format mermaid",
		Args:    cobra.MaximumNArgs(1),
	}
	dirs := source.PipelinesFlag(c)
	format := cli.Format(c, "text", "json", "mermaid", "dot")
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			if info, err := os.Stat(args[0]); err == nil && info.IsDir() {
				return cli.Usagef("%s is a directory; plan takes the id of a pipeline: procaas plan PIPELINE --pipelines %s", args[0], args[0])
			}
		}
		bundle, err := source.Bundle(cli.Of(c), *dirs, dsl.Options{})
		if err != nil {
			return err
		}
		id, err := planned(bundle, args)
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
