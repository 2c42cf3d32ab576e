//go:build suites

package contracts

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/source"
)

// refusedSchemas are the errors for schemas that contracts leave out. None is ignored.
var refusedSchemas = []string{
	"a dynamic reference cannot be used here", "there is no schema", "there is no #", "which is not there", "needs more than 64 bits",
	"the pattern", "schemas are read from files", "U+0000",
}

// schemasDiffer are the files of the suite with tests that differ on purpose.
var schemasDiffer = map[string]string{
	"format.json":                           "a format is checked, and is no comment",
	"optional/ecmascript-regex.json":        "a pattern is a regular expression of Go",
	"optional/format/ecmascript-regex.json": "a pattern is a regular expression of Go",
	"optional/format/email.json":            "an empty local part is taken",
	"optional/format/idn-email.json":        "a comment, and a warning says so",
	"optional/format/idn-hostname.json":     "a comment, and a warning says so",
	"optional/format/uri-template.json":     "a comment",
	"optional/format/uri.json":              "characters that a URI must escape are taken",
	"optional/format/uri-reference.json":    "characters that a URI must escape are taken",
	"optional/format/iri.json":              "hosts of future IP versions are refused",
	"optional/format/iri-reference.json":    "characters that an IRI must escape are taken",
	"optional/format/hostname.json":         "names in punycode are not decoded",
	"optional/format/duration.json":         "PT1H2S without minutes is taken",
	"optional/format/ipv4.json":             "a plus before a number is taken",
}

// TestPublicSchemaSuite checks each case of github.com/json-schema-org/JSON-Schema-Test-Suite for the draft 2020-12 in the folder schema
// of PROCAAS_SUITES: data fits or not as the suite says, or the schema is refused.
func TestPublicSchemaSuite(t *testing.T) {
	t.Parallel()
	root := filepath.Join(os.Getenv("PROCAAS_SUITES"), "schema", "tests", "draft2020-12")
	same := 0
	for _, pattern := range []string{"*.json", "optional/*.json", "optional/format/*.json"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("want the suite below PROCAAS_SUITES, have no %s, %v", pattern, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var groups []schemaGroup
			if err := json.Unmarshal(data, &groups); err != nil {
				t.Fatal(err)
			}
			name := strings.TrimPrefix(filepath.ToSlash(file), filepath.ToSlash(root)+"/")
			for _, g := range groups {
				same += g.check(t, name)
			}
		}
	}
	if same < 1900 {
		t.Errorf("want 1,900 tests as the suite says, have %d", same)
	}
}

// A schemaGroup is a schema of the suite with data.
type schemaGroup struct {
	Description string
	Schema      json.RawMessage
	Tests       []struct {
		Description string
		Data        json.RawMessage
		Valid       bool
	}
}

// check returns how many tests end as the suite says.
func (g *schemaGroup) check(t *testing.T, file string) (same int) {
	var r diag.Reporter
	s, ok := source.New(diag.File{Name: "p.yaml", Data: g.Schema}, &r)
	if !ok {
		return 0 // characters that no file may have
	}
	s.Foreign = true
	c := New(nil, nil, &r).Of(s.Value(s.Read()), "it")
	for _, d := range r.Diagnostics() {
		if d.Severity != diag.Error {
			continue
		}
		if !slices.ContainsFunc(refusedSchemas, func(s string) bool { return strings.Contains(d.Message, s) }) {
			t.Errorf("%s: %s: refused: %s", file, g.Description, d.Message)
		}
		return 0
	}
	for _, one := range g.Tests {
		data, err := datum.ParseJSON(one.Data)
		if err != nil {
			continue // U+0000, or a number that needs more than 64 bits
		}
		have := c.Check(data)
		if (have == nil) == one.Valid {
			same++
		} else if schemasDiffer[file] == "" {
			t.Errorf("%s: %s: %s: want it to fit: %v, have %v", file, g.Description, one.Description, one.Valid, have)
		}
	}
	return same
}
