package dsl_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/format"
)

// TestReformat runs testdata/dsl/format: files, and their results.
func TestReformat(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "../testdata/dsl/format", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, rewriteCommand)
	})
}

func rewriteCommand(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	if d.Cmd == "fix" {
		return fixCommand(d.Input)
	}
	rewrite := map[string]func(diag.File) ([]byte, []diag.Diagnostic, error){"format": format.Reformat, "upgrade": format.Upgrade}[d.Cmd]
	if rewrite == nil {
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	text, found, err := rewrite(diag.File{Name: "a.yaml", Data: []byte(d.Input)})
	switch {
	case err != nil:
		return err.Error() + "\n"
	case len(found) > 0:
		return fmt.Sprintf("%s %s\n", found[0].Span, found[0].Message)
	}
	again, _, err := rewrite(diag.File{Name: "a.yaml", Data: text})
	if err != nil || !bytes.Equal(again, text) {
		t.Errorf("%s: done again it becomes\n%s", d.Pos, again)
	}
	return string(text)
}

// fixCommand shows what was fixed, the new text, and what is left.
func fixCommand(text string) string {
	out, fixed, left := dsl.Fix([]diag.File{{Name: "a.yaml", Data: []byte(text)}}, dsl.Options{Language: language(), Types: builtinTypes()})
	var b strings.Builder
	for _, d := range fixed {
		fmt.Fprintf(&b, "fixed %d:%d %s %s\n", d.Start.Line, d.Start.Column, d.Code, d.Message)
	}
	b.Write(out[0].Data)
	if !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	for _, d := range left {
		fmt.Fprintf(&b, "left %d:%d %s %s %s\n", d.Start.Line, d.Start.Column, d.Severity, d.Code, d.Message)
	}
	return b.String()
}

// yamlFiles returns all YAML that we have: files, blocks of pages, and the inputs of goldens.
func yamlFiles(t testing.TB) []diag.File {
	t.Helper()
	var files []diag.File
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".md", ".txt"}, filepath.Ext(path)) {
			return err
		}
		data, err := os.ReadFile(path)
		add := func(n int, text string) {
			files = append(files, diag.File{Name: fmt.Sprintf("%s#%d", path, n), Data: []byte(text)})
		}
		switch filepath.Ext(path) {
		case ".yaml", ".yml":
			add(0, string(data))
		case ".md":
			for i, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(data, -1) {
				add(i, string(m[1]))
			}
		case ".txt":
			for i, m := range regexp.MustCompile(`(?s)\ncheck[^\n]*\n(.*?)\n----\n`).FindAllSubmatch(data, -1) {
				add(i, string(m[1])+"\n")
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestReformatTakesAllThatIsRead lays out all YAML of the repository, good and
// bad, with line ends, indentation and blanks of other taste.
func TestReformatTakesAllThatIsRead(t *testing.T) {
	t.Parallel()
	n := 0
	for _, f := range yamlFiles(t) {
		for _, text := range []string{string(f.Data), strings.ReplaceAll(string(f.Data), "\n", "\r\n"), wider(string(f.Data))} {
			have, found, err := format.Reformat(diag.File{Name: f.Name, Data: []byte(text)})
			if err != nil {
				if !strings.Contains(text, "? ") {
					t.Errorf("%s: %v\n%s", f.Name, err, text)
				}
				continue
			}
			if len(found) > 0 {
				continue
			}
			n++
			again, _, err := format.Reformat(diag.File{Name: f.Name, Data: have})
			if err != nil || !bytes.Equal(have, again) {
				t.Errorf("%s: %v: laid out again it becomes\n%s", f.Name, err, again)
			}
		}
	}
	if n < 200 {
		t.Errorf("have %d files, want 200", n)
	}
}

// wider indents by twice as much.
func wider(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		own := len(line) - len(strings.TrimLeft(line, " "))
		for own < len(line) && strings.HasPrefix(line[own:], "- ") {
			line, own = line[:own]+"-   "+line[own+2:], own+4
		}
		lines[i] = strings.Repeat(" ", len(line)-len(strings.TrimLeft(line, " "))) + line
	}
	return strings.Join(lines, "\n")
}
