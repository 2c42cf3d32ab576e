package main

import (
	"cmp"
	"context"
	"slices"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/addons"
	"procaas/cmd/procaas/internal/authoring"
	"procaas/cmd/procaas/internal/complete"
	"procaas/cmd/procaas/internal/demo"
	"procaas/cmd/procaas/internal/operate"
	"procaas/cmd/procaas/internal/serve"
	"procaas/cmd/procaas/internal/serve/secret"
	"procaas/cmd/procaas/internal/simulate"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/dsl/tree"
	"procaas/engine/addon"
	"procaas/engine/api/cli"
)

// Main runs the command line and returns the exit code.
func Main(ctx context.Context, args []string, raw cli.Streams) int {
	s, closeOutputs := cli.Outputs(raw)
	root := newRoot(s)
	root.SetArgs(args)
	code := cli.End(s, root.ExecuteContext(ctx))
	return cli.EndOutput(raw, code, closeOutputs())
}

const longHelp = `procaas runs business workflows written in YAML. Each event starts a run that calls
services step by step. Events of one key run in order. Steps run in parallel when
procaas can prove that this is safe. Checkpoints let a run survive a crash.

  procaas demo                      see a whole taxi company at work
  procaas init shop                 start a flow of your own
  procaas validate flows/           find every problem in a directory
  procaas dev flows/                run it here, and reload it on each change
  procaas explain stage             explain a part of the language, a code or a word
  procaas serve --store postgres://… --pipelines flows/

Exit codes: 0 fine, 1 findings or a failed run, 2 wrong use, 3 could not work.
A command that calls a server also exits with
  1  when the server refuses: the token or the present state does not allow it
  2  when the server does not understand, or does not know the run, path or name
  3  when the server cannot be reached or cannot work: try again later
Every flag --some-flag can also be set as PROCAAS_SOME_FLAG.`

func newRoot(s cli.Streams) *cobra.Command {
	root := &cobra.Command{
		Use:               "procaas",
		Short:             "Run business workflows written in YAML",
		Long:              longHelp,
		Version:           cli.Version(),
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error { return cli.Prepare(c) },
	}
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetFlagErrorFunc(cli.FlagError)
	server, author := serve.Commands()
	for _, group := range []struct {
		id, title string
		commands  [][]*cobra.Command
	}{
		{"author", "For authors:", [][]*cobra.Command{authoring.Commands(), author, {simulate.Command()}}},
		{"serve", "Running events:", [][]*cobra.Command{server, demo.Commands()}},
		{"operate", "Operating a server:", [][]*cobra.Command{operate.Commands(), {cli.VersionCommand()}}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, c := range slices.Concat(group.commands...) {
			c.GroupID = group.id
			root.AddCommand(c)
		}
	}
	plugIn(root)
	cli.CheckArgs(root)
	complete.Add(root)
	return root
}

// tools are what commands of add-ons use.
var tools = addon.Tools{
	Bundle: func(s cli.Streams, paths []string) (*tree.Bundle, error) {
		if len(paths) == 0 {
			paths = []string{"."}
		}
		return source.Bundle(s, paths, dsl.Options{})
	},
	Secret: secret.Store{}.Value,
}

// plugIn adds the commands of the add-ons.
func plugIn(root *cobra.Command) {
	for _, a := range addons.All() {
		if a.Commands == nil {
			continue
		}
		for _, c := range a.Commands(tools) {
			if c.Under == "" {
				c.GroupID = cmp.Or(c.GroupID, "operate")
				root.AddCommand(c.Command)
			} else if parent, _, err := root.Find([]string{c.Under}); err == nil {
				parent.AddCommand(c.Command)
			}
		}
	}
}
