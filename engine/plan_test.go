package engine_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"procaas/dsl/tree"
	"procaas/engine/diagram"
	"procaas/engine/planner"
)

func TestPlanRefusesWhatItCannotRun(t *testing.T) {
	t.Parallel()
	handler := func(id, kind string) *tree.Handler {
		return &tree.Handler{ID: id, Path: "p/s/" + id, Type: kind}
	}
	pipeline := func(flow string, hs ...*tree.Handler) *tree.Pipeline {
		return &tree.Pipeline{ID: "p", Flow: flow, Stages: []*tree.Stage{{ID: "s", Handlers: hs}}}
	}
	for want, p := range map[string]*tree.Pipeline{
		"plan p: there is no flow order":                       pipeline("order"),
		"plan p: p/s/a: handler type teleport is not known":    pipeline("", handler("a", "teleport")),
		"plan p: p/s/a: there are two handlers with this path": pipeline("", handler("a", ""), handler("a", "")),
	} {
		if _, err := planner.New(&tree.Bundle{}, p, facts()); err == nil || err.Error() != want {
			t.Errorf("have %v, want %s", err, want)
		}
	}
}

// Every pair that depends has its edge: a handler in between may be off.
func TestPlanKeepsImpliedEdges(t *testing.T) {
	t.Parallel()
	p := plan(t, `
pipelines:
- id: p
  shared-state: {n: 0}
  stages:
  - id: s
    handlers:
    - {id: a, set: {n: 1}}
    - {id: b, set: {n: 2}}
    - {id: c, set: {n: 3}}
`)
	if have := len(p.Step("p/s/c").After); have != 2 {
		t.Errorf("have %d edges, want those to a and to b", have)
	}
	var text strings.Builder
	if err := diagram.Write(&text, p, diagram.Text); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text.String(), "a and c") {
		t.Errorf("want only the edge to b shown, have\n%s", &text)
	}
}

// A full disk must not look like a plan that was written.
func TestPlansTellWhenTheyCannotBeWritten(t *testing.T) {
	t.Parallel()
	p, err := planner.New(&tree.Bundle{}, &tree.Pipeline{ID: "p"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	r.CloseWithError(io.ErrShortWrite)
	for _, format := range []diagram.Format{diagram.Text, diagram.JSON, diagram.Mermaid, diagram.DOT} {
		if err := diagram.Write(w, p, format); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("%s: have %v, want the error of the writer", format, err)
		}
	}
}

// A name in a diagram must not be taken for syntax.
func TestDiagramsQuoteText(t *testing.T) {
	t.Parallel()
	p, err := planner.New(&tree.Bundle{}, &tree.Pipeline{ID: "p", Stages: []*tree.Stage{
		{ID: `a"]`, Handlers: []*tree.Handler{{ID: `x"]-->y`, Path: "p/a/x"}}}, {ID: "empty"}, {ID: "empty"},
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for format, want := range map[diagram.Format]string{
		diagram.Mermaid: `["x&#34;]--&gt;y · placeholder"]`,
		diagram.DOT:     `label="x\"]-->y\nplaceholder"`,
	} {
		var text strings.Builder
		if err := diagram.Write(&text, p, format); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), want) {
			t.Errorf("%s: want %s in\n%s", format, want, &text)
		}
	}
}
