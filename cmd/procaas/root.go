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
	"text/tabwriter"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"procaas/dsl/diag"
	"procaas/engine/api/problem"
)

// The exit codes, as --help shows them.
const (
	exitFine     = 0 // nothing to complain about
	exitFindings = 1 // findings, a run that failed, or a server that refuses
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

// An endError ends a command that has told all its errors itself.
type endError struct{ code int }

// Error implements error.
func (e endError) Error() string { return fmt.Sprintf("ended with exit code %d", e.code) }

// The statuses by which a server says why it does not do what a command asks for.
// All others, and no answer at all, mean that it could not work, and that the same
// may work later.
var (
	// wrongUse: it makes no sense, or what it is about is not there.
	wrongUse = []int{
		http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusLengthRequired,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
	}
	// refusals: it makes sense, and this caller may not do it, or not as things are.
	refusals = []int{
		http.StatusUnauthorized, http.StatusForbidden, http.StatusConflict, http.StatusPreconditionFailed, http.StatusMisdirectedRequest,
	}
)

// exitCode is the code by which a command ends that met an error; what is wrong
// is said elsewhere.
func exitCode(err error) int {
	var ended endError
	var refused *problem.Problem
	switch {
	case err == nil:
		return exitFine
	case errors.As(err, &ended):
		return ended.code
	case errors.Is(err, errFindings):
		return exitFindings
	case errors.As(err, new(usageError)):
		return exitUsage
	case !errors.As(err, &refused):
		return exitBroken
	case slices.Contains(wrongUse, refused.Status):
		return exitUsage
	case slices.Contains(refusals, refused.Status):
		return exitFindings
	}
	return exitBroken
}

// Main runs the command line and gives the exit code.
func Main(ctx context.Context, args []string, s streams) int {
	root := newRoot(s)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	code := exitCode(err)
	if err == nil || errors.Is(err, errFindings) || errors.As(err, new(endError)) {
		return code
	}
	fmt.Fprintf(s.err, "procaas: %v\n", err)
	if errors.As(err, new(usageError)) {
		fmt.Fprintln(s.err, "See procaas --help.")
		return code
	}
	advise(s.err, err)
	return code
}

// graver gives that of two errors which ends a command with the higher exit code: of
// many calls, one that could not be made counts more than one that was refused.
func graver(a, b error) error {
	if exitCode(b) > exitCode(a) {
		return b
	}
	return a
}

// told ends a command with the exit code of an error that people have read already.
func told(s streams, err error) error {
	if err == nil {
		return nil
	}
	advise(s.err, err)
	return endError{exitCode(err)}
}

// advise says what may help against an error of a call.
func advise(w io.Writer, err error) {
	if errors.Is(err, syscall.ECONNREFUSED) && errors.As(err, new(*url.Error)) {
		fmt.Fprintln(w, "Is a server running there? Start one with procaas serve, or name another with --server.")
	}
	var refused *problem.Problem
	if errors.As(err, &refused) && refused.Status == http.StatusUnauthorized {
		fmt.Fprintln(w, "Give a token with --token or PROCAAS_TOKEN; an admin makes one by procaas token new.")
	}
}

const longHelp = `procaas runs events through pipelines that teams write in YAML: in order for
each key, in parallel wherever that is provably safe, with checkpoints that
survive a crash.

  procaas demo                      see a whole taxi company at work
  procaas init shop                 begin a flow of your own
  procaas validate flows/           find every problem in a directory
  procaas dev flows/                run it here, reloading on each change
  procaas explain stage             what a part of the language is, or a code means
  procaas serve --store postgres://… --pipelines flows/

Exit codes: 0 fine, 1 findings or a failed run, 2 wrong use, 3 could not work.
Of a command that calls a server: 1 when it refuses, since the token or the present
state does not allow it; 2 when it does not understand, or does not know the run,
path or name; 3 when it cannot be reached or cannot work, so that trying again
later may help.
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
	root.SetFlagErrorFunc(flagError)
	root.AddGroup(
		&cobra.Group{ID: "author", Title: "For authors:"},
		&cobra.Group{ID: "serve", Title: "Running events:"},
		&cobra.Group{ID: "operate", Title: "Operating a server:"},
	)
	for _, c := range []*cobra.Command{
		validateCommand(s), testCommand(s), planCommand(s), runCommand(s), devCommand(s), diffCommand(s), evalCommand(s), explainCommand(s),
		schemaCommand(s), simulateCommand(s), genCommand(s),
		initCommand(s), newCommand(s), fmtCommand(s), upgradeCommand(s),
	} {
		c.GroupID = "author"
		root.AddCommand(c)
	}
	for _, c := range []*cobra.Command{demoCommand(s), serveCommand(s), migrateCommand(s), demoBalancerCommand(s), demoWorkerCommand(s)} {
		c.GroupID = "serve"
		root.AddCommand(c)
	}
	for _, c := range []*cobra.Command{
		submitCommand(s), runsCommand(s), switchCommand(s), limitCommand(s), rolloutCommand(s),
		configCommand(s), tokenCommand(s), auditCommand(s), nodesCommand(s), queueCommand(s), inboxCommand(s), balancerCommand(s),
		shardCommand(s), topCommand(s), reloadCommand(s),
	} {
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

// unknownFlag finds the name of a flag that a command does not have.
var unknownFlag = regexp.MustCompile(`^unknown flag: --(\S+)$`)

// flagError says what a flag that makes no sense may have meant.
func flagError(c *cobra.Command, err error) error {
	if negative.MatchString(err.Error()) {
		return usagef("%w; no number here is negative", err)
	}
	if found := unknownFlag.FindStringSubmatch(err.Error()); found != nil {
		var known []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				known = append(known, f.Name)
			}
		})
		if near := diag.Suggest(found[1], known); near != "" {
			return usagef("%w; did you mean --%s?", err, near)
		}
		return usagef("%w, which %s does not take", err, c.CommandPath())
	}
	return usageError{badFlag(err)}
}

// onlySubcommands refuses words that are no sub-command, with a suggestion.
func onlySubcommands(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef(`unknown command %q; did you mean "%s"?`, args[0], strings.Join(near, `" or "`))
	}
	return usagef("unknown command %q", args[0])
}

// checkArgs makes wrong numbers of arguments a usage error everywhere, and unknown
// sub-commands: of a command that does nothing itself cobra would show the help then, as
// if all were well.
func checkArgs(c *cobra.Command) {
	if c.HasSubCommands() && !c.Runnable() {
		c.Args, c.RunE = onlySubcommands, func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			var usage usageError
			if err == nil || errors.As(err, &usage) {
				return err
			}
			if len(args) > 0 && strings.HasPrefix(err.Error(), "unknown command") { // what cobra says where no arguments are wanted
				return usagef("%s takes no arguments, have %q; use: %s", c.Name(), args[0], c.UseLine())
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
			errs = append(errs, usagef("%s=%q: %w", name, value, wantedOf(f, err)))
		}
	})
	return errors.Join(errs...)
}

// wantedValues say what flags take, by the types of their values.
var wantedValues = map[string]string{
	"int": "a whole number", "int32": "a whole number", "int64": "a whole number",
	"uint": "a whole number, 0 or more", "uint16": "a whole number from 0 to 65535", "uint32": "a whole number, 0 or more",
	"uint64":  "a whole number, 0 or more",
	"float32": "a number", "float64": "a number", "bool": "true or false", "duration": "a duration such as 300ms, 5s or 1h30m",
	"stringToString": "NAME=VALUE", "stringSlice": "a list with commas between its elements", "intSlice": "whole numbers with commas " +
		"between them",
}

// badFlag says of a value that a flag cannot take what it takes: what the parsers of
// the standard library say is for programmers.
func badFlag(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	return fmt.Errorf("--%s %q: %w", bad.GetFlag().Name, bad.GetValue(), wantedOf(bad.GetFlag(), err))
}

// wantedOf says what a flag takes. A value with a type of its own says so itself.
func wantedOf(f *pflag.Flag, err error) error {
	if want, known := wantedValues[f.Value.Type()]; known {
		return errors.New("want " + want)
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return bad.Unwrap()
	}
	return err
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

// formatted adds --format to a command, as formatFlag does, and runs it with the format that
// was chosen.
func formatted(
	c *cobra.Command, formats []string, run func(c *cobra.Command, args []string, out string) error,
) func(*cobra.Command, []string) error {
	format := formatFlag(c, formats...)
	return func(c *cobra.Command, args []string) error {
		out, err := format()
		if err != nil {
			return err
		}
		return run(c, args, out)
	}
}

// newTable begins a table whose columns are separated by tabs; the header may be empty. It is
// shown when it is flushed.
func newTable(out io.Writer, header string) *tabwriter.Writer {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	if header != "" {
		fmt.Fprintln(w, header)
	}
	return w
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
