package cli

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Format adds --format with the formats of a command. The first is the default. [Prepare] refuses others.
func Format(c *cobra.Command, formats ...string) *string {
	value := c.Flags().String("format", formats[0], "output format: "+strings.Join(formats, ", "))
	_ = c.Flags().SetAnnotation("format", formatsKnown, formats) // cannot fail: the flag exists
	return value
}

const formatsKnown = "procaas formats"

// Formats returns the formats that a flag of [Format] takes, or nil for another flag.
func Formats(f *pflag.Flag) []string { return f.Annotations[formatsKnown] }

// checkFormat refuses an unknown --format.
func checkFormat(c *cobra.Command) error {
	f := c.Flags().Lookup("format")
	if f == nil || slices.Contains(f.Annotations[formatsKnown], f.Value.String()) {
		return nil
	}
	return Usagef("--format %q: want one of %s", f.Value, strings.Join(f.Annotations[formatsKnown], ", "))
}

// Prepare sets flags from the environment and then from the file of [ConfigFlag], and refuses invalid values.
func Prepare(c *cobra.Command) error {
	if err := flagsFromEnv(c.Flags(), os.LookupEnv); err != nil {
		return err
	}
	if c.Flags().Lookup("listen") != nil { // a server, which would run for long with what its operator did not mean
		for _, note := range strayVariables(c.Root(), os.Environ()) {
			fmt.Fprintf(Of(c).Err, "procaas: %s\n", note)
		}
	}
	if err := flagsFromFile(c.Flags()); err != nil {
		return err
	}
	if err := checkServer(c); err != nil {
		return err
	}
	return checkFormat(c)
}

// negative finds a negative number that was read as a flag.
var negative = regexp.MustCompile(`unknown shorthand flag: '[0-9]'`)

// unknownFlag finds the name of an unknown flag.
var unknownFlag = regexp.MustCompile(`^unknown flag: --(\S+)$`)

// FlagError adds a suggestion to the error for an unknown flag.
func FlagError(c *cobra.Command, err error) error {
	if negative.MatchString(err.Error()) {
		return Usagef("%w; no number here is negative", err)
	}
	if found := unknownFlag.FindStringSubmatch(err.Error()); found != nil {
		var known []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				known = append(known, f.Name)
			}
		})
		return Usagef("%w%s", err, Meant(found[1], known, "; did you mean --%s?", ", which "+c.CommandPath()+" does not take"))
	}
	return Usage(badFlag(err))
}

// OnlySubcommands refuses words that are not sub-commands, with a suggestion.
func OnlySubcommands(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		return Usagef(`unknown command %q; did you mean "%s"?`, args[0], strings.Join(near, `" or "`))
	}
	return Usagef("unknown command %q", args[0])
}

// CheckArgs makes wrong numbers of arguments and unknown sub-commands usage errors. For a command without work
// of its own, cobra would print the help and exit with 0.
func CheckArgs(c *cobra.Command) {
	if c.HasSubCommands() && !c.Runnable() {
		c.Args, c.RunE = OnlySubcommands, func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			if err == nil || errors.As(err, new(UsageError)) {
				return err
			}
			if len(args) > 0 && strings.HasPrefix(err.Error(), "unknown command") { // cobra's error where no arguments are allowed
				return Usagef("%s takes no arguments, have %q; use: %s", c.Name(), args[0], c.UseLine())
			}
			return Usagef("%s: %w; use: %s", c.Name(), err, c.UseLine())
		}
	}
	for _, sub := range c.Commands() {
		CheckArgs(sub)
	}
}

// variablePrefix begins the environment variables that set flags.
const variablePrefix = "PROCAAS_"

// variableOf returns the environment variable that sets a flag.
func variableOf(flag string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// ofKubernetes matches the variables that Kubernetes sets for a service with the name procaas.
var ofKubernetes = regexp.MustCompile(`^PROCAAS_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// strayVariables describes variables of an environment that look as if they set a flag, but set none of any command
// below root.
func strayVariables(root *cobra.Command, environ []string) (notes []string) {
	known := map[string]bool{}
	var collect func(*cobra.Command)
	collect = func(c *cobra.Command) {
		add := func(f *pflag.Flag) { known[variableOf(f.Name)] = true }
		c.Flags().VisitAll(add)
		c.PersistentFlags().VisitAll(add)
		for _, sub := range c.Commands() {
			collect(sub)
		}
	}
	collect(root)
	var words []string
	for name := range known {
		words = append(words, strings.TrimPrefix(name, variablePrefix))
	}
	slices.Sort(words)
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		word, ours := strings.CutPrefix(name, variablePrefix)
		ours = ours && !strings.HasPrefix(name, "PROCAAS_SECRET_") && !strings.HasPrefix(name, "PROCAAS_TEST_")
		if !ours || value == "" || known[name] || ofKubernetes.MatchString(name) {
			continue
		}
		notes = append(notes, fmt.Sprintf("the variable %s sets no flag%s", name, Meant(word, words, "; did you mean "+variablePrefix+"%s?", " of any command")))
	}
	slices.Sort(notes)
	return notes
}

// flagsFromEnv sets flags that were not given from environment variables, such as --max-in-flight from
// PROCAAS_MAX_IN_FLIGHT.
func flagsFromEnv(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || OnlyOnLine(f) || f.Name == "help" || f.Name == "version" {
			return
		}
		name := variableOf(f.Name)
		value, ok := lookup(name)
		if !ok || value == "" {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			errs = append(errs, Usagef("%s=%q: %w", name, value, wantedOf(f, err)))
		}
	})
	return errors.Join(errs...)
}

// wantedValues describe the values of flags, by type.
var wantedValues = map[string]string{
	"int": "a whole number", "int32": "a whole number", "int64": "a whole number",
	"uint": "a whole number, 0 or more", "uint16": "a whole number from 0 to 65535", "uint32": "a whole number, 0 or more",
	"uint64":  "a whole number, 0 or more",
	"float32": "a number", "float64": "a number", "bool": "true or false", "duration": "a duration such as 300ms, 5s or 1h30m",
	"stringToString": "NAME=VALUE", "stringSlice": "a list with commas between its elements", "intSlice": "whole numbers with commas " +
		"between them",
}

// badFlag replaces the error of the standard library for a flag's value, which is for programmers.
func badFlag(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	return fmt.Errorf("--%s %q: %w", bad.GetFlag().Name, bad.GetValue(), wantedOf(bad.GetFlag(), err))
}

// wantedOf describes the value of a flag. A custom type's own error does so already.
func wantedOf(f *pflag.Flag, err error) error {
	if want, known := wantedValues[f.Value.Type()]; known {
		return errors.New("want " + want)
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return bad.Unwrap()
	}
	return err
}

// Share parses a percentage such as 5% or 5.
func Share(text string) (float64, error) {
	p, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !(p > 0 && p <= 100) {
		return 0, Usagef("%q: want a percentage above 0 and up to 100, such as 5%%", text)
	}
	return p, nil
}
