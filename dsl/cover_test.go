package dsl_test

import (
	"fmt"
	"strings"
	"testing"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
)

const covered = `
pipelines:
  - id: work
    when: !$ event.payload.on == true
    shared-state: {total: 0, note: null}
    stages:
      - id: a
        handlers:
          - id: one
            critical: false
            enabled: !$ event.payload.a and (not event.payload.b or total > 1)
            set:
              note: !$ |
                'much' if total > 10 else event.payload.note ?? 'none'
              total: !$ |
                count(event.payload.list ?? [], # > 1 and # < 3)
            fallback:
              result:
                total: !$ event.payload.total ?? 0
`

func showForks(c *expr.Cover) string {
	var out []string
	for _, b := range c.Forks {
		ways, counts := b.Ways(), b.Counts()
		out = append(out, fmt.Sprintf("%d:%d %s: %s %d, %s %d", b.Span.Start.Line, b.Span.Start.Column, b.Text,
			ways[0], counts[0], ways[1], counts[1]))
	}
	return strings.Join(out, "\n")
}

func TestCoverCountsTheWaysOfExpressions(t *testing.T) {
	t.Parallel()
	bundle, found := load(t, covered)
	if bundle == nil {
		t.Fatal(show(found))
	}
	c := bundle.Cover()
	p := bundle.Pipelines[0]
	h := p.Stages[0].Handlers[0]
	eval := func(v *expr.Value, total int, payload map[string]any) any {
		t.Helper()
		got, err := v.Eval(datum.Env{
			"event": map[string]any{"payload": payload}, "shared-state": map[string]any{"total": total, "note": nil},
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	eval(p.When, 0, map[string]any{"on": true})
	eval(h.Enabled, 0, map[string]any{"a": false})
	eval(h.Enabled, 0, map[string]any{"a": true, "b": true})
	eval(h.Body, 0, map[string]any{"list": []any{1, 2, 3}})
	want := `4:14 event.payload.on == true: true 1, false 0
11:25 event.payload.a: true 1, false 1
11:50 event.payload.b: true 1, false 0
11:69 total > 1: true 0, false 1
14:27 total > 10: true 0, false 1
14:43 event.payload.note: a value 0, null 1
16:23 event.payload.list: a value 1, null 0
16:49 # > 1: true 2, false 1
16:59 # < 3: true 1, false 1
19:27 event.payload.total: a value 0, null 0`
	if have := showForks(c); have != want {
		t.Errorf("want\n%s\nhave\n%s", want, have)
	}
}
