package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/engine/flowtest"
)

// starter is what a newcomer begins with.
//
//go:embed starter
var starter embed.FS

const initHelp = `init makes a directory (the present one, unless another is named) ready for
pipelines: a first flow with its test and its stub services, the JSON Schemas of
both kinds of file, and the settings by which editors with the YAML language
server, such as VS Code, complete fields and take !$ for a tag.

A file that is there already is kept; what init would have written is told.`

func initCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:     "init [DIR]",
		Short:   "Begin: a first flow with its test, schemas and editor settings",
		Long:    initHelp,
		Example: "  procaas init flows && cd flows && procaas test",
		Args:    cobra.MaximumNArgs(1),
	}
	format := formatFlag(c, "text", "json")
	c.RunE = func(_ *cobra.Command, args []string) error {
		f, err := format()
		if err != nil {
			return err
		}
		dir := "."
		if len(args) == 1 {
			dir = args[0]
		}
		return initialise(s, dir, f)
	}
	return c
}

// An initReport is what init prints as JSON.
type initReport struct {
	Written []string `json:"written"`
	Kept    []string `json:"kept"`
}

// initialise writes what is not there yet.
func initialise(s streams, dir, format string) error {
	report := initReport{Written: []string{}, Kept: []string{}}
	files, err := starterFiles()
	if err != nil {
		return err
	}
	for _, f := range files {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		switch err := newFile(path, f.Data); {
		case errors.Is(err, fs.ErrExist):
			report.Kept = append(report.Kept, f.Name)
		case err != nil:
			return err
		default:
			report.Written = append(report.Written, f.Name)
		}
	}
	if format == "json" {
		return printJSON(s.out, report)
	}
	return report.text(s, files, dir)
}

// text tells what was written and what comes next.
func (r initReport) text(s streams, files []diag.File, dir string) error {
	for _, name := range r.Written {
		fmt.Fprintln(s.out, "wrote", name)
	}
	for _, name := range r.Kept {
		fmt.Fprintln(s.out, "kept ", name)
	}
	for _, f := range files {
		if f.Name == settingsFile && len(r.Kept) > 0 {
			for _, kept := range r.Kept {
				if kept == settingsFile {
					fmt.Fprintf(s.out, "\n%s was there; add to it what is not in it yet:\n%s", settingsFile, f.Data)
				}
			}
		}
	}
	_, err := fmt.Fprintf(s.out, `
Next, in %s:
  procaas validate pipelines                         every problem at once
  procaas test pipelines                             the flow in virtual time
  procaas plan order-placed -p pipelines             what runs when, and why
  echo '{"payload": {"order-id": "o-1"}}' |
    procaas run order-placed --event - --stubs -p pipelines
  procaas dev pipelines                              a server that reloads on each change, with a console
  procaas new handler -p pipelines                   a handler of your own
`, dir)
	return err
}

const settingsFile = ".vscode/settings.json"

// starterFiles gives all that init writes, by path.
func starterFiles() ([]diag.File, error) {
	var files []diag.File
	add := func(name string, data []byte, err error) error {
		files = append(files, diag.File{Name: name, Data: data})
		return err
	}
	for _, name := range []string{"order-placed.yaml", "order-placed.test.yaml", "order-placed.stub.yaml"} {
		data, err := starter.ReadFile("starter/" + name)
		if err := add("pipelines/"+name, data, err); err != nil {
			return nil, err
		}
	}
	data, err := starter.ReadFile("starter/settings.json")
	if err := add(settingsFile, data, err); err != nil {
		return nil, err
	}
	data, err = dsl.JSONSchema(languageTypes())
	if err := add("schemas/pipeline.schema.json", data, err); err != nil {
		return nil, err
	}
	data, err = flowtest.JSONSchema()
	return files, add("schemas/test.schema.json", data, err)
}

// newFile writes a file that must not be there yet, at once or not at all.
func newFile(path string, data []byte) (err error) {
	if _, err := os.Lstat(path); err == nil {
		return fs.ErrExist
	}
	return placeFile(path, data, 0o644)
}
