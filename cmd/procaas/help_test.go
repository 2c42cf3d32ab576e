package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"procaas/engine/api/cli"
)

// TestHelp compares the help of every command with a golden, also that of hidden commands. The
// help of a command names its subcommands and flags, so none can be lost without a difference.
func TestHelp(t *testing.T) {
	t.Parallel()
	var have strings.Builder
	root := newRoot(cli.Streams{Out: &have})
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		c.InitDefaultHelpFlag()
		c.InitDefaultVersionFlag()
		fmt.Fprintf(&have, "$ %s --help\n", c.CommandPath())
		if err := c.Help(); err != nil {
			t.Error(err)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				fmt.Fprintf(&have, "[hidden flag --%s %s: %s]\n", f.Name, f.DefValue, f.Usage)
			}
		})
		have.WriteString("\n")
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
	golden(t, "help.golden", have.String())
}
