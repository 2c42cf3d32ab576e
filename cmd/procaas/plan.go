package main

import (
	"github.com/spf13/cobra"

	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/engine/diagram"
	"procaas/engine/planner"
)

func planCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "plan PIPELINE",
		Short: "Show what runs when, and the proof of what may run in parallel",
		Long: `plan shows the stages and handlers of a pipeline, which handlers start at once,
which wait for others, and for every wait the two places in the files that
cause it.`,
		Example: "  procaas plan new-order-created --pipelines flows/\n  procaas plan new-order-created --format mermaid",
		Args:    cobra.ExactArgs(1),
	}
	dirs := pipelinesFlag(c)
	format := formatFlag(c, "text", "json", "mermaid", "dot")
	c.RunE = func(_ *cobra.Command, args []string) error {
		f, err := format()
		if err != nil {
			return err
		}
		bundle, err := loadBundle(s, *dirs, dsl.Options{})
		if err != nil {
			return err
		}
		plan, err := planOf(bundle, args[0])
		if err != nil {
			return err
		}
		return diagram.Write(s.out, plan, diagram.Format(f))
	}
	return c
}

// pipelinesFlag adds --pipelines, the directories that a command reads.
func pipelinesFlag(c *cobra.Command) *[]string {
	return c.Flags().StringSliceP("pipelines", "p", []string{"."}, "directories or files with pipelines")
}

// planOf plans the pipeline with this id.
func planOf(b *dsl.Bundle, id string) (*planner.Plan, error) {
	var ids []string
	for _, p := range b.Pipelines {
		ids = append(ids, p.ID)
	}
	if b.Pipeline(id) == nil {
		if near := diag.Suggest(id, ids); near != "" {
			return nil, usagef("no pipeline %q; did you mean %q?", id, near)
		}
		return nil, usagef("no pipeline %q in these files", id)
	}
	plans, err := plansOf(b)
	if err != nil {
		return nil, err
	}
	for _, p := range plans {
		if p.Pipeline.ID == id {
			return p, nil
		}
	}
	return nil, usagef("no pipeline %q in these files", id)
}
