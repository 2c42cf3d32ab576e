package authoring

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/addons"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl/diag"
	"procaas/engine/api/cli"
	"procaas/engine/flowtest"
)

// starter has the files that init writes.
//
//go:embed starter
var starter embed.FS

const initHelp = `init prepares a directory (default: the current one) for pipelines. It writes a first
flow with its test and its stub services, and the JSON Schemas of both kinds of file.
It also writes settings for editors with the YAML language server, such as VS Code.
With them the editor completes fields and accepts the tag !$.

init never overwrites a file. It lists the files that it kept.`

func initCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "init [DIR]",
		Short:   "Start: a first flow with its test, schemas and editor settings",
		Long:    initHelp,
		Example: "  procaas init flows && cd flows && procaas test",
		Args:    cobra.MaximumNArgs(1),
	}
	format := cli.Format(c, "text", "json")
	c.RunE = func(c *cobra.Command, args []string) error { return initialise(cli.Of(c), here(args)[0], *format) }
	return c
}

// An initReport is what init prints as JSON.
type initReport struct {
	Written []string `json:"written"`
	Kept    []string `json:"kept"`
}

// initialise writes missing files.
func initialise(s cli.Streams, dir, format string) error {
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
		switch err := source.New(path, f.Data); {
		case errors.Is(err, fs.ErrExist):
			report.Kept = append(report.Kept, f.Name)
		case err != nil:
			return err
		default:
			report.Written = append(report.Written, f.Name)
		}
	}
	if format == "json" {
		return s.PrintJSON(report)
	}
	return report.text(s, files, dir)
}

// text prints what was written and what to do next.
func (r initReport) text(s cli.Streams, files []diag.File, dir string) error {
	for _, name := range r.Written {
		fmt.Fprintln(s.Out, "wrote", filepath.Join(dir, filepath.FromSlash(name)))
	}
	for _, name := range r.Kept {
		fmt.Fprintln(s.Out, "kept ", filepath.Join(dir, filepath.FromSlash(name)))
	}
	for _, f := range files {
		if f.Name == settingsFile && slices.Contains(r.Kept, settingsFile) {
			fmt.Fprintf(s.Out, "\n%s was there; add to it what is not in it yet:\n%s", settingsFile, f.Data)
		}
	}
	return s.Printf(`
Next, in %s:
  procaas validate pipelines                         every problem at once
  procaas test pipelines                             the flow in virtual time
  procaas plan order-placed -p pipelines             what runs when, and why
  echo '{"payload": {"order-id": "o-1"}}' |
    procaas run order-placed --event - --stubs -p pipelines
  procaas dev pipelines                              a server that reloads on each change, with a console
  procaas new handler -p pipelines                   a handler of your own
`, dir)
}

const settingsFile = ".vscode/settings.json"

// starterFiles returns the files that init writes, by path.
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
	data, err = addons.Language().JSONSchema(addons.Types())
	if err := add("schemas/pipeline.schema.json", data, err); err != nil {
		return nil, err
	}
	data, err = flowtest.JSONSchema()
	return files, add("schemas/test.schema.json", data, err)
}
