package rules

import (
	"strings"

	"procaas/dsl/diag"
)

// A Rule documents a diagnostic code.
type Rule struct {
	Code   diag.Code
	Title  string // a few words
	Why    string // what would go wrong
	Before string // a file that violates the rule
	After  string // the fixed file
}

// AboutTests reports whether the examples are test files for [TestedPipelines].
func (r Rule) AboutTests() bool { return strings.HasPrefix(string(r.Code), "PC09") }

// inHandler returns an example with fields of a handler.
func inHandler(fields string) string { return inRequest("") + Indented(12, fields) }

// inRequest returns an example with fields of a request.
func inRequest(fields string) string {
	return `pipelines:
  - id: new-order
    stages:
      - id: notify
        handlers:
          - id: driver
            request:
              url: http://127.0.0.1:9083/v1/push
` + Indented(14, fields)
}

// Indented indents lines, for examples.
func Indented(by int, lines string) string {
	var b strings.Builder
	for line := range strings.Lines(lines) {
		b.WriteString(strings.Repeat(" ", by) + strings.TrimSuffix(line, "\n") + "\n")
	}
	return b.String()
}
