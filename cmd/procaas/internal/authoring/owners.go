package authoring

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/api/cli"
)

// An owned is something that has an owner, or should.
type owned struct {
	Owner string `json:"owner"` // empty if there is none
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	File  string `json:"file"`
	Line  int    `json:"line"`
}

func ownersCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "owners [PATH...]",
		Short: "List who owns which flows, pipelines, handlers, events and services",
		Long: `owners lists what the files declare, by owner. Handlers are listed only when their
owner is not the owner of their pipeline. A dash stands for nobody.`,
		Example: "  procaas owners flows/\n  procaas owners flows/ --owner team-bonus",
	}
	only := c.Flags().String("owner", "", "only what this owner has; - for what nobody has")
	format := cli.Format(c, "text", "json")
	c.RunE = func(c *cobra.Command, paths []string) error {
		s := cli.Of(c)
		bundle, err := source.Bundle(s, here(paths), dsl.Options{})
		if err != nil {
			return err
		}
		all := ownedIn(bundle)
		if *only != "" {
			all = slices.DeleteFunc(all, func(o owned) bool { return cli.Dash(o.Owner) != *only })
			if len(all) == 0 {
				return cli.Usagef("nothing here belongs to %q", *only)
			}
		}
		if *format == "json" {
			return s.PrintJSON(cli.Items(all))
		}
		return cli.Table(s.Out, "", all, func(o owned) cli.Row {
			return cli.Row{cli.Dash(o.Owner), o.Kind, o.Name, fmt.Sprintf("%s:%d", o.File, o.Line)}
		})
	}
	return c
}

// ownedIn lists the declarations of a bundle, sorted by owner, kind and name.
func ownedIn(b *tree.Bundle) []owned {
	var all []owned
	add := func(owner, kind, name string, at diag.Span) {
		all = append(all, owned{Owner: owner, Kind: kind, Name: name, File: at.File, Line: at.Start.Line})
	}
	for _, f := range b.Flows {
		add(f.Owner, "flow", f.ID, f.Span)
	}
	for _, e := range b.Events {
		add(e.Owner, "event", e.Type, e.Span)
	}
	for _, s := range b.Services {
		add(s.Owner, "service", s.ID, s.Span)
	}
	for _, p := range b.Pipelines {
		add(p.Owner, "pipeline", p.ID, p.Span)
		for _, s := range p.Stages {
			for _, h := range s.Handlers {
				if h.Owner != "" && h.Owner != p.Owner {
					add(h.Owner, "handler", h.Path, h.Span)
				}
			}
		}
	}
	b.EachDeclaration(func(x tree.Declaration) { add(*x.Owner, x.Kind, x.ID, x.Span) })
	slices.SortFunc(all, func(a, b owned) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return all
}
