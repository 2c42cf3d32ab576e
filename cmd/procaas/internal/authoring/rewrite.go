package authoring

import (
	"bytes"
	"fmt"
	"path/filepath"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/cli"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl/diag"
	"procaas/dsl/format"
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

// fmtCommand lays out files.
func fmtCommand() *cobra.Command {
	return rewrites(&cobra.Command{
		Use:     "fmt [PATH…]",
		Short:   "Lay out pipeline files, keeping comments",
		Long:    fmtHelp,
		Example: "  procaas fmt pipelines/\n  procaas fmt --check .\n  procaas fmt - < flow.yaml",
		Args:    cobra.ArbitraryArgs,
	}, &rewriter{verb: "laid out", rewrite: format.Reformat})
}

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

// upgradeCommand turns files of the first version into the second.
func upgradeCommand() *cobra.Command {
	return rewrites(&cobra.Command{
		Use:     "upgrade [PATH…]",
		Short:   "Turn the first version of the language into the second",
		Long:    upgradeHelp,
		Example: "  procaas upgrade --diff pipelines/\n  procaas upgrade pipelines/",
		Args:    cobra.ArbitraryArgs,
	}, &rewriter{verb: "upgraded", rewrite: format.Upgrade})
}

// A rewriter is a command that gives files a new text: fmt and upgrade.
type rewriter struct {
	cli.Streams
	check, diff, dry bool
	format           *string
	verb             string // what becomes of a file, for people

	// rewrite gives the new text of a file, or what keeps it from having one: it is left as it is
	// when the new text would mean or compute something else.
	rewrite func(f diag.File) ([]byte, []diag.Diagnostic, error)
}

// rewrites makes a command of a rewriter, with the flags that all of them take.
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

// run rewrites the YAML files below paths. Files with problems are left alone and
// their problems shown; the others are written all the same.
func (w *rewriter) run(paths []string) error {
	files, err := source.Files(paths, w.In, source.IsYAML)
	if err != nil {
		return cli.Usage(err)
	}
	if len(files) == 0 {
		return cli.Usagef("no YAML files (*.yaml, *.yml) in these paths")
	}
	stdin := len(paths) == 1 && paths[0] == "-"
	report := rewriteReport{Files: len(files), Changed: []string{}, Written: !w.dryRun() && !stdin}
	var found []diag.Diagnostic
	broken := false
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
			if _, err := w.Out.Write(text); err != nil {
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

// dryRun tells whether nothing is to be written.
func (w *rewriter) dryRun() bool { return w.check || w.diff || w.dry }

// tell names a file that changes, or shows how.
func (w *rewriter) tell(f diag.File, text []byte) {
	if w.diff {
		_, _ = w.Out.Write(diff.Diff(f.Name, f.Data, f.Name, text))
		return
	}
	fmt.Fprintln(w.Out, f.Name)
}

// end shows what was found and gives the exit code.
func (w *rewriter) end(report rewriteReport, files []diag.File, found []diag.Diagnostic, broken bool) error {
	if err := w.Findings(files, found); err != nil {
		return err
	}
	if broken || diag.HasErrors(found) {
		return cli.ErrFindings
	}
	if n := len(report.Changed); w.check && n > 0 {
		fmt.Fprintf(w.Err, "%d of %d files to be %s\n", n, report.Files, w.verb)
		return cli.ErrFindings
	}
	return nil
}
