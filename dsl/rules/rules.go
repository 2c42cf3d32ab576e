package rules

import (
	"cmp"
	"slices"
	"strings"

	"procaas/dsl/diag"
)

// A Rule documents a diagnostic code.
type Rule struct {
	Code   diag.Code
	Title  string // a few words
	Why    string // what goes wrong without the rule
	Before string // a file that breaks it
	After  string // the file, mended
}

// AboutTests tells whether the examples are files of tests, of the pipelines that
// [TestedPipelines] holds.
func (r Rule) AboutTests() bool { return strings.HasPrefix(string(r.Code), "PC09") }

// All lists all rules in the order of their codes.
func All() []Rule {
	rules := slices.Concat(yamlRules(), exprExamples(), bundleRules(), automatonRules(), degradationRules(), wayRules(), queueRules(), shardRules(), contractRules(), clusterRules(), adviceRules(), suppressRules(), testRules())
	slices.SortFunc(rules, func(a, b Rule) int { return cmp.Compare(a.Code, b.Code) })
	return rules
}

// Explain finds the rule of a code.
func Explain(code diag.Code) (Rule, bool) {
	for _, rule := range All() {
		if rule.Code == code {
			return rule, true
		}
	}
	return Rule{}, false
}

// inHandler makes a file of fields of a handler.
func inHandler(fields string) string { return inRequest("") + indented(12, fields) }

// inRequest makes a file of fields of a request.
func inRequest(fields string) string {
	return `pipelines:
  - id: new-order
    stages:
      - id: notify
        handlers:
          - id: driver
            request:
              url: http://127.0.0.1:9083/v1/push
` + indented(14, fields)
}

// indented moves lines to the right.
func indented(by int, lines string) string {
	var b strings.Builder
	for line := range strings.Lines(lines) {
		b.WriteString(strings.Repeat(" ", by) + strings.TrimSuffix(line, "\n") + "\n")
	}
	return b.String()
}

// exprExamples makes files of the examples of expressions: the handler that
// reads may know what the ones around it declare and give.
func exprExamples() []Rule {
	rules := ExprRules()
	for i := range rules {
		field := "set"
		if rules[i].Code == ExprUnfit {
			field = "enabled"
		}
		rules[i].Before = inExample(field, rules[i].Before)
		rules[i].After = inExample(field, rules[i].After)
	}
	return rules
}

func inExample(field, expression string) string {
	text := "set: {seen: true}\nenabled: !$ |\n  " + expression
	if field == "set" {
		text = "set:\n  seen: !$ |\n    " + expression
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
` + indented(12, text) + `      - id: tell
        handlers:
          - {id: notify, request: {url: http://127.0.0.1:9083/v1/push}}
`
}
