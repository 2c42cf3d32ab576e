package rules

import (
	"cmp"
	"embed"
	"io/fs"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"procaas/dsl/diag"
)

// The rules of the core, by what they are about. Examples with several files separate them by lines such as "-- NAME --".
//
//go:embed *.yaml
var files embed.FS

// expressions has the rules about expressions. Their examples are expressions, not files.
const expressions = "expression.yaml"

// A Rule documents a diagnostic code.
type Rule struct {
	Code   diag.Code `yaml:"code"`
	Title  string    `yaml:"title"`  // a few words
	Why    string    `yaml:"why"`    // what would go wrong
	Before string    `yaml:"before"` // a file that violates the rule
	After  string    `yaml:"after"`  // the fixed file
}

// AboutTests reports whether the examples are test files for [TestedPipelines].
func (r Rule) AboutTests() bool { return strings.HasPrefix(string(r.Code), "PC09") }

// Read reads the rules of a YAML file that is embedded. It panics if it cannot, which is a bug that any test finds.
func Read(from fs.FS, name string) []Rule {
	text, err := fs.ReadFile(from, name)
	if err != nil {
		panic("rules: " + err.Error())
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	var rules []Rule
	if err := decoder.Decode(&rules); err != nil {
		panic("rules: " + name + ": " + err.Error())
	}
	return rules
}

// All lists the rules of the core and those of add-ons, in the order of their codes.
func All(more ...Rule) []Rule {
	rules := slices.Concat(core(), more)
	slices.SortFunc(rules, func(a, b Rule) int { return cmp.Compare(a.Code, b.Code) })
	return rules
}

// core reads the rules of the core. Their callers keep them.
func core() []Rule {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		panic("rules: " + err.Error())
	}
	var rules []Rule
	for _, name := range names {
		if name != expressions {
			rules = append(rules, Read(files, name)...)
		}
	}
	for _, r := range ExprRules() {
		field := "set"
		if r.Code == ExprUnfit {
			field = "enabled"
		}
		r.Before, r.After = inExample(field, r.Before), inExample(field, r.After)
		rules = append(rules, r)
	}
	return rules
}

// ExprRules documents the codes of expressions. The examples are expressions in a handler. It may read the
// shared state order, total and tip, the handler get-order, and the config NOTIFY_SWITCH.
func ExprRules() []Rule { return Read(files, expressions) }

// inExample returns a whole file with the expression. The handlers around the reading one declare and set what it reads.
func inExample(field, expression string) string {
	const indent = "            "
	text := indent + "set: {seen: true}\n" + indent + "enabled: !$ |\n" + indent + "  " + expression + "\n"
	if field == "set" {
		text = indent + "set:\n" + indent + "  seen: !$ |\n" + indent + "    " + expression + "\n"
	}
	return `configs:
  NOTIFY_SWITCH: {enabled: true}
pipelines:
  - id: new-order
    shared-state: {order: {}, total: 0, tip: 0, seen: null}
    stages:
      - id: fetch
        handlers:
          - {id: get-order, request: {url: http://127.0.0.1:9081/v1/orders}}
      - id: look
        handlers:
          - id: look
` + text + `      - id: tell
        handlers:
          - {id: notify, request: {url: http://127.0.0.1:9083/v1/push}}
`
}

// TestedPipelines are the pipelines of the examples about test files.
const TestedPipelines = `services:
  - {id: push, url: "http://127.0.0.1:9083"}
pipelines:
  - id: new-order
    stages:
      - id: notify
        handlers:
          - id: driver
            request: {service: push, path: /v1/push, body: {to: !$ event.payload.driver}}
`
