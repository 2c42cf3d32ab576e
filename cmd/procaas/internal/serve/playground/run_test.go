package playground

import (
	"context"
	"strings"
	"testing"

	"procaas/dsl/diag"
	"procaas/engine/api/ui"
	"procaas/engine/model"
)

const tried = `
services:
  - {id: push, url: "http://127.0.0.1:9"}
pipelines:
  - id: hello
    shared-state: {greeting: null}
    stages:
      - id: think
        handlers: [{id: greet, set: {greeting: !$ "'hello ' + event.payload.name"}}]
      - id: wait
        handlers: [{id: day, wait: {for: 24h}}]
      - id: tell
        handlers: [{id: user, request: {service: push, path: /v1/push, body: {text: !$ shared-state.greeting}}, retry: {attempts: 2, min-delay: 1s}}]
`

func playOf(t *testing.T, pipelines, tests string) ui.Played {
	t.Helper()
	return run(t.Context(), diag.File{Name: "playground.yaml", Data: []byte(pipelines)},
		diag.File{Name: "playground.test.yaml", Data: []byte(tests)})
}

func TestPlaygroundRunsWithStubs(t *testing.T) {
	t.Parallel()
	out := playOf(t, tried, `
tests:
  - name: told the next day
    events: {type: hello, payload: {name: Ada}}
    mocks: {user: [{status: 503}, {status: 202}]}
    expect: {status: succeeded, shared-state: {greeting: hello Ada}}
`)
	if out.Err != "" || len(out.Findings) > 0 || len(out.Tests) != 1 || len(out.Tests[0].Wrong) > 0 || len(out.Tests[0].Stories) != 1 {
		t.Fatalf("have %+v", out)
	}
	one := out.Tests[0]
	if story := one.Stories[0]; story.Run.Status != model.Succeeded || len(story.Stages) != 3 || len(story.Stages[2].Steps[0].Tries) != 2 {
		t.Errorf("have %+v", story)
	}
	var calls []string
	for _, c := range one.Calls {
		if c.Address != "" {
			calls = append(calls, c.Address)
		}
	}
	if want := "POST http://127.0.0.1:9/v1/push POST http://127.0.0.1:9/v1/push"; strings.Join(calls, " ") != want {
		t.Errorf("want %s, have %v", want, calls)
	}
}

func TestPlaygroundSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	const event = "tests:\n  - name: a\n    events: {type: hello, payload: {name: Ada}}\n"
	if out := playOf(t, tried, event); len(out.Tests) != 1 || len(out.Tests[0].Wrong) == 0 ||
		!strings.Contains(out.Tests[0].Wrong[0], "mocks:\n    user:") {
		t.Errorf("without an answer, want to be told how to give one, have %+v", out)
	}
	if out := playOf(t, tried, event+
		"    expect: {shared-state: {greeting: bye}}\n    mocks: {user: {status: "+
		"202}}\n"); len(out.Tests) != 1 || len(out.Tests[0].Wrong) != 1 {
		t.Errorf("want one difference, have %+v", out)
	}
	if out := playOf(t, tried, "tests:\n  - nam: a\n"); !diag.HasErrors(out.Findings) || out.Findings[0].Span.Start.Line != 2 {
		t.Errorf("want a finding in the test, have %+v", out)
	}
	if out := playOf(t, tried, "stubs: ../etc\n"+event); !strings.Contains(out.Err, "no files") {
		t.Errorf("want no files to be read, have %+v", out)
	}
	if out := playOf(t, tried, strings.Replace(event, "type: hello", "type: hallo", 1)); len(out.Findings)+len(out.Tests) == 0 ||
		out.Err != "" {
		t.Errorf("have %+v", out)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if out := run(ended, diag.File{Name: "a.yaml", Data: []byte(tried)},
		diag.File{Name: "a.test.yaml", Data: []byte(event)}); !strings.Contains(out.Err, "too long") {
		t.Errorf("want it to end in time, have %+v", out)
	}
}
