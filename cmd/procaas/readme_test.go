package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"procaas/cmd/procaas/addons"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/render"
	"procaas/engine/api/cli"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestReadmeExamplesLoad reads all YAML of the page as one set of files.
func TestReadmeExamplesLoad(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var files []diag.File
	for i, block := range yamlBlock.FindAllSubmatch(text, -1) {
		files = append(files, diag.File{Name: string(rune('a'+i)) + ".yaml", Data: block[1]})
	}
	if len(files) == 0 {
		t.Fatal("want an example in YAML, have none")
	}
	_, found := dsl.Load(files, dsl.Options{Language: addons.Language(), Types: addons.Types()})
	if len(found) > 0 {
		var out strings.Builder
		if err := render.Write(&out, render.Text, files, found, false); err != nil {
			t.Fatal(err)
		}
		t.Errorf("the examples have findings:\n%s", out.String())
	}
}

// Blocks of other tools say in their first line whose file they are; what has no
// file is ours. commandIn finds our commands in them.
var (
	fence     = regexp.MustCompile("(?m)^```(ya?ml|sh)([^\n]*)$")
	foreign   = regexp.MustCompile("(?ms)^```(?:yaml|sh) file=(\\S+)\n(.*?)^```$")
	commandIn = regexp.MustCompile(`(?:\bprocaas|\$PROCAAS) ([a-z][^\n&>]*)`)
)

// TestPagesSayWhoseTheirFilesAre keeps YAML of ours from escaping its check: each
// block of YAML is ours, or names the hidden file of another tool. The commands in
// those exist, with flags that they take.
func TestPagesSayWhoseTheirFilesAre(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/authoring/ci.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range fence.FindAllSubmatch(text, -1) {
		if info := string(m[2]); string(m[1]) == "yml" || info != "" && !strings.HasPrefix(info, " file=.") {
			t.Errorf("a block begins with %s: want yaml for ours, or file= and a hidden file", m[0])
		}
	}
	commands := 0
	for _, m := range foreign.FindAllSubmatch(text, -1) {
		if string(m[2]) == "" {
			t.Errorf("%s is empty", m[1])
		}
		for _, c := range commandIn.FindAllSubmatch(m[2], -1) {
			commands++
			words := strings.Fields(string(c[1]))
			found, rest, err := newRoot(cli.Streams{}).Find(words)
			if err == nil {
				err = found.ParseFlags(rest)
			}
			if err != nil || !found.HasParent() {
				t.Errorf("%s: procaas %s: %v", m[1], c[1], err)
			}
		}
	}
	if commands < 8 {
		t.Errorf("have %d commands in files of other tools, want 8", commands)
	}
}

// link finds where the links of a page lead; heading what they may lead to within one.
var (
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notAnchor = regexp.MustCompile(`[^\w\- ]`)
)

// anchor returns the name by which links lead to a heading.
func anchor(heading string) string {
	return strings.ReplaceAll(notAnchor.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// TestLinksLeadSomewhere follows all links within the repository.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	pages, err := source.Files([]string{"../.."}, nil, func(name string) bool { return strings.HasSuffix(name, ".md") })
	if err != nil {
		t.Fatal(err)
	}
	// What the tests install is other people's.
	pages = slices.DeleteFunc(pages, func(p diag.File) bool { return strings.Contains(p.Name, "node_modules/") })
	anchors := map[string][]string{} // by page
	for _, p := range pages {
		for _, h := range heading.FindAllStringSubmatch(string(p.Data), -1) {
			anchors[filepath.Clean(p.Name)] = append(anchors[filepath.Clean(p.Name)], anchor(h[1]))
		}
	}
	followed := 0
	for _, p := range pages {
		for _, m := range link.FindAllStringSubmatch(string(p.Data), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			followed++
			path, anchor, _ := strings.Cut(m[1], "#")
			target := filepath.Clean(p.Name)
			if path != "" {
				target = filepath.Join(filepath.Dir(p.Name), filepath.FromSlash(path))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s leads to %s, which is not there", p.Name, m[1])
			} else if anchor != "" && strings.HasSuffix(target, ".md") && !slices.Contains(anchors[target], anchor) {
				t.Errorf("%s leads to %s: there is no such heading", p.Name, m[1])
			}
		}
	}
	if followed < 50 {
		t.Errorf("have followed %d links, want 50 at least", followed)
	}
}

var testName = regexp.MustCompile("`(Test\\w+)`")

// TestGuaranteesAreTested looks for the tests that the page calls as witnesses of its promises.
func TestGuaranteesAreTested(t *testing.T) {
	t.Parallel()
	testsExist(t, "engine/GUARANTEES.md")
}

// testsExist wants all tests that a page names to be there.
func testsExist(t *testing.T, page string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", page))
	if err != nil {
		t.Fatal(err)
	}
	files, err := source.Files([]string{"../.."}, nil, func(name string) bool { return strings.HasSuffix(name, ".go") })
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, f := range files {
		code.Write(f.Data)
	}
	named := testName.FindAllSubmatch(text, -1)
	if len(named) == 0 {
		t.Fatalf("want %s to name tests, have none", page)
	}
	for _, name := range named {
		if !strings.Contains(code.String(), "func "+string(name[1])+"(t *testing.T)") {
			t.Errorf("%s names %s, which is not there", page, name[1])
		}
	}
}
