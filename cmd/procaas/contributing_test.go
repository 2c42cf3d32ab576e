package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pageFile finds the blocks of a page that are files, or changes of files.
var pageFile = regexp.MustCompile("(?ms)^   ```(go|diff|yaml) (\\S+)\n(.*?)^   ```$")

// TestContributingAddsAHandlerType writes the files and makes the changes that the page shows, in an overlay of this tree,
// builds the program and runs the flow of the page with it.
func TestContributingAddsAHandlerType(t *testing.T) {
	t.Parallel()
	page := section(t, "Adding a handler type")
	dir, root := t.TempDir(), repository(t)
	overlay := map[string]string{}
	flows := filepath.Join(dir, "flows")
	for _, m := range pageFile.FindAllStringSubmatch(page, -1) {
		kind, name := m[1], m[2]
		text := strings.ReplaceAll(strings.TrimPrefix(m[3], "   "), "\n   ", "\n")
		switch kind {
		case "yaml":
			write(t, filepath.Join(flows, name), text)
		case "diff":
			text = patched(t, filepath.Join(root, name), text)
			fallthrough
		default:
			at := filepath.Join(dir, "tree", name)
			write(t, at, text)
			overlay[filepath.Join(root, name)] = at
		}
	}
	if len(overlay) != 2 {
		t.Fatalf("want a file and a change on the page, have %v", overlay)
	}
	replace, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "overlay.json"), string(replace))
	binary := filepath.Join(dir, "procaas")
	run := func(name string, args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir = root
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	run("go", "build", "-trimpath", "-buildvcs=false", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, "./cmd/procaas")
	if out := run(binary, "explain", "bucket"); !strings.Contains(out, "`count` is how many buckets there are.") {
		t.Errorf("want the comments of the struct, have:\n%s", out)
	}
	run(binary, "validate", flows)
	run(binary, "test", flows)
}

// section reads the part of the contributors' page below a heading.
func section(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository(t), ".github", "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("CONTRIBUTING.md has no section %q", heading)
	}
	before, _, _ := strings.Cut(after, "\n## ")
	return before
}

// repository is the folder of the repository.
func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// patched applies a change of lines that are added after one that is there once.
func patched(t *testing.T, file, diff string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text, after := string(data), ""
	for line := range strings.Lines(diff) {
		mark, rest := line[0], line[1:]
		if mark == '+' {
			text = strings.Replace(text, after, after+rest, 1)
		} else if strings.Count(text, rest) != 1 {
			t.Fatalf("%s: want once the line %q", file, rest)
		}
		after = rest
	}
	return text
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
