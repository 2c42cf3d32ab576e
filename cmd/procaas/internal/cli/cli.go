// Package cli is what all commands have in common: their streams, exit codes, flags, formats and
// tables, and the server that many of them talk to.
package cli

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/render"
)

// stamp is set by the build to what git describes; empty otherwise.
var stamp string

// Version returns what was built.
func Version() string {
	if stamp != "" {
		return stamp
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// Streams are what a command reads and writes. Results go to Out, everything
// about them to Err.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// Of returns the streams of a command.
func Of(c *cobra.Command) Streams {
	return Streams{c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr()}
}

// Printf prints a part of the result.
func (s Streams) Printf(format string, args ...any) error {
	_, err := fmt.Fprintf(s.Out, format, args...)
	return err
}

// PrintJSON prints a result for programs.
func (s Streams) PrintJSON(v any) error { return datum.WriteJSON(s.Out, v) }

// Findings shows what is wrong with files on standard error.
func (s Streams) Findings(files []diag.File, found []diag.Diagnostic) error {
	if len(found) == 0 {
		return nil
	}
	return render.Write(s.Err, render.Text, files, found, Colorful(s.Err))
}

// Colorful reports whether w is a terminal that wants colour.
func Colorful(w io.Writer) bool {
	return Terminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// Terminal reports whether a stream is one.
func Terminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// Meant says which of the known names is likely meant by one that is not among them, in the
// words of near, which has a verb for it; otherwise, where none is like it.
func Meant(name string, known []string, near, otherwise string) string {
	if found := diag.Suggest(name, known); found != "" {
		return fmt.Sprintf(near, found)
	}
	return otherwise
}

// Names lists what things are called.
func Names[T any](all []T, name func(T) string) []string {
	names := make([]string, 0, len(all))
	for _, x := range all {
		names = append(names, name(x))
	}
	return names
}
