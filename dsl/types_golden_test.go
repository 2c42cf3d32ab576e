package dsl_test

import (
	"fmt"
	"strings"
	"testing"

	"procaas/dsl"
	"procaas/dsl/diag"
)

// typedFlow is the file around the expressions of check_types.txt.
const typedFlow = `schemas:
  item:
    type: object
    required: [price]
    properties: {price: {type: number}, name: {type: string}, tags: {type: array, items: {type: string}}}
  order:
    type: object
    required: [id, tariff, items, total, address]
    properties:
      id: {type: string}
      tariff: {enum: [econom, business]}
      total: {type: number}
      comment: {type: [string, 'null']}
      tip: {type: number}
      items: {type: array, items: {$ref: item}}
      address: {type: object, required: [city], properties: {city: {type: string}, flat: {type: integer}}}
      labels: {type: object, additionalProperties: {type: string}}
      payment: {type: object, required: [method], properties: {method: {type: string}, card: {type: object, required: [last], properties: {last: {type: string}}}}}
      urgent: {type: boolean}
events:
  - {type: p, payload: order}
configs: {SWITCH: {enabled: true}}
config-schemas:
  SWITCH: {type: object, required: [enabled], properties: {enabled: {type: boolean}, cities: {type: array, items: {type: string}}}}
pipelines:
  - id: p
    shared-state: {x: null}
    stages:
      - id: s
        handlers:
          - id: h
            set:
              x: !$ |
                `

// aboutEach puts each line into a handler of its own and says what its author is
// told: severity, code, message, the part that is meant, and the remedy.
func aboutEach(t *testing.T, input string) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(input) {
		line = strings.TrimSuffix(line, "\n")
		_, found := dsl.Load([]diag.File{{Name: "p.yaml", Data: []byte(typedFlow + line + "\n")}}, dsl.Options{Language: language(), Types: testTypes()})
		fmt.Fprintf(&out, "%s\n", line)
		if len(found) == 0 {
			out.WriteString("    ok\n")
		}
		for _, d := range found {
			const indent = 17
			from, to := d.Start.Column-indent, d.End.Column-indent
			part := d.Span.String()
			if from >= 0 && to <= len([]rune(line)) && d.Start.Line == d.End.Line {
				part = string([]rune(line)[from:to])
			}
			fmt.Fprintf(&out, "    %s %s at %s: %s\n", d.Severity, d.Code, part, d.Message)
			if d.Hint != "" {
				fmt.Fprintf(&out, "        %s\n", d.Hint)
			}
		}
	}
	return out.String()
}
