package dsl_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"procaas/dsl"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/tree"
)

// A use of a template means what its author would have written out.
func TestTemplatesMeanWhatTheyStandFor(t *testing.T) {
	t.Parallel()
	const around = `
pipelines:
  - id: p
    shared-state: {a: 4, sent: null}
    stages:
      - id: s
        handlers:
`
	const template = `
templates:
  - id: send
    parameters: {to: {type: [string, integer]}, n: {type: number, default: -2}, more: {default: []}}
    handler:
      critical: false
      enabled: !$ params.n < 10
      request:
        url: http://127.0.0.1/1
        body:
          to: !$ params.to
          sum: !$ 7 - params.n * 2
          all: !$ "[params.to, params.more, {params: params.n}]"
      result: {sent: !$ params.to}
`
	const written = `
            critical: false
            enabled: !$ %[2]s < 10
            request:
              url: http://127.0.0.1/1
              body:
                to: %[4]s
                sum: !$ 7 - %[2]s * 2
                all: !$ "[%[1]s, %[3]s, {params: %[2]s}]"
            result: {sent: %[4]s}
`
	for _, c := range []struct{ with, to, n, more string }{
		{`{to: "it's"}`, `'it\\'s'`, `(-2)`, `[]`},
		{`{to: !$ a + 1, n: 3, more: {x: [1, null]}}`, `(a + 1)`, `3`, `{'x': [1, null]}`},
		{`{to: !$ event.payload.who, n: !$ shared-state.a, more: [!$ a * 2, true]}`, `event.payload.who`, `shared-state.a`, `[(a * 2), true]`},
	} {
		inPlace := `!$ "` + c.to + `"`
		used := loadText(t, template+around+"          - {id: h, use: {template: send, with: "+c.with+"}}\n")
		plain := loadText(t, around+"          - id: h"+fmt.Sprintf(written, c.to, c.n, c.more, inPlace))
		if d := cmp.Diff(meaning(t, plain.Handler("p/s/h")), meaning(t, used.Handler("p/s/h"))); d != "" {
			t.Errorf("with %s: written out and used (-want +have):\n%s", c.with, d)
		}
	}
}

func loadText(t *testing.T, text string) *tree.Bundle {
	t.Helper()
	bundle, found := dsl.Load([]diag.File{{Name: "p.yaml", Data: []byte(text)}}, dsl.Options{Language: language(), Types: testTypes()})
	if bundle == nil {
		t.Fatalf("%s\n%v", text, found)
	}
	return bundle
}

// meaning returns what a handler says, and what it reads.
func meaning(t *testing.T, h *tree.Handler) map[string]any {
	t.Helper()
	env := datum.Env{
		"event":        map[string]any{"payload": map[string]any{"who": "u-1"}},
		"shared-state": map[string]any{"a": 4, "sent": nil},
	}
	out := map[string]any{"critical": h.IsCritical()}
	for name, v := range map[string]*expr.Value{"enabled": h.Enabled, "body": h.Body, "result": h.Result} {
		value, err := v.Eval(env)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var reads []string
		for _, r := range v.Reads() {
			reads = append(reads, r.Path.String())
		}
		out[name], out[name+" reads"] = value, reads
	}
	return out
}
