package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"procaas/dsl"
	"procaas/dsl/diag"
)

const fmtHelp = `fmt gives every *.yaml and *.yml file below the given paths, tests and stubs
included, the same layout: two blanks for each level, lists indented below their
key, one blank where one is enough, at most one empty line, and expressions that
are longer than 100 characters as blocks:

  enabled: !$ |
    event.payload.total > 5 and
    event.payload.channel in ['mail', 'push']

A {…} or […] that makes a line longer than 120 characters becomes a block, each
entry on a line of its own; the comment behind it comes to stand above.

Inside of {…} and […], an expression with brackets is put into quotes, because
other readers of YAML, such as those of editors, end it there.

Comments, empty lines and the order of things stay. A file is written only after
its new text was read again and found to mean the same; it is never half written.
Without a path it takes the current directory; "-" is standard input, and the
result then goes to standard output.

Exit codes: 0 fine, 1 when --check finds files to change, or a file is no YAML.`

// fmtCommand shares its flags and exit codes with upgrade: see [rewriter].
func fmtCommand(s streams) *cobra.Command {
	w := &rewriter{streams: s, verb: "laid out", rewrite: reformat}
	c := &cobra.Command{
		Use:     "fmt [PATH…]",
		Short:   "Lay out pipeline files, keeping comments",
		Long:    fmtHelp,
		Example: "  procaas fmt pipelines/\n  procaas fmt --check .\n  procaas fmt - < flow.yaml",
		Args:    cobra.ArbitraryArgs,
		RunE:    func(_ *cobra.Command, args []string) error { return w.run(args) },
	}
	w.flags(c)
	return c
}

// reformat leaves a file as it is when the new text would mean something else.
func reformat(f diag.File) ([]byte, []diag.Diagnostic, error) {
	text, found, err := dsl.Reformat(f)
	if err != nil {
		err = fmt.Errorf("left alone: %w", err)
	}
	return text, found, err
}
