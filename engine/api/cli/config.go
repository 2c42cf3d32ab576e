package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"
)

// ConfigFlag adds --config: a YAML file with values for the other flags of the command. [Prepare] reads it. The command line wins over
// the environment, and that over the file.
func ConfigFlag(c *cobra.Command) {
	c.Flags().String(configFlag, "", "YAML file with values for these flags, such as max-in-flight: 2000; the command line and the "+
		"environment win over it")
}

const configFlag = "config"

// flagsFromFile sets flags that nobody has set from the file of --config.
func flagsFromFile(flags *pflag.FlagSet) error {
	from := flags.Lookup(configFlag)
	if from == nil || from.Value.String() == "" {
		return nil
	}
	name := from.Value.String()
	text, err := os.ReadFile(name)
	if err != nil {
		return Usagef("--config: %w", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return Usagef("--config %s: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(doc.Content) == 0 {
		return nil // a file of comments
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return Usagef("%s:%d: want a mapping of flags and values, such as max-in-flight: 2000", name, root.Line)
	}
	var errs []error
	wrong := func(at *yaml.Node, format string, args ...any) {
		errs = append(errs, Usagef("%s:%d:%d: %w", name, at.Line, at.Column, fmt.Errorf(format, args...)))
	}
	said := map[string]int{}
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], resolved(root.Content[i+1])
		f := flags.Lookup(key.Value)
		if !settable(f) {
			wrong(key, "unknown setting %q%s", key.Value, Meant(key.Value, settings(flags), "; did you mean %s?", "; want the name of a flag without --"))
			continue
		}
		if line, twice := said[key.Value]; twice {
			wrong(key, "%s is set a second time, after line %d", key.Value, line)
			continue
		}
		said[key.Value] = key.Line
		if f.Changed {
			continue
		}
		if err := setFrom(flags, f, value); err != nil {
			wrong(value, "%s: %w", key.Value, err)
		}
	}
	return errors.Join(errs...)
}

// settings lists what the file of --config may set.
func settings(flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if settable(f) && !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

func settable(f *pflag.Flag) bool {
	return f != nil && !slices.Contains([]string{configFlag, "help", "version"}, f.Name) && !OnlyOnLine(f)
}

// setFrom sets a flag to a value of the file: text, a list for a flag that may be repeated, or a mapping for one of NAME=VALUE.
func setFrom(flags *pflag.FlagSet, f *pflag.Flag, value *yaml.Node) error {
	list, repeats := f.Value.(pflag.SliceValue)
	pairs := f.Value.Type() == "stringToString"
	switch {
	case value.Kind == yaml.ScalarNode && value.ShortTag() != "!!null" && !pairs:
		if repeats {
			f.Changed = true
			return list.Replace([]string{value.Value})
		}
		if err := flags.Set(f.Name, value.Value); err != nil {
			return fmt.Errorf("%q: %w", value.Value, wantedOf(f, err))
		}
		return nil
	case value.Kind == yaml.SequenceNode && repeats:
		var elements []string
		for _, e := range value.Content {
			e = resolved(e)
			if e.Kind != yaml.ScalarNode {
				return fmt.Errorf("line %d: want text", e.Line)
			}
			elements = append(elements, e.Value)
		}
		f.Changed = true
		return list.Replace(elements)
	case value.Kind == yaml.MappingNode && pairs:
		for i := 0; i < len(value.Content); i += 2 {
			at := resolved(value.Content[i+1])
			if at.Kind != yaml.ScalarNode {
				return fmt.Errorf("line %d: want text", at.Line)
			}
			// The flag reads a line of CSV if there are several =.
			pair := `"` + strings.ReplaceAll(value.Content[i].Value+"="+at.Value, `"`, `""`) + `"`
			if err := flags.Set(f.Name, pair); err != nil {
				return wantedOf(f, err)
			}
		}
		return nil
	case pairs:
		return errors.New("want a mapping of names and values")
	case repeats:
		return errors.New("want a value or a list")
	}
	return errors.New("want one value")
}

// resolved returns what an alias stands for.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
