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
	p := followed(t, "Adding a handler type", 2)
	binary := filepath.Join(p.dir, "procaas")
	p.run("go", "build", "-trimpath", "-buildvcs=false", "-overlay", p.overlay, "-o", binary, "./cmd/procaas")
	if out := p.run(binary, "explain", "bucket"); !strings.Contains(out, "`count` is how many buckets there are.") {
		t.Errorf("want the comments of the struct, have:\n%s", out)
	}
	p.run(binary, "validate", p.flows)
	p.run(binary, "test", p.flows)
}

// TestContributingAddsAStore does the same with the store of the page: it keeps a part of the contract, and --store names it.
func TestContributingAddsAStore(t *testing.T) {
	t.Parallel()
	p := followed(t, "Adding a store", 4, "cmd/procaas/internal/serve/stores/opens_test.go", opensScratch)
	for folder, test := range map[string]string{"engine/scratch": "TestConformance/Nodes", "cmd/procaas/internal/serve/stores": "TestOpensScratch"} {
		binary := filepath.Join(p.dir, filepath.Base(folder)+".test") // go test would run it in its folder, which is in the overlay only
		p.run("go", "test", "-c", "-vet=off", "-trimpath", "-buildvcs=false", "-overlay", p.overlay, "-o", binary, "./"+folder)
		if out := p.run(binary, "-test.v", "-test.run", test); !strings.Contains(out, "--- PASS: "+test) {
			t.Errorf("want %s passed, have:\n%s", test, out)
		}
	}
}

// opensScratch opens the store of the page as serve does.
const opensScratch = `package stores

import (
	"log/slog"
	"testing"
)

func TestOpensScratch(t *testing.T) {
	db, err := Options{DSN: "scratch:"}.Open(t.Context(), slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
`

// A followedPage is this tree with what a section of the page writes and changes.
type followedPage struct {
	t       *testing.T
	dir     string
	overlay string // the file that says so to the go command
	flows   string // the folder of the page's pipelines
}

// followed reads a section that writes or changes so many files of Go. More are the names and texts of others.
func followed(t *testing.T, heading string, files int, more ...string) *followedPage {
	t.Helper()
	page := section(t, heading)
	dir, root := t.TempDir(), repository(t)
	p := &followedPage{t: t, dir: dir, overlay: filepath.Join(dir, "overlay.json"), flows: filepath.Join(dir, "flows")}
	overlay := map[string]string{}
	put := func(name, text string) {
		at := filepath.Join(dir, "tree", name)
		write(t, at, text)
		overlay[filepath.Join(root, name)] = at
	}
	for _, m := range pageFile.FindAllStringSubmatch(page, -1) {
		kind, name := m[1], m[2]
		text := strings.ReplaceAll(strings.TrimPrefix(m[3], "   "), "\n   ", "\n")
		switch kind {
		case "yaml":
			write(t, filepath.Join(p.flows, name), text)
		case "diff":
			text = patched(t, filepath.Join(root, name), text)
			fallthrough
		default:
			put(name, text)
		}
	}
	if len(overlay) != files {
		t.Fatalf("want %d files on the page, have %v", files, overlay)
	}
	for i := 0; i < len(more); i += 2 {
		put(more[i], more[i+1])
	}
	replace, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	write(t, p.overlay, string(replace))
	return p
}

// run runs a command at the root of the tree.
func (p *followedPage) run(name string, args ...string) string {
	p.t.Helper()
	c := exec.CommandContext(p.t.Context(), name, args...)
	c.Dir = repository(p.t)
	out, err := c.CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
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
