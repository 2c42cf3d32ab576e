package flowtest_test

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"procaas/dsl"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/render"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/flowtest"
	"procaas/engine/memory"
	"procaas/engine/store"
)

// The examples of the rules about tests keep their word: those that break a rule
// get its code and no other, the mended ones nothing, and they pass. The handlers of
// this package cannot be those of package handlers, so only the checks are run here.
func TestRulesAboutTestsKeepTheirWord(t *testing.T) {
	t.Parallel()
	bundle := load(t, rules.TestedPipelines)
	n := 0
	for _, rule := range rules.All() {
		if !rule.AboutTests() {
			continue
		}
		n++
		before := check(t, bundle, rule.Before)
		if len(before) == 0 || slices.ContainsFunc(before, func(d diag.Diagnostic) bool { return d.Code != rule.Code }) {
			t.Errorf("%s: want findings of this code alone, have %s", rule.Code, show(t, rule.Before, before))
		}
		if after := check(t, bundle, rule.After); len(after) > 0 {
			t.Errorf("%s: want nothing after, have %s", rule.Code, show(t, rule.After, after))
		}
	}
	if n < 2 {
		t.Errorf("want some rules about tests, have %d", n)
	}
}

var update = flag.Bool("update", false, "rewrite generated files")

func TestSchemaOfTestsIsFresh(t *testing.T) {
	t.Parallel()
	const file = "../../schemas/test.schema.json"
	want, err := flowtest.JSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(have, want) {
		t.Errorf("%s is stale (%v): go test ./engine/flowtest -update", file, err)
	}
}

// What a file of tests refuses, an editor with the schema refuses too, and no more.
func TestSchemaOfTestsAgreesWithTheExamples(t *testing.T) {
	t.Parallel()
	data, err := flowtest.JSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("test.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("test.json")
	if err != nil {
		t.Fatal(err)
	}
	for text, ok := range map[string]bool{
		`{"tests": [{"name": "a", "events": {"type": "x"}}]}`:                                                        true,
		`{"tests": [{"name": "a", "events": [{"type": "x", "at": "5m"}], "expect": {"handlers": {"h": "failed"}}}]}`: true,
		`{"mocks": {"h": [{"status": 503}, {"reply": {}}]}, "tests": [{"name": "a", "events": {"type": "x"}}]}`:      true,
		`{"tests": [{"name": "a"}]}`: false,
		`{"tests": [{"name": "a", "events": {"type": "x"}, "expect": {"handlers": {"h": "gone"}}}]}`: false,
		`{"mocks": {"h": {"stats": 503}}, "tests": [{"name": "a", "events": {"type": "x"}}]}`:        false,
	} {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); (err == nil) != ok {
			t.Errorf("%s: want it right: %v, have %v", text, ok, err)
		}
		if file, _ := flowtest.Parse(diag.File{Name: "a.test.yaml", Data: []byte(text)}); (file != nil) != ok {
			t.Errorf("%s: want it to be read: %v", text, ok)
		}
	}
}

// The reference shows each mapping once, and its example is a file of tests.
func TestReferenceOfTests(t *testing.T) {
	t.Parallel()
	all := flowtest.Reference()
	if len(all) < 10 || all[0].Name != "*.test.yaml" {
		t.Fatalf("want the mappings of a file, have %d", len(all))
	}
	var example []string
	for line := range strings.Lines(all[0].Spec.Doc) {
		if code, ok := strings.CutPrefix(line, "\t"); ok {
			example = append(example, code)
		}
	}
	text := strings.Join(example, "")
	if file, found := flowtest.Parse(diag.File{Name: "example.test.yaml", Data: []byte(text)}); file == nil || len(found) > 0 {
		t.Errorf("the example has findings:\n%s", show(t, text, found))
	}
}

// request replaces the type of package handlers, which is to our right.
var request = engine.HandlerType{Type: tree.Type{Name: "request", Spec: &spec.Spec{
	Name: "Request", Doc: "Request calls.", Inline: true,
	Fields: []*spec.Field{{Elem: &spec.Field{}, Kind: datum.MapKind, Doc: "any"}},
}}}

func load(t *testing.T, text string) *tree.Bundle {
	t.Helper()
	files := []diag.File{{Name: "flow.yaml", Data: []byte(text)}}
	b, found := dsl.Load(files, dsl.Options{Types: []tree.Type{request.Type}})
	if b == nil {
		t.Fatal(show(t, text, found))
	}
	return b
}

func check(t *testing.T, b *tree.Bundle, text string) []diag.Diagnostic {
	t.Helper()
	file, found := flowtest.Parse(diag.File{Name: "flow.test.yaml", Data: []byte(text)})
	if file == nil {
		return found
	}
	env := flowtest.Env{
		Types: []engine.HandlerType{request}, Store: func(now func() time.Time) store.Store { return memory.New(now).Ports() },
	}
	_, found = flowtest.NewSuite("flow.test.yaml", file, b, nil, env)
	return found
}

func show(t *testing.T, text string, found []diag.Diagnostic) string {
	t.Helper()
	var b bytes.Buffer
	if err := render.Write(&b, render.Text, []diag.File{{Name: "flow.test.yaml", Data: []byte(text)}}, found, false); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
