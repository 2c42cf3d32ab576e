package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"procaas/cmd/procaas/internal/cli"
)

// TestHelp compares the help of every command with a golden, also that of hidden commands. The
// help of a command names its subcommands and flags, so none can be lost without a difference.
func TestHelp(t *testing.T) {
	t.Parallel()
	var have strings.Builder
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		var out bytes.Buffer
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		if code := Main(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out}); code != cli.ExitFine {
			t.Errorf("procaas %s: exit code %d", strings.Join(args, " "), code)
		}
		fmt.Fprintf(&have, "$ procaas %s\n%s", strings.Join(args, " "), out.String())
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
	root := newRoot(cli.Streams{})
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	visit(root)
	golden(t, "help.golden", have.String())
}
