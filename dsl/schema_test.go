package dsl_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"

	"procaas/cmd/procaas/addons"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
)

var update = flag.Bool("update", false, "write the generated files anew")

const schemaFile = "../schemas/pipeline.schema.json"

// language is the core with the sections of the add-ons that these tests know.
var language = addons.Language

// compiled returns the schema of some types, ready to validate.
func compiled(t *testing.T, types []tree.Type) *jsonschema.Schema {
	t.Helper()
	data, err := language().JSONSchema(types)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asJSON reads YAML as an editor does: tagged scalars are text.
func asJSON(t *testing.T, data []byte) any {
	t.Helper()
	var n yaml.Node
	if err := yaml.Unmarshal(data, &n); err != nil {
		t.Fatal(err)
	}
	untag(&n)
	var v any
	if err := n.Decode(&v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func untag(n *yaml.Node) {
	if strings.HasPrefix(n.Tag, "!") && !strings.HasPrefix(n.Tag, "!!") {
		n.Tag = "!!str"
	}
	for _, c := range n.Content {
		untag(c)
	}
}

func builtinTypes() []tree.Type {
	var types []tree.Type
	for _, h := range addons.HandlerTypes() {
		types = append(types, h.Type)
	}
	return types
}

func TestSchemaFileIsFresh(t *testing.T) {
	t.Parallel()
	want, err := language().JSONSchema(builtinTypes())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(schemaFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Errorf("%s is stale, run: go test ./dsl -run SchemaFile -update", schemaFile)
	}
}

// TestSchemaAcceptsWhatLoads compares the schema with files without errors.
func TestSchemaAcceptsWhatLoads(t *testing.T) {
	t.Parallel()
	local, builtin := compiled(t, testTypes()), compiled(t, builtinTypes())
	check := func(path string, s *jsonschema.Schema) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(asJSON(t, data)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range okFiles(t) {
		if filepath.Base(path) != "seed003_first.yaml" { // no YAML without its missing colon
			check(path, local)
		}
	}
	for _, path := range shippedFiles(t) {
		check(path, builtin)
	}
	for _, rule := range language().Rules() {
		if rule.Code <= "PC0120" || rule.AboutTests() || strings.Contains(rule.After, "\x00") {
			continue
		}
		if err := local.Validate(asJSON(t, splitFiles(rule.After)[0].Data)); err != nil {
			t.Errorf("%s: %v in\n%s", rule.Code, err, rule.After)
		}
	}
}

// TestSchemaRefusesWhatCannotLoad checks one mistake at a time.
func TestSchemaRefusesWhatCannotLoad(t *testing.T) {
	t.Parallel()
	s := compiled(t, testTypes())
	in := func(handler string) string {
		return "pipelines: [{id: p, stages: [{id: s, handlers: [{id: h, " + handler + "}]}]}]"
	}
	for _, c := range []struct{ name, text string }{
		{"unknown top-level key", "pipeline: []"},
		{"list for mapping", "services: {id: s}"},
		{"missing id", "services: [{url: http://a}]"},
		{"bad id", "services: [{id: 'a b', url: http://a}]"},
		{"bad duration", "services: [{id: a, url: http://a, timeout: 5}]"},
		{"bad enum", "flows: [{id: f, on-failure: stop}]"},
		{"unknown field", in("critcal: false")},
		{"two types", in("request: {url: http://a}, wait: {for: 1s}")},
		{"bare field beside a type", in("wait: {for: 1s}, url: http://a")},
		{"unknown field of the type", in("request: {uri: http://a}")},
		{"missing field of the type", in("wait: {}")},
		{"unknown operator", in("request: {url#yget: /a}")},
		{"number out of range", in("retry: {factor: 0.5}, request: {url: http://a}")},
		{"bad rate", in("rate-limit: {rate: fast}, request: {url: http://a}")},
		{"expression where none may be", in("touches: [{a: b}], request: {url: http://a}")},
		{"bad class", in("retry: {on: [nothing]}, request: {url: http://a}")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if err := s.Validate(asJSON(t, []byte(c.text))); err == nil {
				t.Errorf("the schema accepts %s", c.text)
			}
			if _, found := load(t, c.text); !diag.HasErrors(found) {
				t.Errorf("Load accepts %s", c.text)
			}
		})
	}
}

// TestSchemaDescribesEveryField finds properties without a word about them.
func TestSchemaDescribesEveryField(t *testing.T) {
	t.Parallel()
	data, err := language().JSONSchema(builtinTypes())
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	count := 0
	var walk func(v any, at []string)
	walk = func(v any, at []string) {
		switch v := v.(type) {
		case map[string]any:
			if len(at) > 1 && at[len(at)-2] == "properties" && v["$ref"] == nil {
				count++
				if v["description"] == "" || v["description"] == nil {
					t.Errorf("%s has no description", strings.Join(at, "/"))
				}
			}
			for k, x := range v {
				if k != "oneOf" {
					walk(x, append(slices.Clone(at), k))
				}
			}
		case []any:
			for _, x := range v {
				walk(x, append(slices.Clone(at), "[]"))
			}
		}
	}
	walk(doc, nil)
	if count < 50 {
		t.Errorf("found %d fields, want more", count)
	}
}
