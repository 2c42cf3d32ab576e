package dsl_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"procaas/dsl"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
)

// seedHandler loads one of the two listings of the same handler.
func seedHandler(t *testing.T, name string) *tree.Handler {
	t.Helper()
	data, err := os.ReadFile("../testdata/dsl/ok/" + name)
	if err != nil {
		t.Fatal(err)
	}
	bundle, found := load(t, string(data))
	if bundle == nil || len(bundle.Detached) != 1 {
		t.Fatalf("%s: want one detached handler, have %s", name, show(found))
	}
	return bundle.Detached[0]
}

// TestBothVersionsOfTheLanguageAgree evaluates the two listings of one handler.
// They differ in one point: the first asks that the switch is off, the second
// that it is on.
func TestBothVersionsOfTheLanguageAgree(t *testing.T) {
	t.Parallel()
	first, second := seedHandler(t, "seed003_first.yaml"), seedHandler(t, "seed003_second.yaml")
	for _, authorized := range []bool{true, false} {
		for _, tariff := range []string{"econom", "business", "comfort"} {
			for _, on := range []bool{true, false} {
				env := func(on bool) datum.Env {
					return datum.Env{
						"event":        map[string]any{"payload": map[string]any{"is-authorized": authorized}},
						"configs":      map[string]any{"SOME_IMPORTANT_SWITCH": map[string]any{"enabled": on}},
						"shared-state": map[string]any{"order": map[string]any{"user_id": 7, "info": map[string]any{"tariff": tariff}}},
					}
				}
				one, err1 := first.Enabled.Eval(env(!on))
				two, err2 := second.Enabled.Eval(env(on))
				if err1 != nil || err2 != nil {
					t.Fatalf("errors: %v, %v", err1, err2)
				}
				if want := authorized && tariff != "comfort" && on; one != want || two != want {
					t.Errorf("authorized %v, tariff %s, switch %v: have %v and %v, want %v", authorized, tariff, on, one, two, want)
				}
				body1, err1 := first.Body.Eval(env(on))
				body2, err2 := second.Body.Eval(env(on))
				if err1 != nil || err2 != nil {
					t.Fatalf("errors: %v, %v", err1, err2)
				}
				if d := cmp.Diff(body1, body2); d != "" {
					t.Errorf("the bodies differ (-first +second):\n%s", d)
				}
				want := map[string]any{"user-id": 7, "tariff": tariff}
				if d := cmp.Diff(want, body2.(map[string]any)["body"]); d != "" {
					t.Errorf("body (-want +have):\n%s", d)
				}
			}
		}
	}
}

// TestSeedListingsWarnOfPlaceholdersOnly says what the listings print.
func TestSeedListingsWarnOfPlaceholdersOnly(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]map[diag.Code]int{
		"seed003_flow.yaml":    {"PC0212": 8},
		"seed003_first.yaml":   {"PC0118": 1, "PC0213": 1},
		"seed003_second.yaml":  {"PC0213": 1},
		"seed003_process.yaml": {"PC0212": 5, "PC0202": 1},
	} {
		data, err := os.ReadFile("../testdata/dsl/ok/" + name)
		if err != nil {
			t.Fatal(err)
		}
		bundle, found := load(t, string(data))
		have := make(map[diag.Code]int)
		for _, d := range found {
			have[d.Code]++
		}
		if d := cmp.Diff(want, have); bundle == nil || d != "" {
			t.Errorf("%s: codes (-want +have):\n%s%s", name, d, show(found))
		}
	}
}

// TestBundle looks at what the engine finds in a bundle.
func TestBundle(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../testdata/dsl/ok/taxi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	b, found := load(t, string(data))
	if b == nil {
		t.Fatal(show(found))
	}
	if h := b.Handler("new-order-created/pause/bonus"); h == nil || h.Owner != "team-bonus" || h.IsCritical() {
		t.Errorf("the contribution is %+v", h)
	}
	if p := b.Pipeline("closing"); p == nil || len(b.On("order-closed")) != 1 || b.On("order-closed")[0] != p {
		t.Error("closing does not serve order-closed")
	}
	if p := b.Pipeline("tick"); len(b.On("tick")) != 1 || b.On("tick")[0] != p || len(p.On) != 1 {
		t.Error("tick does not serve the event of its own name")
	}
	if b.On("closing") != nil || b.Flow("nobody") != nil || b.Service("nobody") != nil || b.Handler("a/b/c") != nil {
		t.Error("something unknown is found")
	}
	if b.Flow("taxi-order") == nil || b.Service("push") == nil || len(b.Configs) != 2 || len(b.Triggers) != 2 {
		t.Error("something known is missing")
	}
	if have := b.Pipeline("new-order-created").Stages[1].Handlers[1].Path; have != "new-order-created/find/count" {
		t.Errorf("path: have %q", have)
	}
}

// TestOrderOfFilesDoesNotMatter loads the same files in two orders, one of
// them twice.
func TestOrderOfFilesDoesNotMatter(t *testing.T) {
	t.Parallel()
	core := diag.File{Name: "core.yaml", Data: []byte("pipelines: [{id: p, stages: [{id: s}]}]")}
	a := diag.File{Name: "a.yaml", Data: []byte("handlers: [{id: one, into: p/s, critical: false, wait: {for: 1s}}]")}
	z := diag.File{Name: "z.yaml", Data: []byte("handlers: [{id: two, into: p/s, critical: false, wait: {for: 1s}}]")}
	o := dsl.Options{Language: language(), Types: testTypes()}
	one, found := dsl.Load([]diag.File{z, core, a}, o)
	two, _ := dsl.Load([]diag.File{a, a, core, z}, o)
	if one == nil || two == nil {
		t.Fatal(show(found))
	}
	if one.Hash != two.Hash {
		t.Errorf("hashes differ: %s and %s", one.Hash, two.Hash)
	}
	for _, b := range []*tree.Bundle{one, two} {
		hs := b.Pipelines[0].Stages[0].Handlers
		if len(hs) != 2 || hs[0].ID != "one" || hs[1].ID != "two" {
			t.Errorf("contributions are not in the order of the files: %v", hs)
		}
	}
	z.Data = append(z.Data, '\n')
	if other, _ := dsl.Load([]diag.File{a, core, z}, o); other.Hash == one.Hash {
		t.Error("another file has the same hash")
	}
}
