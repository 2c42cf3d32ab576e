//go:build suites

package source_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/format"
	"procaas/dsl/source"
)

// refusedYAML are the errors for what is YAML, but no file of ours.
var refusedYAML = []string{
	"a second document begins here", "unknown tag", "an alias cannot be a key", "a key must be text", // what the language leaves out
	"a directive", "a tab cannot indent", "want a key here", "want a value here", "want a comma or the closing bracket here", // what the parser does
	"... is not a key", "want the end of the file here", "no second key can stand on this line", "nothing may follow the mark of a block",
	"did not find expected alphabetic or numeric character", "the parser would",
}

// lenientYAML are the cases that are no YAML, and are read as their author meant them.
var lenientYAML = []string{
	"9C9N/0", "QB6E/0", "Y79Y/3", "DK95/1", // lines in brackets or quotes that are not indented, or indented with a tab
	"9JBA/0", "CVW2/0", "SU5Z/0", "X4QW/0", "MUS6/0", // a comment without a space before it
	"G5U8/0", "YJV2/0", // a hyphen alone in brackets
	"HRE5/0", // \' in double quotes
	"S98Z/0", // lines of blanks before a block that are longer than its indentation
}

// A suiteCase is one input of the suite, with marks for what is hard to see, and what it means.
type suiteCase struct {
	Fail bool    `yaml:"fail"`
	YAML *string `yaml:"yaml"`
	JSON *string `yaml:"json"`
}

var suiteMarks = strings.NewReplacer("␣", " ", "————»", "\t", "———»", "\t", "——»", "\t", "—»", "\t", "»", "\t", "↵", "", "∎\n", "", "∎", "", "←", "\r", "⇔", "\ufeff")

// TestPublicYAMLSuite reads each case of github.com/yaml/yaml-test-suite (src) in the folder yaml of PROCAAS_SUITES: each is read as
// YAML 1.2 means it, or refused with one of the errors above. Formatting keeps the meaning, and ends.
func TestPublicYAMLSuite(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(os.Getenv("PROCAAS_SUITES"), "yaml", "src", "*.yaml"))
	if err != nil || len(files) < 300 {
		t.Fatalf("want the suite below PROCAAS_SUITES, have %d files, %v", len(files), err)
	}
	same := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var list []suiteCase
		if err := yaml.Unmarshal(data, &list); err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		var whole suiteCase
		for i, c := range list {
			if c.YAML == nil {
				c.YAML = whole.YAML // a case repeats what it leaves out
			}
			whole = c
			id, text := name+"/"+strconv.Itoa(i), suiteMarks.Replace(*c.YAML)
			have, found := readSuite(text)
			isRefused := len(found) > 0
			switch {
			case c.Fail && !isRefused && !slices.Contains(lenientYAML, id):
				t.Errorf("%s: no YAML, but read as %s: %q", id, have, text)
			case !c.Fail && isRefused && !slices.ContainsFunc(refusedYAML, func(s string) bool { return strings.Contains(found[0], s) }):
				t.Errorf("%s: refused with %q: %q", id, found, text)
			case !c.Fail && !isRefused && c.JSON != nil && have != wantOfSuite(t, *c.JSON):
				t.Errorf("%s: want %s, have %s: %q", id, *c.JSON, have, text)
			case !c.Fail && !isRefused:
				same++
			}
			checkFormatOfSuite(t, id, text, have, isRefused)
		}
	}
	if same < 200 {
		t.Errorf("want 200 cases read, have %d", same)
	}
}

// readSuite returns the JSON of a text, or its errors.
func readSuite(text string) (have string, found []string) {
	var r diag.Reporter
	have = "null"
	if s, ok := source.New(diag.File{Name: "f.yaml", Data: []byte(text)}, &r); ok {
		if root := s.Read(); root != nil && s.Measure(root) {
			data, _ := s.Value(root).Literal()
			raw, err := datum.FormatKinds(data)
			if err != nil {
				return "", []string{err.Error()}
			}
			have = string(raw)
		}
	}
	for _, d := range r.Diagnostics() {
		if d.Severity == diag.Error {
			found = append(found, d.Message)
		}
	}
	return have, found
}

// wantOfSuite returns the first value of some JSON, or null: an empty file has none.
func wantOfSuite(t *testing.T, text string) string {
	var raw json.RawMessage
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&raw); errors.Is(err, io.EOF) {
		return "null"
	} else if err != nil {
		t.Fatal(err)
	}
	v, err := datum.ParseJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	out, err := datum.FormatKinds(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// checkFormatOfSuite lays a text out.
func checkFormatOfSuite(t *testing.T, id, text, meaning string, isRefused bool) {
	out, found, err := format.Reformat(diag.File{Name: "f.yaml", Data: []byte(text)})
	if err != nil || len(found) > 0 || isRefused {
		return
	}
	if have, _ := readSuite(string(out)); have != meaning {
		t.Errorf("%s: the layout changes %s to %s: %q", id, meaning, have, text)
	}
}
