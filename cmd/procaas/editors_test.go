//go:build editors

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/textproto"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"procaas/cmd/procaas/internal/source"
	"procaas/engine/api/cli"
	"procaas/engine/enginetest/patience"
)

// yamlServer is the language server that editors such as VS Code use for YAML.
const yamlServer = "yaml-language-server@1.25.0"

// TestEditorsKnowTheLanguage drives the YAML language server over standard input
// and output, with the settings and schemas that init writes: our files have no
// findings, mistakes have, and fields are completed and explained.
func TestEditorsKnowTheLanguage(t *testing.T) {
	dir := t.TempDir()
	if code := Main(t.Context(), []string{"init", dir}, cli.Streams{Out: io.Discard, Err: io.Discard}); code != cli.ExitFine {
		t.Fatalf("have exit code %d", code)
	}
	e := startEditor(t, dir)

	files, err := source.Files([]string{"../../pipelines", dir + "/pipelines"}, nil, source.IsYAML)
	if err != nil {
		t.Fatal(err)
	}
	opened := 0
	for _, f := range files {
		if source.IsStub(f.Name) {
			continue // no schema tells about those
		}
		name := "pipelines/copy-" + strconv.Itoa(opened) + "-" + filepath.Base(f.Name)
		if found := e.open(name, string(f.Data)); len(found) > 0 {
			t.Errorf("%s: the editor finds %v", f.Name, found)
		}
		opened++
	}
	if opened < 10 {
		t.Errorf("only %d files were opened", opened)
	}

	t.Run("mistakes", func(t *testing.T) {
		for i, m := range []struct{ line, want string }{
			{"critcal: false", "critcal"},
			{"retry: {atempts: 3}", "atempts"},
			{"retry: [3]", "type"},
			{"retry: {attempts: many}", "type"},
			{"critical: sometimes", "type"},
		} {
			text := flowWith(m.line)
			found := strings.Join(e.open(fmt.Sprintf("pipelines/mistake-%d.yaml", i), text), "\n")
			if !strings.Contains(found, m.want) {
				t.Errorf("%s: have the findings %q, want one about %q", m.line, found, m.want)
			}
		}
	})
	t.Run("completion and help", func(t *testing.T) {
		text := flowWith("critical: false\n            ")
		e.open("pipelines/complete.yaml", text)
		labels := e.complete("pipelines/complete.yaml", strings.Count(text, "\n")-1, 12)
		for _, want := range []string{"enabled", "retry", "request", "set", "fallback"} {
			if !strings.Contains(labels, "|"+want+"|") {
				t.Errorf("%s is not offered; have %s", want, labels)
			}
		}
		if help := e.hover("pipelines/complete.yaml", 6, 14); !strings.Contains(help, "run") {
			t.Errorf("the help for critical is %q", help)
		}
	})
}

// flowWith puts a line into a handler.
func flowWith(line string) string {
	return "pipelines:\n  - id: p\n    stages:\n      - id: s\n        handlers:\n          - id: h\n            " + line + "\n"
}

// An editor is a client of the language server.
type editor struct {
	t        *testing.T
	ctx      context.Context
	root     string
	in       io.Writer
	inbox    chan map[string]any
	settings map[string]any
	lastID   int
}

// startEditor installs the server, unless it is there, and opens a folder.
func startEditor(t *testing.T, dir string) *editor {
	t.Helper()
	ctx, cancel := patience.Context(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "node", installServer(ctx, t), "--stdio")
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	e := &editor{
		t: t, ctx: ctx, root: "file://" + (&url.URL{Path: dir}).EscapedPath(), in: in, inbox: make(chan map[string]any, 1000),
		settings: settingsOf(t, dir),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.read(bufio.NewReader(out))
	}()
	t.Cleanup(func() {
		_ = in.Close()
		cancel()
		<-done
		_ = cmd.Wait()
	})
	e.call("initialize", map[string]any{
		"processId": nil, "rootUri": e.root, "workspaceFolders": []any{map[string]any{"uri": e.root, "name": "flows"}},
		"capabilities": map[string]any{
			"workspace":    map[string]any{"configuration": true},
			"textDocument": map[string]any{"publishDiagnostics": map[string]any{}, "hover": map[string]any{"contentFormat": []string{"markdown"}}},
		},
	})
	e.notify("initialized", map[string]any{})
	e.notify("workspace/didChangeConfiguration", map[string]any{"settings": e.settings})
	return e
}

// installServer returns the path of the server, which npm installs into the cache of
// the user.
func installServer(ctx context.Context, t *testing.T) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is missing; install Node.js 20 or newer (Debian: apt-get install nodejs npm), or leave out editors of make test-long", program)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(cache, "procaas", strings.ReplaceAll(yamlServer, "@", "-"))
	bin := filepath.Join(home, "node_modules", "yaml-language-server", "bin", "yaml-language-server")
	if _, err := os.Stat(bin); err == nil {
		return bin
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		t.Fatal(err)
	}
	npm := exec.CommandContext(ctx, "npm", "install", "--prefix", home, "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts",
		yamlServer)
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm could not install %s, which it takes from its registry: %v\n%s", yamlServer, err, out)
	}
	return bin
}

// settingsOf reads the settings that init has written, as VS Code hands them on.
func settingsOf(t *testing.T, dir string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, ".vscode", "settings.json"))
	var flat map[string]any
	if err == nil {
		err = json.Unmarshal(data, &flat)
	}
	if err != nil {
		t.Fatal(err)
	}
	yaml := map[string]any{"validate": true, "completion": true, "hover": true, "schemaStore": map[string]any{"enable": false}}
	for name, value := range flat {
		yaml[strings.TrimPrefix(name, "yaml.")] = value
	}
	return map[string]any{"yaml": yaml}
}

// read takes the server's messages until it ends.
func (e *editor) read(in *bufio.Reader) {
	defer close(e.inbox)
	for {
		head, err := textproto.NewReader(in).ReadMIMEHeader()
		if err != nil {
			return
		}
		n, err := strconv.Atoi(head.Get("Content-Length"))
		if err != nil {
			return
		}
		body := make([]byte, n)
		var m map[string]any
		if _, err := io.ReadFull(in, body); err != nil || json.Unmarshal(body, &m) != nil {
			return
		}
		select {
		case e.inbox <- m:
		case <-e.ctx.Done():
			return
		}
	}
}

func (e *editor) send(m map[string]any) {
	e.t.Helper()
	m["jsonrpc"] = "2.0"
	body, err := json.Marshal(m)
	if err == nil {
		_, err = fmt.Fprintf(e.in, "Content-Length: %d\r\n\r\n%s", len(body), body)
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *editor) notify(method string, params any) {
	e.t.Helper()
	e.send(map[string]any{"method": method, "params": params})
}

// answer returns the settings when the server asks for them; else nothing.
func (e *editor) answer(m map[string]any) any {
	params, _ := m["params"].(map[string]any)
	items, ok := params["items"].([]any)
	if m["method"] != "workspace/configuration" || !ok {
		return nil
	}
	var answers []any
	for _, item := range items {
		section, _ := item.(map[string]any)["section"].(string)
		answers = append(answers, e.settings[section])
	}
	return answers
}

// await takes messages until one is wanted, and answers requests of the server.
func (e *editor) await(what string, wanted func(m map[string]any) bool) map[string]any {
	e.t.Helper()
	for {
		select {
		case m, ok := <-e.inbox:
			if !ok {
				e.t.Fatalf("the server ended before %s", what)
			}
			if wanted(m) {
				return m
			}
			if m["id"] != nil && m["method"] != nil {
				e.send(map[string]any{"id": m["id"], "result": e.answer(m)})
			}
		case <-e.ctx.Done():
			e.t.Fatalf("waited too long for %s", what)
		}
	}
}

func (e *editor) call(method string, params any) any {
	e.t.Helper()
	e.lastID++
	id := float64(e.lastID)
	e.send(map[string]any{"id": id, "method": method, "params": params})
	m := e.await(method, func(m map[string]any) bool { return m["id"] == id && m["method"] == nil })
	if m["error"] != nil {
		e.t.Fatalf("%s: %v", method, m["error"])
	}
	return m["result"]
}

func (e *editor) uri(name string) string { return e.root + "/" + name }

// open shows a file to the server and returns what it finds.
func (e *editor) open(name, text string) []string {
	e.t.Helper()
	e.notify("textDocument/didOpen", map[string]any{"textDocument": map[string]any{
		"uri": e.uri(name), "languageId": "yaml", "version": 1,
		"text": text,
	}})
	m := e.await("findings of "+name, func(m map[string]any) bool {
		p, _ := m["params"].(map[string]any)
		return m["method"] == "textDocument/publishDiagnostics" && p["uri"] == e.uri(name)
	})
	var found []string
	for _, d := range m["params"].(map[string]any)["diagnostics"].([]any) {
		found = append(found, d.(map[string]any)["message"].(string))
	}
	return found
}

func (e *editor) at(name string, line, column int) map[string]any {
	return map[string]any{"textDocument": map[string]any{"uri": e.uri(name)}, "position": map[string]any{"line": line, "character": column}}
}

// complete returns what is offered at a place.
func (e *editor) complete(name string, line, column int) string {
	e.t.Helper()
	result := e.call("textDocument/completion", e.at(name, line, column))
	if list, ok := result.(map[string]any); ok {
		result = list["items"]
	}
	labels := "|"
	items, _ := result.([]any)
	for _, item := range items {
		labels += item.(map[string]any)["label"].(string) + "|"
	}
	return labels
}

// hover returns the help for a place.
func (e *editor) hover(name string, line, column int) string {
	e.t.Helper()
	return fmt.Sprint(e.call("textDocument/hover", e.at(name, line, column)))
}
