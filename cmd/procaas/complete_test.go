package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"procaas/engine/api/cli"
)

// suggestions returns what a shell offers after a command line, without its last line, the directive.
func suggestions(t *testing.T, line ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	Main(t.Context(), append([]string{"__complete"}, line...), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	text := out.String()
	i := strings.LastIndex(text, ":")
	if i < 0 || strings.Contains(errs.String(), "rror") {
		t.Fatalf("%q: have %q and %q", line, text, errs.String())
	}
	return "\n" + text[:i]
}

// A shell completes names of the server, of files and of the language. Without a server it offers nothing, and says nothing.
func TestShellCompletesNames(t *testing.T) {
	s := serveOn(t, "sqlite:"+filepath.Join(t.TempDir(), "s.db"))
	s.becomes("/readyz", http.StatusOK)
	if code := Main(t.Context(), []string{"submit", "--type", "work", "--key", "k-1", "--server", s.url},
		cli.Streams{In: strings.NewReader(""), Out: s, Err: s}); code != cli.ExitFine {
		t.Fatalf("submit: %s", s.said())
	}
	dir := t.TempDir()
	text := "owner: shop\npipelines:\n  - id: from-file\n    stages: [{id: only, handlers: [{id: pong, wait: {for: 1s}}]}]\n"
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for line, want := range map[string][]string{
		"switch off ":             {"work", "work/first", "work/last/broken"},
		"limit ":                  {"work"},
		"deadline ":               {"work"},
		"rollout ":                {"work"},
		"runs show ":              {"k-1"},
		"runs retry k-1 ":         {"k-1"},
		"runs list --status ":     {"succeeded", "parked"},
		"runs list --pipeline ":   {"work"},
		"runs list --key ":        {"k-1"},
		"runs make-up --handler ": {"work/first"},
		"rollback ":               {""},
		"versions show ":          {""},
		"token new --role ":       {"deployer", "viewer"},
		"audit --kind ":           {"definition"},
		"submit --type ":          {"work"},
		"explain k-1 ":            {"work/first"},
		"versions --format ":      {"text", "json"},
	} {
		words := strings.Split(line, " ")
		place := len(words) - 1
		if strings.HasPrefix(words[place-1], "--") {
			place--
		}
		have := suggestions(t, slices.Insert(words, place, "--server", s.url)...)
		for _, w := range want {
			if !strings.Contains(have, "\n"+w) {
				t.Errorf("%q: have %q, want %q in it", line, have, w)
			}
		}
	}
	for line, want := range map[string]string{
		"plan ": "from-file", "run ": "from-file", "docs ": "tutorial", "explain ": "stage", "explain PC": "PC0227", "serve --log-level ": "debug",
	} {
		words := strings.Split(line, " ")
		if have := suggestions(t, words...); !strings.Contains(have, "\n"+want) {
			t.Errorf("%q: have %q, want %q in it", line, have, want)
		}
	}
	for _, line := range [][]string{{"switch", "off"}, {"runs", "show"}, {"versions", "show"}, {"config", "set"}, {"token", "revoke"}} {
		have := suggestions(t, append(line, "--server", "http://127.0.0.1:1", "")...)
		if strings.TrimSpace(have) != "" && !strings.Contains(have, "from-file") {
			t.Errorf("%q without a server: have %q, want nothing or what files have", line, have)
		}
	}
}

// Each command whose usage names a path, run, version or pipeline of a server completes it.
func TestEveryCommandCompletesWhatItTakes(t *testing.T) {
	t.Parallel()
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			visit(sub)
		}
		calls := c.Flag("server") != nil || c.InheritedFlags().Lookup("server") != nil
		for _, word := range []string{
			" PATH", "RUN|KEY", " VERSION", "[VERSION", " PIPELINE", "[PIPELINE", " MAP", "[MAP", " SHARD", " CELL", " WORKER", " PARTITION", " REVISION",
		} {
			if calls && strings.Contains(c.Use, word) && c.ValidArgsFunction == nil && c.Name() != "make-up" {
				t.Errorf("%s does not complete %s", c.CommandPath(), word)
			}
		}
		for _, name := range []string{"pipeline", "handler", "status", "format", "service", "owner", "cluster", "role"} {
			if f := c.LocalFlags().Lookup(name); f != nil && f.Value.Type() != "bool" {
				if _, completes := c.GetFlagCompletionFunc(name); !completes {
					t.Errorf("%s does not complete --%s", c.CommandPath(), name)
				}
			}
		}
	}
	visit(newRoot(cli.Streams{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}))
}
