package versions

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/engine/api/cli"
	"procaas/engine/definitions"
)

func pullCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "pull DIR",
		Short: "Write the pipelines of a server into a directory",
		Long: `pull writes the files of the version that is current on a server, byte for byte, with
the paths that they had below the directory that was deployed. It is the way back of
procaas deploy.

A file that exists with other contents is not overwritten without --force. Then nothing
is written at all. Files that the version does not have stay, and pull names the
pipelines among them and exits with 1.`,
		Example: "  procaas release pull flows/ --server https://procaas.example\n  procaas release pull before/ --version 1a2b",
		Args:    cobra.ExactArgs(1),
	}
	cli.ServerFlags(c)
	version := c.Flags().String("version", definitions.StateCurrent, "the version to write, or its first 4 digits")
	force := c.Flags().Bool("force", false, "overwrite files that differ")
	return cli.Formatted(c, func(q *cli.Call) error {
		v, err := q.Version(q.Ctx, *version)
		if err != nil {
			return err
		}
		p := pulled{Version: v.Version.Version, dir: q.Args[0], server: q.Server}
		if err := p.write(q.Streams, v.Files, *force); err != nil {
			return err
		}
		if err := p.findOthers(v.Files); err != nil {
			return err
		}
		if err := q.Show(p, func() error { return p.text(q) }); err != nil {
			return err
		}
		return cli.FindingsIf(len(p.Others) > 0)
	})
}

// pulled is what pull prints as JSON. Paths are below the directory.
type pulled struct {
	Version string   `json:"version"`
	Written []string `json:"written"`
	Same    int      `json:"same"`
	Others  []string `json:"others"` // pipelines of the directory that the version does not have

	dir, server string
}

// write writes the files that are missing, and those that differ if force is set. It writes nothing before it knows that
// it may write all.
func (p *pulled) write(s cli.Streams, files []definitions.VersionFile, force bool) (err error) {
	p.Written, p.Others = []string{}, []string{}
	if err := checkWhole(s, p.Version, files); err != nil {
		return err
	}
	if err := os.MkdirAll(p.dir, 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(p.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	var differ []string
	var writes []definitions.VersionFile
	for _, f := range files {
		have, err := root.ReadFile(filepath.FromSlash(f.Path))
		switch {
		case err == nil && bytes.Equal(have, []byte(f.Text)):
			p.Same++
			continue
		case err == nil:
			differ = append(differ, f.Path)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		writes = append(writes, f)
	}
	if len(differ) > 0 && !force {
		fmt.Fprintf(s.Err, "procaas: nothing is written, since %s in %s would be overwritten: %s\n"+
			"procaas diff %s --server %s shows the differences; --force overwrites\n",
			diag.Plural(len(differ), "changed file"), p.dir, strings.Join(differ, ", "), p.dir, p.server)
		return cli.ErrFindings
	}
	for _, f := range writes {
		if err := place(root, filepath.FromSlash(f.Path), []byte(f.Text)); err != nil {
			return err
		}
		p.Written = append(p.Written, f.Path)
	}
	return nil
}

// checkWhole refuses files that are not exactly those of the version, and paths that lead out of the directory.
func checkWhole(s cli.Streams, version string, files []definitions.VersionFile) error {
	set := make([]diag.File, 0, len(files))
	for _, f := range files {
		if !filepath.IsLocal(filepath.FromSlash(f.Path)) {
			fmt.Fprintf(s.Err, "procaas: version %s has the file %q, which lies outside of the directory that was deployed: "+
				"deploy a directory that has all files, such as procaas release deploy .\n", cli.Short(version), f.Path)
			return cli.ErrFindings
		}
		set = append(set, diag.File{ID: f.Path, Data: []byte(f.Text)})
	}
	if dsl.Hash(set) != version {
		return fmt.Errorf("the server sent other files than those of version %s; files that are no UTF-8 cannot be sent", cli.Short(version))
	}
	return nil
}

// place writes a file atomically below root.
func place(root *os.Root, name string, data []byte) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	temp := filepath.Join(filepath.Dir(name), ".procaas-pull-"+filepath.Base(name))
	if err := root.WriteFile(temp, data, 0o666); err != nil {
		return err
	}
	return root.Rename(temp, name)
}

// findOthers lists the pipelines of the directory that the version does not have.
func (p *pulled) findOthers(files []definitions.VersionFile) error {
	has := map[string]bool{}
	for _, f := range files {
		has[f.Path] = true
	}
	all, err := source.Files([]string{p.dir}, nil, source.IsPipeline)
	if err != nil {
		return err
	}
	for _, f := range all {
		if !has[f.ID] {
			p.Others = append(p.Others, f.ID)
		}
	}
	return nil
}

func (p *pulled) text(q *cli.Call) error {
	for _, name := range p.Written {
		fmt.Fprintf(q.Out, "wrote %s\n", name)
	}
	for _, name := range p.Others {
		fmt.Fprintf(q.Err, "procaas: %s is not in the version: procaas release deploy would add it\n", name)
	}
	return q.Printf("%s of version %s in %s: %d written, %d as they were\n", diag.Plural(len(p.Written)+p.Same, "file"), cli.Short(p.Version),
		p.dir, len(p.Written), p.Same)
}
