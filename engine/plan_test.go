package engine_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"procaas/dsl"
	"procaas/dsl/diag"
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
	if have := len(p.Step("p/s/c").After()); have != 2 {
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

// planned returns the bytes that planning and showing the pipelines of a file allocates.
func planned(t *testing.T, yaml string) uint64 {
	t.Helper()
	b, found := dsl.Load([]diag.File{{Name: "p.yaml", Data: []byte(yaml)}}, dsl.Options{Types: facts()})
	if b == nil {
		t.Fatal(found)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m := planner.NewPlanner(b, facts())
	for _, p := range b.Pipelines {
		plan, err := m.Plan(p)
		if err != nil {
			t.Fatal(err)
		}
		plan.View()
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A stage of many handlers that all depend on each other is planned and shown in time and memory that grow with its size.
func TestLargeStagesArePlanned(t *testing.T) {
	stage := func(n int) string {
		var b strings.Builder
		b.WriteString("pipelines:\n- id: p\n  shared-state: {a: 0}\n  stages:\n  - id: s\n    handlers:\n")
		for i := range n {
			fmt.Fprintf(&b, "    - {id: h%d, set: {a: !$ shared-state.a}}\n", i)
		}
		return b.String()
	}
	few, many := planned(t, stage(500)), planned(t, stage(1000))
	if many > 3*few {
		t.Errorf("twice the handlers: want about twice the %d KiB, have %d KiB", few>>10, many>>10)
	}
}

// The number of ways through calls, and through waits, grows exponentially. Each part is looked at once.
func TestPlansWithCountlessWaysAreMade(t *testing.T) {
	t.Parallel()
	var calls, waits strings.Builder
	calls.WriteString("pipelines:\n")
	for level := range 8 {
		fmt.Fprintf(&calls, "- id: p%d\n  inputs: {}\n  stages:\n  - id: s\n    handlers:\n", level)
		for i := range 30 {
			fmt.Fprintf(&calls, "    - {id: h%d, call: {pipeline: p%d}}\n", i, level+1)
		}
	}
	calls.WriteString("- id: p8\n  inputs: {}\n  stages: [{id: s, handlers: [{id: a, set: {}}]}]\n")
	planned(t, calls.String())
	waits.WriteString("pipelines:\n- id: p\n  stages:\n  - id: s\n    handlers:\n    - {id: first, set: {}}\n")
	waits.WriteString("    - {id: a0, set: {}}\n    - {id: b0, set: {}}\n")
	for i := 1; i < 60; i++ {
		for _, id := range []string{"a", "b"} {
			fmt.Fprintf(&waits, "    - {id: %s%d, enabled: !$ sources.a%d.outcome == sources.b%d.outcome, set: {}}\n", id, i, i-1, i-1)
		}
	}
	waits.WriteString("    - {id: last, enabled: !$ sources.first.outcome == sources.a59.outcome, set: {}}\n")
	planned(t, waits.String())
}
