package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"procaas/dsl"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestReadmeExamplesLoad reads all YAML of the README as one set of files.
func TestReadmeExamplesLoad(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var files []dsl.File
	for i, block := range yamlBlock.FindAllSubmatch(text, -1) {
		files = append(files, dsl.File{Name: string(rune('a'+i)) + ".yaml", Data: block[1]})
	}
	if len(files) < 2 {
		t.Fatalf("want the README to show a pipeline and a contribution, have %d blocks of YAML", len(files))
	}
	_, found := dsl.Load(files, dsl.Options{Types: languageTypes()})
	var out strings.Builder
	if len(found) > 0 {
		if err := dsl.WriteDiagnostics(&out, dsl.Text, files, found, false); err != nil {
			t.Fatal(err)
		}
		t.Errorf("the README's examples have findings:\n%s", out.String())
	}
}
