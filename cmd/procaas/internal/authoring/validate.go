package authoring

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/addons"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/render"
	"procaas/engine/api/cli"
)

const validateHelp = `validate reads every *.yaml and *.yml file below the given paths as one set. It
reports every problem with its place and its remedy. Without a path it checks the
current directory, and "-" is standard input. It never uses the network. It also
checks each file of stub services (*.stub.yaml) by itself. It leaves out tests
(*.test.yaml): procaas test checks them, and runs them.

--format sarif is for code scanning services, junit for CI servers. In both, only
findings of --fail-level and worse count as failures.

The comment "# procaas:ignore PC0602 because …" suppresses a warning or an advice on
the same line or the next one. Nothing suppresses errors.

--fix changes the files where a problem has only one remedy, and prints its changes.
It fixes mistyped names with one candidate, expressions that YAML cuts or cannot read,
missing quotes, and words and operators of other tools and languages. It also fixes
placeholders such as ${event.id}, units, and colons of version 1. With "-" it prints
the fixed text to standard output and the findings to standard error.

Each problem has a stable code. "procaas explain PC0103" explains it.`

func validateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "validate [PATH…]",
		Short: "Find every problem in pipeline files",
		Long:  validateHelp,
		Example: "  procaas validate pipelines/\n  procaas validate --fix pipelines/\n  procaas validate --format github .\n  " +
			"procaas validate --format sarif . > procaas.sarif",
		Args: cobra.ArbitraryArgs,
	}
	format := cli.Format(c, string(render.Text), string(render.JSON), string(render.GitHub), string(render.SARIF), string(render.JUnit))
	level := c.Flags().String("fail-level", "error", "the lowest severity that makes the exit code 1: error, warning or advice")
	fix := c.Flags().Bool("fix", false, "fix problems that have only one remedy")
	c.RunE = func(c *cobra.Command, args []string) error {
		if !diag.Severity(*level).Known() {
			return cli.Usagef("--fail-level %q: want error, warning or advice", *level)
		}
		return validate(cli.Of(c), here(args), render.Format(*format), diag.Severity(*level), *fix)
	}
	return c
}

func validate(s cli.Streams, paths []string, format render.Format, level diag.Severity, fix bool) error {
	defer runtime.KeepAlive(collectSeldom())
	stubs, err := source.StubsBeside(paths)
	if err != nil {
		return err
	}
	files, err := source.Pipelines(paths, s.In)
	if err != nil && (len(stubs) == 0 || !errors.Is(err, source.ErrNoFiles)) {
		return err
	}
	o := dsl.Options{Language: addons.Language(), Types: addons.Types(), Read: source.TreesOf(paths).Read}
	var found []diag.Diagnostic
	if fix {
		if files, found, err = fixFiles(s, files, o, slices.Contains(paths, "-")); err != nil {
			return err
		}
		if slices.Contains(paths, "-") {
			s.Out = s.Err
		}
	} else {
		_, found = dsl.Load(files, o)
	}
	files, found = append(files, stubs...), append(found, source.CheckStubs(stubs)...)
	switch format {
	case render.JUnit:
		err = render.WriteJUnit(s.Out, files, found, level) // failures are the findings that make the command fail
	case render.SARIF:
		err = render.WriteSARIF(s.Out, files, found, addons.Language().Rules())
	default:
		err = render.Write(s.Out, format, files, found, cli.Colorful(s.Out))
	}
	if err != nil {
		return err
	}
	return cli.FindingsIf(slices.ContainsFunc(found, func(d diag.Diagnostic) bool { return d.Severity.AtLeast(level) }))
}

// fixFiles fixes files and prints what it fixed. Standard input goes to standard output.
func fixFiles(s cli.Streams, files []diag.File, o dsl.Options, stdin bool) (now []diag.File, left []diag.Diagnostic, err error) {
	now, fixed, left := dsl.Fix(files, o)
	for i, f := range now {
		switch {
		case stdin && f.Name == source.Stdin:
			if _, err := s.Out.Write(f.Data); err != nil {
				return nil, nil, err
			}
		case !bytes.Equal(f.Data, files[i].Data):
			if err := source.Replace(filepath.FromSlash(f.Name), f.Data); err != nil {
				return nil, nil, err
			}
		}
	}
	for _, d := range fixed {
		fmt.Fprintf(s.Err, "fixed %s: %s; now it is %s [%s]\n", d.Span, d.Message, d.Hint, d.Code)
	}
	return now, left, nil
}
