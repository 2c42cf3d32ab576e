package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"procaas/dsl/diag"
	"procaas/dsl/render"
)

// A rewriter is a command that gives files a new text: fmt and upgrade.
type rewriter struct {
	streams
	check, diff, dry bool
	format           func() (string, error)
	verb             string // what becomes of a file, for people

	// rewrite gives the new text of a file, or what keeps it from having one.
	rewrite func(f diag.File) ([]byte, []diag.Diagnostic, error)
}

// flags adds what all rewriters take.
func (w *rewriter) flags(c *cobra.Command) {
	c.Flags().BoolVar(&w.check, "check", false, "write nothing; list the files that would change, and exit with 1 if there are any")
	c.Flags().BoolVar(&w.diff, "diff", false, "write nothing; show what would change")
	c.Flags().BoolVar(&w.dry, "dry-run", false, "write nothing; list the files that would change")
	w.format = formatFlag(c, "text", "json")
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
	format, err := w.format()
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		paths = []string{"."}
	}
	files, err := readFiles(paths, w.in, isYAML)
	if err != nil {
		return usageError{err}
	}
	if len(files) == 0 {
		return usagef("no YAML files (*.yaml, *.yml) in these paths")
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
			fmt.Fprintf(w.err, "procaas: %s: %v\n", f.Name, err)
			continue
		case diag.HasErrors(problems):
			continue
		case stdin && !w.dryRun():
			if _, err := w.out.Write(text); err != nil {
				return err
			}
			continue
		case bytes.Equal(text, f.Data):
			continue
		}
		report.Changed = append(report.Changed, f.Name)
		if report.Written {
			if err := replaceFile(filepath.FromSlash(f.Name), text); err != nil {
				return err
			}
		}
		if format == "text" {
			w.tell(f, text)
		}
	}
	if format == "json" && (!stdin || w.dryRun()) {
		if err := printJSON(w.out, report); err != nil {
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
		_, _ = w.out.Write(diff.Diff(f.Name, f.Data, f.Name, text))
		return
	}
	fmt.Fprintln(w.out, f.Name)
}

// end shows what was found and gives the exit code.
func (w *rewriter) end(report rewriteReport, files []diag.File, found []diag.Diagnostic, broken bool) error {
	if len(found) > 0 {
		if err := render.Write(w.err, render.Text, files, found, colorful(w.err)); err != nil {
			return err
		}
	}
	if broken || diag.HasErrors(found) {
		return errFindings
	}
	if n := len(report.Changed); w.check && n > 0 {
		fmt.Fprintf(w.err, "%d of %d files to be %s\n", n, report.Files, w.verb)
		return errFindings
	}
	return nil
}

// replaceFile gives a file a new content, or leaves it as it was: the content is
// complete on disk before it takes the name. Links keep pointing to it.
func replaceFile(path string, data []byte) (err error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(real)
	if err != nil {
		return err
	}
	return placeFile(real, data, info.Mode().Perm())
}

// placeFile writes a file at once or not at all.
func placeFile(path string, data []byte, mode os.FileMode) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(path), ".procaas-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temp.Name()))
		}
	}()
	_, err = temp.Write(data)
	err = errors.Join(err, temp.Chmod(mode), temp.Sync(), temp.Close())
	if err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}
