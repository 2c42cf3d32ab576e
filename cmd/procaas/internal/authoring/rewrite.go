package authoring

import (
	"bytes"
	"fmt"
	"path/filepath"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/source"
	"procaas/dsl/diag"
	"procaas/dsl/format"
	"procaas/engine/api/cli"
)

const fmtHelp = `fmt formats every *.yaml and *.yml file below the given paths, including tests and
stubs. It indents by two spaces, and lists below their key. It removes extra spaces
and empty lines. An expression longer than 100 characters becomes a block:

  enabled: !$ |
    event.payload.total > 5 and
    event.payload.channel in ['mail', 'push']

A {…} or […] that makes a line longer than 120 characters becomes a block with one
entry per line. The comment behind it moves above it. Inside {…} and […] fmt quotes
expressions with brackets, because other YAML parsers, such as those of editors, end
the expression at the bracket.

Comments, empty lines and the order of entries stay. fmt reads its result again and
writes a file only if the meaning is the same. It never leaves a file half written.
Without a path it formats the current directory. "-" reads standard input and writes
standard output.`

const rewriteExits = `

Exit codes: 0 fine, 1 when --check finds files to change, or a file is not YAML, has
errors, or is too large.`

const fromV1Help = `fmt --from-v1 rewrites pipelines from version 1 of the language to version 2, and
formats nothing:

  enabled#and:                                enabled: !$ |
    - value#xget: /event/payload/paid           event.payload.paid and
    - value#contains:                   →       order.tariff in ['econom', 'business'] and
        haystack: ['econom', 'business']        not configs.CLOSED.enabled
        needle#xget: /order/tariff
    - value#not: {value#xget: /configs/CLOSED/enabled}

Everything else stays as it is. Comments inside a condition move above it. The command
writes a file only if it computes the same. A set may contain files of both versions,
so you can rewrite one file at a time.` + rewriteExits

// fmtCommand formats files.
func fmtCommand() *cobra.Command {
	w := new(rewriter)
	c := rewrites(&cobra.Command{
		Use:     "fmt [PATH…]",
		Short:   "Format pipeline files, and keep comments",
		Long:    fmtHelp + "\n\n" + fromV1Help,
		Example: "  procaas fmt pipelines/\n  procaas fmt --check .\n  procaas fmt - < flow.yaml\n  procaas fmt --from-v1 --diff pipelines/",
		Args:    cobra.ArbitraryArgs,
	}, w)
	c.Flags().BoolVar(&w.fromV1, "from-v1", false, "rewrite version 1 of the language to version 2, and format nothing")
	return c
}

// upgradeCommand is fmt --from-v1 under its earlier name.
func upgradeCommand() *cobra.Command {
	return rewrites(&cobra.Command{
		Use:     "upgrade [PATH…]",
		Hidden:  true,
		Short:   "Rewrite pipelines from version 1 of the language: now fmt --from-v1",
		Long:    "upgrade is the earlier name of procaas fmt --from-v1. Flags and exit codes are the same.\n\n" + fromV1Help,
		Example: "  procaas fmt --from-v1 --diff pipelines/\n  procaas fmt --from-v1 pipelines/",
		Args:    cobra.ArbitraryArgs,
	}, &rewriter{fromV1: true})
}

// A rewriter is a command that rewrites files.
type rewriter struct {
	cli.Streams
	check, diff, dry bool
	fromV1           bool // rewrite version 1 of the language instead of formatting
	format           *string
}

// rewrite returns the new text of a file, or the findings that prevent it. The error is set if the new text
// would have another meaning.
func (w *rewriter) rewrite(f diag.File) ([]byte, []diag.Diagnostic, error) {
	if w.fromV1 {
		return format.Upgrade(f)
	}
	return format.Reformat(f)
}

// rewrites adds the common flags of rewriters to a command.
func rewrites(c *cobra.Command, w *rewriter) *cobra.Command {
	c.Flags().BoolVar(&w.check, "check", false, "write nothing; list the files that would change, and exit with 1 if there are any")
	c.Flags().BoolVar(&w.diff, "diff", false, "write nothing; show what would change")
	c.Flags().BoolVar(&w.dry, "dry-run", false, "write nothing; list the files that would change")
	w.format = cli.Format(c, "text", "json")
	c.RunE = func(c *cobra.Command, args []string) error {
		w.Streams = cli.Of(c)
		return w.run(here(args))
	}
	return c
}

// A rewriteReport is what a rewriter prints as JSON.
type rewriteReport struct {
	Files   int      `json:"files"`
	Changed []string `json:"changed"`
	Written bool     `json:"written"`
}

// run rewrites the YAML files below paths. It prints the problems of files that it cannot rewrite, and still
// rewrites the others.
func (w *rewriter) run(paths []string) error {
	files, unread, err := source.FilesBut(paths, w.In, source.IsYAML)
	if err != nil {
		return cli.Usage(err)
	}
	for _, err := range unread {
		fmt.Fprintf(w.Err, "procaas: %v; left alone\n", err)
	}
	if len(files) == 0 && len(unread) == 0 {
		return cli.Usagef("no YAML files (*.yaml, *.yml) in these paths")
	}
	stdin := len(paths) == 1 && paths[0] == "-"
	report := rewriteReport{Files: len(files), Changed: []string{}, Written: !w.dryRun() && !stdin}
	var found []diag.Diagnostic
	broken := len(unread) > 0
	for _, f := range files {
		text, problems, err := w.rewrite(f)
		found = append(found, problems...)
		switch {
		case err != nil:
			broken = true
			fmt.Fprintf(w.Err, "procaas: %s: left alone: %v\n", f.Name, err)
			continue
		case diag.HasErrors(problems):
			continue
		case stdin && !w.dryRun():
			if _, err := cli.Exact(w.Out).Write(text); err != nil {
				return err
			}
			continue
		case bytes.Equal(text, f.Data):
			continue
		}
		report.Changed = append(report.Changed, f.Name)
		if report.Written {
			if err := source.Replace(filepath.FromSlash(f.Name), text); err != nil {
				return err
			}
		}
		if *w.format == "text" {
			w.tell(f, text)
		}
	}
	if *w.format == "json" && (!stdin || w.dryRun()) {
		if err := w.PrintJSON(report); err != nil {
			return err
		}
	}
	return w.end(report, files, found, broken)
}

// dryRun reports whether to write nothing.
func (w *rewriter) dryRun() bool { return w.check || w.diff || w.dry }

// tell prints a changed file or its diff.
func (w *rewriter) tell(f diag.File, text []byte) {
	if w.diff {
		_, _ = w.Out.Write(diff.Diff(f.Name, f.Data, f.Name, text))
		return
	}
	fmt.Fprintln(w.Out, f.Name)
}

// end prints the findings and returns the exit code as an error.
func (w *rewriter) end(report rewriteReport, files []diag.File, found []diag.Diagnostic, broken bool) error {
	if err := w.Findings(files, found); err != nil {
		return err
	}
	if broken || diag.HasErrors(found) {
		return cli.ErrFindings
	}
	if n := len(report.Changed); w.check && n > 0 {
		done := "laid out"
		if w.fromV1 {
			done = "upgraded"
		}
		fmt.Fprintf(w.Err, "%d of %d files to be %s\n", n, report.Files, done)
		return cli.ErrFindings
	}
	return nil
}
