package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"procaas/dsl"
	"procaas/dsl/diag"
)

const upgradeHelp = `upgrade turns the first version of the language into the second one:

  enabled#and:                                enabled: !$ |
    - value#xget: /event/payload/paid           event.payload.paid and
    - value#contains:                   →       order.tariff in ['econom', 'business'] and
        haystack: ['econom', 'business']        not configs.CLOSED.enabled
        needle#xget: /order/tariff
    - value#not: {value#xget: /configs/CLOSED/enabled}

All else stays as it is written. Comments inside of a condition move above it. A
file is written only after its new text was read again and found to compute the
same; it is never half written. Without a path it takes the current directory;
"-" is standard input, and the result then goes to standard output.

Both versions may stand in one set of files: files can be upgraded one by one.

Exit codes: 0 fine, 1 when --check finds files to change, or a file has mistakes.`

// upgradeCommand shares its flags and exit codes with fmt: see [rewriter].
func upgradeCommand(s streams) *cobra.Command {
	w := &rewriter{streams: s, verb: "upgraded", rewrite: upgrade}
	c := &cobra.Command{
		Use:     "upgrade [PATH…]",
		Short:   "Turn the first version of the language into the second",
		Long:    upgradeHelp,
		Example: "  procaas upgrade --diff pipelines/\n  procaas upgrade pipelines/",
		Args:    cobra.ArbitraryArgs,
		RunE:    func(_ *cobra.Command, args []string) error { return w.run(args) },
	}
	w.flags(c)
	return c
}

// upgrade leaves a file as it is when the new text would compute something else.
func upgrade(f diag.File) ([]byte, []diag.Diagnostic, error) {
	text, found, err := dsl.Upgrade(f)
	if err != nil {
		err = fmt.Errorf("left alone: %w", err)
	}
	return text, found, err
}
