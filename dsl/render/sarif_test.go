package render_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/render"
	"procaas/dsl/rules"
)

// codeScanning is what GitHub code scanning requires of a SARIF file, beyond
// which the standard leaves almost everything open.
const codeScanning = `{
  "type": "object", "required": ["$schema", "version", "runs"],
  "properties": {"version": {"const": "2.1.0"}, "$schema": {"pattern": "sarif.*2\\.1\\.0"}, "runs": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/run"}}},
  "$defs": {
    "text": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}},
    "level": {"enum": ["note", "warning", "error"]},
    "run": {
      "type": "object", "required": ["tool", "results"],
      "properties": {
        "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
        "results": {"type": "array", "items": {"$ref": "#/$defs/result"}},
        "tool": {"required": ["driver"], "properties": {"driver": {"required": ["name", "rules"], "properties": {
          "name": {"type": "string"}, "rules": {"type": "array", "items": {"$ref": "#/$defs/rule"}}}}}}
      }
    },
    "rule": {
      "type": "object", "required": ["id", "shortDescription", "fullDescription", "help"],
      "properties": {
        "id": {"type": "string"}, "shortDescription": {"$ref": "#/$defs/text"}, "fullDescription": {"$ref": "#/$defs/text"}, "help": {"$ref": "#/$defs/text"},
        "defaultConfiguration": {"properties": {"level": {"$ref": "#/$defs/level"}}},
        "properties": {"properties": {"problem.severity": {"enum": ["error", "warning", "recommendation"]}, "tags": {"type": "array", "items": {"type": "string"}}}}
      }
    },
    "result": {
      "type": "object", "required": ["message", "locations", "partialFingerprints"],
      "properties": {
        "level": {"$ref": "#/$defs/level"}, "message": {"$ref": "#/$defs/text"}, "ruleIndex": {"type": "integer", "minimum": 0},
        "locations": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/location"}},
        "relatedLocations": {"type": "array", "items": {"allOf": [{"$ref": "#/$defs/location"}, {"required": ["id", "message"]}]}},
        "partialFingerprints": {"required": ["primaryLocationLineHash"], "additionalProperties": {"type": "string"}}
      }
    },
    "location": {"type": "object", "required": ["physicalLocation"], "properties": {"physicalLocation": {
      "type": "object", "required": ["artifactLocation", "region"], "properties": {
        "artifactLocation": {"required": ["uri"], "properties": {"uri": {"type": "string", "format": "uri-reference", "minLength": 1}}},
        "region": {"required": ["startLine", "startColumn", "endLine", "endColumn"], "additionalProperties": {"type": "integer", "minimum": 1}}
      }}}}
  }
}`

// TestSARIFIsWhatCodeScanningRequires writes what is found in the example of
// every rule, and a finding without a place.
func TestSARIFIsWhatCodeScanningRequires(t *testing.T) {
	t.Parallel()
	schema := compileCodeScanning(t)
	n := 0
	for _, rule := range rules.All() {
		if rule.AboutTests() {
			continue
		}
		files := []diag.File{{Name: "flows/a b#%.yaml", Data: []byte(rule.Before)}}
		_, found := dsl.Load(files, dsl.Options{})
		found = append(found, diag.Diagnostic{
			Span: diag.Span{File: "/abs.yaml"}, Severity: diag.Advice, Code: "PC9999",
			Message: "see [here](1)",
		})
		var b bytes.Buffer
		if err := render.Write(&b, render.SARIF, files, found, false); err != nil {
			t.Fatal(err)
		}
		log, err := jsonschema.UnmarshalJSON(&b)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(log); err != nil {
			t.Errorf("%s: %v", rule.Code, err)
		}
		n += len(found) - 1
	}
	if n < len(rules.All())/2 {
		t.Errorf("only %d findings were written", n)
	}
	if err := schema.Validate(map[string]any{"version": "2.1.0", "$schema": "sarif-2.1.0", "runs": []any{map[string]any{}}}); err == nil {
		t.Error("a run without a tool is taken")
	}
}

func compileCodeScanning(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(codeScanning))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("code-scanning.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("code-scanning.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// TestSARIFFingerprintsFollowTheLine moves two equal findings down: they keep
// their fingerprints, which differ from each other.
func TestSARIFFingerprintsFollowTheLine(t *testing.T) {
	t.Parallel()
	prints := func(above int) []string {
		file := diag.File{Name: "a.yaml", Data: []byte(strings.Repeat("# more\n", above) + "a: 1\na: 1\nb: 2\n")}
		var ds []diag.Diagnostic
		for line := range 3 {
			at := diag.Pos{Line: above + line + 1, Column: 1}
			ds = append(ds, diag.Diagnostic{
				Span: diag.Span{File: "a.yaml", Start: at, End: at}, Severity: diag.Warning, Code: "PC0111",
				Message: "m",
			})
		}
		var b bytes.Buffer
		if err := render.Write(&b, render.SARIF, []diag.File{file}, ds, false); err != nil {
			t.Fatal(err)
		}
		var log struct {
			Runs []struct {
				Results []struct{ PartialFingerprints map[string]string }
			}
		}
		if err := json.Unmarshal(b.Bytes(), &log); err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, r := range log.Runs[0].Results {
			out = append(out, r.PartialFingerprints["primaryLocationLineHash"])
		}
		return out
	}
	have, moved := prints(0), prints(7)
	if fmt.Sprint(have) != fmt.Sprint(moved) {
		t.Errorf("have %v, moved %v", have, moved)
	}
	if have[0] == have[1] || have[1] == have[2] || have[0] == have[2] {
		t.Errorf("fingerprints are shared: %v", have)
	}
}
