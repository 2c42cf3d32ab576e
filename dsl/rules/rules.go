package rules

import (
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

// AboutTests reports whether the examples are files of tests, of the pipelines that
// [TestedPipelines] holds.
func (r Rule) AboutTests() bool { return strings.HasPrefix(string(r.Code), "PC09") }

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
