package engine_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/planner"
)

// reusable writes a file of a team, whose pipelines have to do with others: all parts of a plan that could depend on more than its
// pipeline are in some.
func reusable(t *rapid.T, team int) diag.File {
	var b strings.Builder
	pick := func(of ...string) string { return rapid.SampledFrom(of).Draw(t, "part") }
	odds := func(of int) bool { return rapid.IntRange(1, of).Draw(t, "odds") == 1 }
	fmt.Fprintf(&b, "pipelines:\n- id: t%d-a\n%s  shared-state: {n: 0}\n  stages:\n", team, map[bool]string{true: "  flow: f\n"}[odds(8)])
	fmt.Fprintf(&b, "  - id: s\n    handlers:\n    - {id: h, request: {%s}, result: {n: %d}, critical: %s}\n", pick(
		"service: shop, path: /a", "url: 'http://shop.example:81/b'", "service: shop, path: /c, query: {n: !$ shared-state.n}",
	), rapid.IntRange(0, 3).Draw(t, "n"), pick("true", "false"))
	fmt.Fprintf(&b, "    - {id: i, set: {n: !$ shared-state.n + 1}}\n")
	if odds(3) {
		fmt.Fprintf(&b, "- id: t%d-b\n  shared-state: {n: 0}\n  stages:\n  - id: s\n%s", team, pick(
			"    handlers: [{id: h, call: {pipeline: called, with: {n: 1}}}]\n",
			"    for-each: {items: [1, 2]}\n    shared-state: {m: 0}\n    handlers: [{id: h, request: {service: shop, path: /a}, result: {m: 1}}]\n",
			"    handlers: [{id: h, request: {service: other, path: /a}}, {id: i, emit: {type: served}}]\n",
		))
	}
	if odds(8) {
		fmt.Fprintf(&b, "- id: t%d-c\n  flow: f\n  on: served\n  when: !$ %s > %d\n  stages: [{id: s, handlers: [{id: h, request: {service: shop, path: /c}}]}]\n",
			team, pick("configs.limit", "event.payload.n"), team)
	}
	return diag.File{Name: fmt.Sprintf("team-%d.yaml", team), Data: []byte(b.String())}
}

// shareable writes the file of what pipelines share.
func shareable(t *rapid.T) diag.File {
	return diag.File{Name: "a-shared.yaml", Data: fmt.Appendf(nil, `
configs: {limit: 5}
services: [{id: shop, url: "http://shop.example:%d", timeout: %ds}, {id: other, url: "http://other.example:81"}]
flows:
- {id: f, key: !$ event.key, shared-state: {total: %d}}
- {id: g, key: !$ event.key}
pipelines:
- {id: called, inputs: {n: {type: number}}, outputs: {m: !$ inputs.n}, stages: [{id: s, handlers: [{id: h, request: {service: shop, path: /a}}]}]}
`, rapid.IntRange(80, 82).Draw(t, "port"), rapid.IntRange(1, 9).Draw(t, "timeout"), rapid.IntRange(0, 1).Draw(t, "total"))}
}

// Whatever people edit, plans that are taken over from the definition before are those that would be made, and belong to the new one.
func TestPlansAreReusedOnlyIfTheyWouldBeTheSame(t *testing.T) {
	t.Parallel()
	const teams = 5
	types := facts()
	edits, shared := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		files := []diag.File{shareable(t)}
		for i := range teams {
			files = append(files, reusable(t, i))
		}
		var l dsl.Loader
		var before []*planner.Plan
		for range rapid.IntRange(2, 6).Draw(t, "edits") {
			b, found := l.Load(files, dsl.Options{Types: types})
			if b == nil {
				t.Fatalf("%v\n%s", found, files)
			}
			var plans []*planner.Plan
			m, anew := planner.NewPlanner(b, types), planner.NewPlanner(b, types)
			m.Reuse(before)
			for i, p := range b.Pipelines {
				have, err := m.Plan(p)
				if err != nil {
					t.Fatal(err)
				}
				want, err := anew.Plan(p)
				if err != nil {
					t.Fatal(err)
				}
				withoutFuncs(have)
				withoutFuncs(want)
				if !reflect.DeepEqual(have, want) {
					t.Fatalf("the plan of %s is not the one that would be made", p.ID)
				}
				if have.Bundle != b {
					t.Fatalf("the plan of %s belongs to another bundle", p.ID)
				}
				if i < len(before) && before[i].Pipeline == p && before[i].Steps[0] == have.Steps[0] {
					shared++
				}
				edits++
				plans = append(plans, have)
			}
			before = plans
			if n := rapid.IntRange(-1, teams-1).Draw(t, "edited"); n < 0 {
				files[0] = shareable(t)
			} else {
				files[n+1] = reusable(t, n)
			}
		}
	})
	if 20*shared < edits {
		t.Errorf("of %d plans only %d are shared, want a 20th at least", edits, shared)
	}
}

// A plan for a bundle with the same pipelines and another service, flow or rival for the event is not that of before.
func TestPlansAreNotReusedInOtherSurroundings(t *testing.T) {
	t.Parallel()
	b, found := dsl.Load([]diag.File{{Name: "p.yaml", Data: []byte(`
configs: {limit: 5}
services: [{id: shop, url: "http://shop.example"}]
flows: [{id: f, key: !$ event.key}]
pipelines:
- {id: p, flow: f, on: served, stages: [{id: s, handlers: [{id: h, request: {service: shop, path: /a}}]}]}
- {id: rival, flow: f, on: other, when: !$ configs.limit > 1, stages: [{id: s, handlers: [{id: h, request: {service: shop, path: /a}}]}]}
`)}}, dsl.Options{Types: facts()})
	if b == nil {
		t.Fatal(found)
	}
	served := b.Pipeline("p")
	before, err := planner.New(b, served, facts())
	if err != nil {
		t.Fatal(err)
	}
	reuse := func(edit func(*tree.Bundle)) *planner.Plan {
		next := *b
		edit(&next)
		m := planner.NewPlanner(&next, facts())
		m.Reuse([]*planner.Plan{before})
		plan, err := m.Plan(served)
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	if same := reuse(func(*tree.Bundle) {}); same.Steps[0] != before.Steps[0] || same.Contested {
		t.Error("want the plan of before for the same surroundings")
	}
	shop := *b.Services[0]
	shop.Timeout++
	if other := reuse(func(next *tree.Bundle) {
		next.Services, next.Index.Services = []*tree.Service{&shop}, map[string]*tree.Service{"shop": &shop}
	}); other.Steps[0].Service != &shop {
		t.Error("the plan knows the service of before")
	}
	flow := *b.Flows[0]
	if other := reuse(func(next *tree.Bundle) {
		next.Flows, next.Index.Flows = []*tree.Flow{&flow}, map[string]*tree.Flow{"f": &flow}
	}); other.Flow != &flow {
		t.Error("the plan knows the flow of before")
	}
	if other := reuse(func(next *tree.Bundle) {
		next.Index.Serving = map[string][]*tree.Pipeline{"served": {b.Pipeline("rival"), served}}
	}); !other.Contested {
		t.Error("the plan does not know its rival")
	}
}

// withoutFuncs reduces the types in a plan to their names, since functions cannot be compared.
func withoutFuncs(p *planner.Plan) {
	for _, s := range p.Within(map[*planner.Plan]bool{}) {
		s.Type, s.Verify = tree.Type{Name: s.Type.Name}, tree.Type{Name: s.Verify.Name}
		if s.Undo != nil {
			s.Undo.Type = tree.Type{Name: s.Undo.Type.Name}
		}
	}
}
