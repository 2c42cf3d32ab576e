// Package cli has the common parts of all commands: streams, exit codes, flags, formats, tables, and the client
// of a server.
package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/render"
)

// stamp is the output of git describe, set by the build.
var stamp string

// Version returns the version of the program.
func Version() string {
	if stamp != "" {
		return stamp
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// A build says which program this is.
type build struct {
	Version  string `json:"version"`  // as [Version]
	Go       string `json:"go"`       // the release of Go that built it
	Platform string `json:"platform"` // operating system and processor, such as linux/amd64
}

// VersionCommand prints the version of the program.
func VersionCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "version", Short: "Print the version of this program", Args: cobra.NoArgs,
		Example: "  procaas version --format json",
	}
	format := Format(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		b := build{Version: Version(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
		if *format == "json" {
			return Of(c).PrintJSON(b)
		}
		return Of(c).Printf("procaas %s (%s, %s)\n", b.Version, b.Go, b.Platform)
	}
	return c
}

// Streams are the input and output of a command. Results go to Out, and everything else to Err.
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

// Findings prints findings to standard error.
func (s Streams) Findings(files []diag.File, found []diag.Diagnostic) error {
	if len(found) == 0 {
		return nil
	}
	return render.Write(s.Err, render.Text, files, found, Colorful(s.Err))
}

// Meant returns a suggestion for an unknown name. near is its format, with a verb for the nearest known name.
// Without a near name it returns otherwise.
func Meant(name string, known []string, near, otherwise string) string {
	if found := diag.Suggest(name, known); found != "" {
		return fmt.Sprintf(near, found)
	}
	return otherwise
}

// Names returns the names of some things.
func Names[T any](all []T, name func(T) string) []string {
	names := make([]string, 0, len(all))
	for _, x := range all {
		names = append(names, name(x))
	}
	return names
}
