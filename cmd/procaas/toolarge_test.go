package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"procaas/engine/api/cli"
)

// A file that is too large is named as such, and the other files of a directory are formatted.
func TestFileThatIsTooLargeIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	large := []byte("# " + strings.Repeat("x", 1<<20) + "\n")
	for name, data := range map[string][]byte{
		"a.yaml": large, "b.yaml": []byte("pipelines:   [{id: p,  stages: []}]\n"), "api.json": large,
		"c.yaml": []byte("services: [{id: s, url: \"http://127.0.0.1:9\", openapi: api.json}]\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (int, string) {
		var out bytes.Buffer
		code := Main(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		return code, out.String()
	}
	code, out := run("fmt", dir)
	formatted, err := os.ReadFile(filepath.Join(dir, "b.yaml"))
	if code != cli.ExitFindings || !strings.Contains(out, "a.yaml: it has 1048579 bytes, want a file of at most 1 MiB") || err != nil ||
		strings.Contains(string(formatted), ":   [") {
		t.Errorf("want b.yaml formatted and a.yaml named, have code %d, %q, %v and\n%s", code, formatted, err, out)
	}
	code, out = run("validate", filepath.Join(dir, "c.yaml"))
	if code != cli.ExitFindings || !strings.Contains(out, "cannot be read: it has 1048579 bytes") || strings.Contains(out, "there is no file") {
		t.Errorf("want the file named as too large, have code %d and\n%s", code, out)
	}
}
