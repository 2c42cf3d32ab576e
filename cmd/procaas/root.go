package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"procaas/engine/api"
)

// The exit codes, as --help shows them.
const (
	exitFine     = 0 // nothing to complain about
	exitFindings = 1 // findings, or a run that failed
	exitUsage    = 2 // wrong use of the command line
	exitBroken   = 3 // could not work
)

// streams are what a command reads and writes. Results go to out, everything
// about them to err.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// errFindings ends a command whose output already says what is wrong.
var errFindings = errors.New("findings")

// A usageError says that the command line makes no sense.
type usageError struct{ error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// wrongUse are the statuses by which a server says that what it was asked for
// makes no sense, or is not there: asking again would not help.
var wrongUse = []int{http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}

// Main runs the command line and gives the exit code.
func Main(ctx context.Context, args []string, s streams) int {
	root := newRoot(s)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitFine
	case errors.Is(err, errFindings):
		return exitFindings
	case errors.As(err, &usage):
		fmt.Fprintf(s.err, "procaas: %v\nSee procaas --help.\n", err)
		return exitUsage
	default:
		fmt.Fprintf(s.err, "procaas: %v\n", err)
		if errors.Is(err, syscall.ECONNREFUSED) && errors.As(err, new(*url.Error)) {
			fmt.Fprintln(s.err, "Is a server running there? Start one with procaas serve, or name another with --server.")
		}
		var refused *api.Problem
		if errors.As(err, &refused) && refused.Status == http.StatusUnauthorized {
			fmt.Fprintln(s.err, "Give a token with --token or PROCAAS_TOKEN; an admin makes one by procaas token new.")
		}
		if refused != nil && slices.Contains(wrongUse, refused.Status) {
			return exitUsage
		}
		return exitBroken
	}
}

const longHelp = `procaas runs events through pipelines that teams write in YAML: in order for
each key, in parallel wherever that is provably safe, with checkpoints that
survive a crash.

  procaas demo                      see a whole taxi company at work
  procaas validate flows/           find every problem in a directory
  procaas dev flows/                run it here, reloading on each change
  procaas serve --store postgres://… --pipelines flows/

Exit codes: 0 fine, 1 findings or a failed run, 2 wrong use, 3 could not work.
Every flag --some-flag may also be set as PROCAAS_SOME_FLAG.`

func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:           "procaas",
		Short:         "Declarative orchestration with checkpoints, switches and graceful degradation",
		Long:          longHelp,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          onlySubcommands,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if err := flagsFromEnv(c.Flags(), os.LookupEnv); err != nil {
				return err
			}
			return checkServer(c.Flags().Lookup("server"))
		},
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if negative.MatchString(err.Error()) {
			return usagef("%w; no number here is negative", err)
		}
		return usageError{err}
	})
	root.AddGroup(
		&cobra.Group{ID: "author", Title: "For authors:"},
		&cobra.Group{ID: "serve", Title: "Running events:"},
		&cobra.Group{ID: "operate", Title: "Operating a server:"},
	)
	for _, c := range []*cobra.Command{
		validateCommand(s), testCommand(s), planCommand(s), runCommand(s), devCommand(s), diffCommand(s), evalCommand(s), explainCommand(s), schemaCommand(s), simulateCommand(s), genCommand(s),
		balancerCommand(s), initCommand(s), newCommand(s), fmtCommand(s), upgradeCommand(s),
	} {
		c.GroupID = "author"
		root.AddCommand(c)
	}
	for _, c := range []*cobra.Command{demoCommand(s), serveCommand(s), migrateCommand(s), demoBalancerCommand(s), demoWorkerCommand(s)} {
		c.GroupID = "serve"
		root.AddCommand(c)
	}
	for _, c := range []*cobra.Command{submitCommand(s), runsCommand(s), switchCommand(s), limitCommand(s), rolloutCommand(s), configCommand(s), tokenCommand(s), auditCommand(s), nodesCommand(s), queueCommand(s), inboxCommand(s), shardCommand(s), topCommand(s), reloadCommand(s)} {
		c.GroupID = "operate"
		root.AddCommand(c)
	}
	checkArgs(root)
	return root
}

// checkServer refuses a --server that nothing can be asked at.
func checkServer(f *pflag.Flag) error {
	if f == nil || f.Value.String() == "" && f.DefValue == "" {
		return nil
	}
	at, err := url.Parse(f.Value.String())
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
		return usagef("--server %q: want the address of a server, such as http://127.0.0.1:8080", f.Value.String())
	}
	return nil
}

// negative finds a negative number that was taken for a flag.
var negative = regexp.MustCompile(`unknown shorthand flag: '[0-9]'`)

// onlySubcommands refuses words that are no sub-command, with a suggestion.
func onlySubcommands(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("unknown command %q; did you mean %q?", args[0], strings.Join(near, `" or "`))
	}
	return usagef("unknown command %q", args[0])
}

// checkArgs makes wrong numbers of arguments a usage error everywhere.
func checkArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			var usage usageError
			if err == nil || errors.As(err, &usage) {
				return err
			}
			return usagef("%s: %w; use: %s", c.Name(), err, c.UseLine())
		}
	}
	for _, sub := range c.Commands() {
		checkArgs(sub)
	}
}

// flagsFromEnv sets each flag that the command line leaves out from its
// environment twin: --max-in-flight from PROCAAS_MAX_IN_FLIGHT.
func flagsFromEnv(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "help" || f.Name == "version" {
			return
		}
		name := "PROCAAS_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := lookup(name)
		if !ok || value == "" {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			errs = append(errs, usagef("%s=%q: %w", name, value, err))
		}
	})
	return errors.Join(errs...)
}

// formatFlag adds --format with the formats that a command knows, the first
// being the default. Its value must be read through the returned function.
func formatFlag(c *cobra.Command, formats ...string) func() (string, error) {
	value := c.Flags().String("format", formats[0], "output as "+strings.Join(formats, ", "))
	return func() (string, error) {
		for _, f := range formats {
			if f == *value {
				return f, nil
			}
		}
		return "", usagef("--format %q: want one of %s", *value, strings.Join(formats, ", "))
	}
}

// pageSize refuses a --limit that no page has.
func pageSize(limit int) error {
	if limit < 1 || limit > 1000 {
		return usagef("--limit %d: want a number from 1 to 1000", limit)
	}
	return nil
}

// colorful tells whether w is a terminal that wants colour.
func colorful(w io.Writer) bool {
	return terminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// terminal tells whether w is one.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
