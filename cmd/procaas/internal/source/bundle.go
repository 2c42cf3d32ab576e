package source

import (
	"slices"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/addons"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/api/cli"
	"procaas/engine/definitions"
	"procaas/engine/planner"
)

// Bundle reads and checks pipelines for a command that needs valid ones. It prints findings, and returns an
// error if any is an error.
func Bundle(s cli.Streams, paths []string, o dsl.Options) (*tree.Bundle, error) {
	return BundleBy(nil, s, paths, o)
}

// BundleBy is Bundle with a loader, for a command that reads the same paths again later.
func BundleBy(l *dsl.Loader, s cli.Streams, paths []string, o dsl.Options) (*tree.Bundle, error) {
	files, err := Pipelines(paths, s.In)
	if err != nil {
		return nil, err
	}
	if o.Read == nil {
		o.Read = TreesOf(paths).Read
	}
	return check(l, s, files, o)
}

// Check loads files and prints findings. If the files are invalid, it returns a [*definitions.LoadError] that is also
// [cli.ErrFindings].
func Check(s cli.Streams, files []diag.File, o dsl.Options) (*tree.Bundle, error) {
	return check(nil, s, files, o)
}

func check(l *dsl.Loader, s cli.Streams, files []diag.File, o dsl.Options) (*tree.Bundle, error) {
	o.Language, o.Types = addons.Language(), addons.Types()
	bundle, found := l.Load(files, o)
	if err := s.Findings(files, found); err != nil {
		return nil, err
	}
	if bundle == nil {
		return nil, &definitions.LoadError{Found: found, Err: cli.ErrFindings}
	}
	return bundle, nil
}

// Plans returns the plans of all pipelines of a bundle.
func Plans(b *tree.Bundle) ([]*planner.Plan, error) {
	types := addons.Types()
	var plans []*planner.Plan
	for _, p := range b.Pipelines {
		plan, err := planner.New(b, p, types)
		if err != nil {
			return nil, err
		}
		plans = append(plans, plan)
	}
	return plans, nil
}

// PipelinesFlag adds --pipelines, the directories that a command reads.
func PipelinesFlag(c *cobra.Command) *[]string {
	return c.Flags().StringSliceP("pipelines", "p", []string{"."}, "directories or files with pipelines")
}

// Plan returns the plan of a pipeline.
func Plan(b *tree.Bundle, id string) (*planner.Plan, error) {
	if b.Pipeline(id) == nil {
		ids := cli.Names(b.Pipelines, func(p *tree.Pipeline) string { return p.ID })
		return nil, cli.Usagef("no pipeline %q%s", id, cli.Meant(id, ids, "; did you mean %q?", " in these files"))
	}
	plans, err := Plans(b)
	if err != nil {
		return nil, err
	}
	return plans[slices.IndexFunc(plans, func(p *planner.Plan) bool { return p.Pipeline.ID == id })], nil
}
