package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"procaas/engine/api/cli"
)

// Whoever copies a command from the help or from a page must not be told that it makes
// no sense: all of them are parsed here, by the commands themselves.

// shellBlock is a block of shell in a page, be it a file of another tool.
var shellBlock = regexp.MustCompile("(?ms)^```sh[^\n]*\n(.*?)^```$")

// TestExamplesMakeSense looks at the examples in the help of each command, and at the
// commands in all pages.
func TestExamplesMakeSense(t *testing.T) {
	t.Parallel()
	seen := 0
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for _, line := range ourCommands(c.Example) {
			seen++
			if problem := misuse(line); problem != "" {
				t.Errorf("%s --help: %q: %s", c.CommandPath(), line, problem)
			}
		}
		if c.HasParent() && c.Runnable() && !c.HasSubCommands() && strings.Contains(c.Use, " ") && c.Example == "" {
			t.Errorf("%s takes arguments, and has no example", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(newRoot(cli.Streams{}))
	pages, err := filepath.Glob("../../*.md")
	if err == nil {
		var inner []string
		err = filepath.WalkDir("../..", func(path string, _ os.DirEntry, err error) error {
			if filepath.Base(path) == "README.md" || strings.HasSuffix(path, ".md") && strings.HasPrefix(path, "../../docs/") {
				inner = append(inner, path)
			}
			return err
		})
		pages = append(pages, inner...)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range shellBlock.FindAllSubmatch(text, -1) {
			for _, line := range ourCommands(string(block[1])) {
				seen++
				if problem := misuse(line); problem != "" {
					t.Errorf("%s: %q: %s", page, line, problem)
				}
			}
		}
	}
	if seen < 80 {
		t.Errorf("have looked at %d commands, want 80 at least", seen)
	}
}

// ourCommands finds calls of procaas in text of shell, as words: also those behind a
// pipe or &&, and over several lines.
func ourCommands(text string) [][]string {
	var out [][]string
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		var call []string
		for _, word := range append(shellWords(line), "|") {
			if !slices.Contains([]string{"|", "&&", "||", ";", "&", ">", ">>", "<"}, word) {
				call = append(call, word)
				continue
			}
			if len(call) > 1 && call[0] == "procaas" {
				out = append(out, call)
			}
			call = nil
		}
	}
	return out
}

// misuse says why a call makes no sense; empty when it does.
func misuse(words []string) string {
	c, rest, err := newRoot(cli.Streams{}).Find(words[1:])
	switch {
	case err != nil:
		return err.Error()
	case !c.HasParent():
		return "no command is named"
	}
	if err := c.ParseFlags(rest); errors.Is(err, pflag.ErrHelp) {
		return ""
	} else if err != nil {
		return err.Error()
	}
	if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		return err.Error()
	}
	return ""
}

// shellWords parts a line as a shell would, up to a comment. Operators have to be
// between blanks.
func shellWords(line string) (words []string) {
	var word strings.Builder
	quote, begun := rune(0), false
	for _, r := range line + "\n" {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, begun = r, true
		case quote == 0 && strings.ContainsRune(" \t\n", r):
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		case quote == 0 && !begun && r == '#':
			return words
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	return words
}
