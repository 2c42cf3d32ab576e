package dsl_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/render"
)

// checkFiles lists the goldens of checks: those of the language's core, and those of each add-on.
func checkFiles(t testing.TB) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"../testdata/dsl/check_*.txt", "../handlers/*/language/testdata/check_*.txt"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("no goldens %s: %v", pattern, err)
		}
		all = append(all, paths...)
	}
	return all
}

// TestChecks loads the files of each case and compares what an author sees.
// Lines separate several files such as "-- bonus.yaml --".
func TestChecks(t *testing.T) {
	t.Parallel()
	for _, path := range checkFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			t.Parallel()
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				if d.Cmd == "types" {
					return aboutEach(t, d.Input)
				}
				if d.Cmd != "load" {
					d.Fatalf(t, "unknown command %q, want load or types", d.Cmd)
				}
				files := splitFiles(d.Input)
				bundle, found := dsl.Load(files, dsl.Options{Language: language(), Types: testTypes()})
				if (bundle == nil) != diag.HasErrors(found) {
					t.Errorf("%s: have bundle %v with errors %v", d.Pos, bundle != nil, diag.HasErrors(found))
				}
				return brief(t, files, found)
			})
		})
	}
}

// splitFiles reads "-- name --" lines; without any, there is one file.
func splitFiles(input string) []diag.File {
	var files []diag.File
	name := "p.yaml"
	var data strings.Builder
	flush := func() {
		if data.Len() > 0 {
			files = append(files, diag.File{Name: name, Data: []byte(data.String())})
		}
		data.Reset()
	}
	for line := range strings.Lines(input + "\n") {
		if inner, ok := strings.CutPrefix(line, "-- "); ok {
			flush()
			name = strings.TrimSuffix(strings.TrimSpace(inner), " --")
			continue
		}
		data.WriteString(line)
	}
	flush()
	return files
}

// brief returns the text form without empty lines and without the summary.
func brief(t *testing.T, files []diag.File, found []diag.Diagnostic) string {
	t.Helper()
	if len(found) == 0 {
		return "ok"
	}
	var b bytes.Buffer
	if err := render.Write(&b, render.Text, files, found, false); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(b.String(), "\n\n", "\n")
	return text[:strings.LastIndex(strings.TrimSpace(text), "\n")]
}

// TestOK loads the example files one by one: they must not even be warned of.
func TestOK(t *testing.T) {
	t.Parallel()
	for _, path := range okFiles(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			bundle, found := load(t, string(data))
			if diag.HasErrors(found) || bundle == nil {
				t.Fatalf("want no errors, have %s", show(found))
			}
			if !strings.HasPrefix(filepath.Base(path), "seed003_") && len(found) > 0 {
				t.Errorf("want silence, have %s", show(found))
			}
		})
	}
}

func okFiles(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob("../testdata/dsl/ok/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no example files: %v", err)
	}
	return paths
}

// TestShippedPipelinesAreSilent loads each set of pipelines that we ship with
// the built-in handler types.
func TestShippedPipelinesAreSilent(t *testing.T) {
	t.Parallel()
	sets := make(map[string][]diag.File)
	for _, path := range shippedFiles(t) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sets[filepath.Dir(path)] = append(sets[filepath.Dir(path)], diag.File{Name: filepath.ToSlash(path), Data: data})
	}
	for dir, files := range sets {
		if _, found := dsl.Load(files, dsl.Options{Language: language(), Types: builtinTypes()}); len(found) > 0 {
			t.Errorf("%s: %s", dir, show(found))
		}
	}
}

// shippedFiles lists our own pipeline files, without tests and stubs.
func shippedFiles(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("../pipelines/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	paths = slices.DeleteFunc(paths, func(path string) bool {
		return strings.HasSuffix(path, ".stub.yaml") || strings.HasSuffix(path, ".test.yaml")
	})
	if len(paths) == 0 {
		t.Fatal("no pipelines")
	}
	return paths
}
