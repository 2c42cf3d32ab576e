package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"procaas/engine/api/cli"
	"procaas/engine/enginetest/patience"
)

// hostile is what a stranger may write into any text: it would set the title of a terminal, clear its screen, hide
// text, overwrite the line, and turn text around.
const hostile = "evil\x1b]0;owned\a\x1b[8m\x1b[2J\u009b31m\u202e\u2066\x7f\b\r"

// An inventor makes values by the schemas of openapi.json, with hostile texts wherever a text may stand.
type inventor struct {
	doc struct {
		Paths      map[string]map[string]operation
		Components struct{ Schemas map[string]schema }
	}
}

type operation struct {
	Responses map[string]struct {
		Content map[string]struct{ Schema schema }
	}
}

type schema struct {
	Ref        string `json:"$ref"`
	Type       any
	Format     string
	Enum       []any
	Items      *schema
	Properties map[string]schema
	More       json.RawMessage `json:"additionalProperties"`
	OneOf      []schema
}

// value returns a value of a schema. A schema may contain itself.
func (v *inventor) value(s schema, depth int) any {
	if s.Ref != "" {
		s = v.doc.Components.Schemas[s.Ref[strings.LastIndex(s.Ref, "/")+1:]]
	}
	switch {
	case len(s.OneOf) > 0:
		return v.value(s.OneOf[0], depth)
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Format == "date-time":
		return time.Now()
	}
	kind := fmt.Sprint(s.Type)
	switch {
	case strings.Contains(kind, "array"):
		if depth > 8 {
			return []any{}
		}
		return []any{v.value(*s.Items, depth+1)}
	case strings.Contains(kind, "object"):
		all := map[string]any{}
		var more schema
		if json.Unmarshal(s.More, &more) == nil && depth < 8 {
			all[hostile] = v.value(more, depth+1)
		}
		for name, p := range s.Properties {
			if name != "next" && name != "$schema" && depth < 8 { // a next page would never end
				all[name] = v.value(p, depth+1)
			}
		}
		return all
	case strings.Contains(kind, "integer"), strings.Contains(kind, "number"):
		return 1
	case strings.Contains(kind, "boolean"):
		return true
	}
	return hostile
}

// reply returns the body of the answer to a request. A template such as /v1/runs/{id} is as good as a name.
func (v *inventor) reply(r *http.Request) any {
	var best string
	parts := strings.Split(r.URL.Path, "/")
	for _, path := range slices.Sorted(maps.Keys(v.doc.Paths)) {
		names := strings.Split(path, "/")
		same := len(names) == len(parts)
		for i := 0; same && i < len(names); i++ {
			same = names[i] == parts[i] || strings.HasPrefix(names[i], "{")
		}
		if same && strings.Count(path, "{") <= strings.Count(best+"{{{{{", "{") && v.doc.Paths[path][strings.ToLower(r.Method)].Responses != nil {
			if best == "" || strings.Count(path, "{") < strings.Count(best, "{") {
				best = path
			}
		}
	}
	for _, status := range []string{"200", "201", "202"} {
		if answer, ok := v.doc.Paths[best][strings.ToLower(r.Method)].Responses[status]; ok {
			return v.value(answer.Content["application/json"].Schema, 0)
		}
	}
	return map[string]any{}
}

// hostileServer answers calls with what a stranger wrote, or refuses them in hostile words.
func hostileServer(t *testing.T, refuses bool) (url string, calls *atomic.Int64) {
	t.Helper()
	var v inventor
	text, err := os.ReadFile(filepath.Join(repository(t), "schemas", "openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &v.doc); err != nil {
		t.Fatal(err)
	}
	calls = new(atomic.Int64)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		body := v.reply(r)
		w.Header().Set("Content-Type", "application/json")
		if refuses {
			w.WriteHeader(http.StatusConflict)
			body = map[string]any{"status": http.StatusConflict, "code": hostile, "title": hostile, "detail": hostile,
				"errors": []any{map[string]any{"message": hostile, "location": hostile, "value": hostile}}}
		}
		_ = json.NewEncoder(w).Encode(body)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, calls
}

// calling returns a command line for each command that calls a server.
func calling(t *testing.T) [][]string {
	extra := map[string]string{
		"submit": "--type work", "runs retry": "key", "runs cancel": "key", "runs migrate": "key", "runs make-up": "--handler work/only/call",
		"top":       "--once",
		"token new": "--name eve --role viewer", "explain": "some-key work/only/call", "inbox move": "--slots 1-2 --to b",
		"switch off": "work/only --for 1m", "switch hold": "work/only --for 1m", "limit": "work/only 1/s", "deadline": "work/only 1s", "release promote": "5",
		"triggers backfill": "x --from 1h", "queue move": "type --to other", "subscriptions retry": "s --all", "subscriptions discard": "s --all", "release rollback": "abc", "release rollout": "work/only 5", "balancer record": "c",
		"shard list": "m", "replay": taxiDir, "diff": "../../pipelines/recipes " + taxiDir, "inbox slots": "key",
		"balancer lever drain": "w", "balancer lever undrain": "w", "release deploy": "../../deploy/flows", "release pull": t.TempDir(),
		"shard add": "m s --from postgres://127.0.0.1:1/a --to postgres://127.0.0.1:1/b",
	}
	var lines [][]string
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if !c.Runnable() || c.Flag("server") == nil && c.InheritedFlags().Lookup("server") == nil {
			return
		}
		name := strings.TrimPrefix(c.CommandPath(), "procaas ")
		if name == "gen alerts" {
			return // it only prints the address
		}
		line := strings.Fields(name)
		if more, ok := extra[name]; ok {
			line = append(line, strings.Fields(more)...)
		}
		for _, word := range strings.Fields(c.Use)[1:] {
			value := map[string]string{
				"JSON": "1", "PERCENT": "5", "PARTITION": "1", "REVISION": "1", "RUN|KEY": "some-key", "RUN|KEY…": "some-key",
			}[word]
			if _, given := extra[name]; given || strings.ToUpper(word) != word || strings.HasPrefix(word, "[") {
				break
			}
			if value == "" {
				value = "x"
			}
			line = append(line, value)
		}
		if c.Flag("reason") != nil {
			line = append(line, "--reason", "r")
		}
		lines = append(lines, line)
	}
	walk(newRoot(cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}))
	return lines
}

// checkPrinted fails for what a terminal would obey.
func checkPrinted(t *testing.T, line []string, printed []byte) {
	t.Helper()
	for _, r := range string(printed) {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			t.Errorf("procaas %q prints %q, in %.300q", line, r, printed)
			return
		}
	}
}

// runLine runs a command and returns what it prints. No command may wait for more.
func runLine(t *testing.T, line []string) []byte {
	t.Helper()
	ctx, cancel := patience.Context(t.Context(), 5*time.Second)
	defer cancel()
	var out bytes.Buffer
	Main(ctx, line, cli.Streams{In: strings.NewReader("{}"), Out: &out, Err: &out})
	return out.Bytes()
}

// TestNothingHostileReachesTheTerminalFromAServer runs all commands that call a server against one that answers
// with control characters wherever a text may stand.
func TestNothingHostileReachesTheTerminalFromAServer(t *testing.T) {
	t.Parallel()
	for _, refuses := range []bool{false, true} {
		url, calls := hostileServer(t, refuses)
		shown := 0
		for _, line := range calling(t) {
			before := calls.Load()
			printed := runLine(t, append(line, "--server", url))
			checkPrinted(t, line, printed)
			if bytes.Contains(printed, []byte("Available Commands:")) {
				continue // only its sub-commands do anything
			}
			if calls.Load() == before {
				t.Errorf("procaas %q has asked nothing: %.300s", line, printed)
			}
			if bytes.Contains(printed, []byte(`evil\x1b]0;owned`)) {
				shown++
			} else if refuses {
				t.Errorf("procaas %q does not show the refusal: %.300s", line, printed)
			}
			if !bytes.Contains(printed, []byte("unknown flag")) {
				checkPrinted(t, line, runLine(t, append(line, "--server", url, "--format", "json")))
			}
		}
		t.Logf("%d commands show the text", shown)
		if shown < 20 {
			t.Errorf("only %d commands have printed hostile text", shown)
		}
	}
}

// TestNothingHostileReachesTheTerminalFromFiles runs commands for authors on files whose names and content are hostile.
func TestNothingHostileReachesTheTerminalFromFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	quoted := `"evil\e]0;owned\a\e[2J\x9b31m\u202e\x7f\b\r"`
	write("good\x1b[2J.yaml", `
owner: `+quoted+`
triggers: [{id: t, every: 1h, emit: {type: work, key: `+quoted+`}}]
pipelines:
  - id: work
    description: `+quoted+`
    shared-state: {name: null}
    stages: [{id: only, handlers: [{id: call, set: {name: `+quoted+`}}, {id: ends, fail: {message: `+quoted+`}}]}]
`)
	write("good.test.yaml", `tests: [{name: `+quoted+`, events: {type: work}, expect: {status: succeeded, shared-state: {name: `+quoted+`}}}]`)
	bad := filepath.Join(dir, "bad")
	if err := os.Mkdir(bad, 0o700); err != nil {
		t.Fatal(err)
	}
	write("bad/bad\x1b[2J\u202e.yaml", `
pipelines:
  - id: `+quoted+`
    stages: [{id: only, handlers: [{id: `+quoted+`, requests: {}, set: {x: !$ `+quoted+`}}]}]
`)
	shown := 0
	for _, line := range [][]string{
		{"validate", bad}, {"validate", bad, "--format", "github"}, {"validate", bad, "--format", "json"},
		{"validate", bad, "--format", "sarif"}, {"validate", bad, "--format", "junit"}, {"validate", dir}, {"plan", "work", dir}, {"owners", dir},
		{"triggers", dir}, {"test", dir}, {"test", dir, "--format", "github"}, {"test", dir, "--format", "junit"},
		{"run", "work", "--event", "-", "-p", dir}, {"fmt", "--check", dir}, {"fmt", "--diff", dir}, {"fmt", "--from-v1", "--diff", dir},
		{"explain", hostile}, {"diff", bad, dir}, {"eval", hostile}, {"docs", hostile}, {hostile}, {"runs", "list", "--server", hostile},
		{"gen", "dashboard", dir}, {"gen", "alerts", dir}, {"serve", "--pipelines", bad}, {"store", "migrate", "--store", "sqlite:" + filepath.Join(dir, hostile)},
	} {
		printed := runLine(t, line)
		checkPrinted(t, line, printed)
		if bytes.Contains(printed, []byte(`\x1b`)) || bytes.Contains(printed, []byte(`\u202e`)) {
			shown++
		}
	}
	t.Logf("%d commands show the text", shown)
	if shown < 8 {
		t.Errorf("only %d commands have printed hostile text", shown)
	}
}
