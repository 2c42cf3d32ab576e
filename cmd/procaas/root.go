package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/addons"
	"procaas/cmd/procaas/internal/authoring"
	"procaas/cmd/procaas/internal/complete"
	"procaas/cmd/procaas/internal/demo"
	"procaas/cmd/procaas/internal/doctor"
	"procaas/cmd/procaas/internal/operate"
	"procaas/cmd/procaas/internal/operate/control"
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
	root.SetArgs(today(root, args))
	code := cli.End(s, root.ExecuteContext(ctx))
	return cli.EndOutput(raw, code, closeOutputs())
}

// today returns arguments with the present name of a command, also of one to complete or to explain.
func today(root *cobra.Command, args []string) []string {
	at := 0
	for at < len(args) && slices.Contains([]string{"help", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}, args[at]) {
		at++
	}
	now := cli.Formers(root)
	for words := min(2, len(args)-at); words > 0; words-- {
		if path, old := now[strings.Join(args[at:at+words], " ")]; old {
			return slices.Concat(args[:at], path, args[at+words:])
		}
	}
	return args
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

procaas help all lists every command.
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
		{"author", "For authors:", [][]*cobra.Command{authoring.Commands(control.Triggers()), author, {simulate.Command()}}},
		{"serve", "Running events:", [][]*cobra.Command{server, {demo.Command()}}},
		{"operate", "Operating a server:", [][]*cobra.Command{operate.Commands(), {doctor.Command(), cli.VersionCommand()}}},
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
	fewer(root)
	return root
}

// usual are the commands that the help of the program lists. The others are in procaas help all.
var usual = []string{
	"init", "new", "dev", "validate", "fmt", "test", "run", "plan", "explain", "docs", "diff", "replay", "gen",
	"demo", "serve", "store",
	"submit", "runs", "top", "switch", "limit", "deadline", "release", "config", "services", "nodes", "queue", "balancer", "shard",
}

// fewer makes the help of the program list only the usual commands.
func fewer(root *cobra.Command) {
	all := &cobra.Command{Use: "all", Short: "List every command", Hidden: true}
	help := root.HelpFunc()
	all.SetHelpFunc(func(_ *cobra.Command, args []string) { help(root, args) })
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		if c == root {
			for _, sub := range root.Commands() {
				if !sub.Hidden && !slices.Contains(usual, sub.Name()) {
					sub.Hidden = true
					defer func() { sub.Hidden = false }()
				}
			}
		}
		help(c, args)
	})
	root.AddCommand(all)
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
