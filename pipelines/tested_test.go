package pipelines_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"procaas/cmd/procaas/addons"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/flowtest"
	"procaas/engine/memory"
	"procaas/engine/store"
)

// leastCovered is the share of what a flow does that its tests must reach, as
// procaas test --coverage counts it.
const leastCovered = 90 // percent

// TestFlowsAreTested runs the tests of every flow that we ship, also with crashes
// and without each handler that is not critical, and wants them to reach nearly all
// of it.
func TestFlowsAreTested(t *testing.T) {
	t.Parallel()
	dirs, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if !d.IsDir() {
			continue
		}
		t.Run(d.Name(), func(t *testing.T) {
			t.Parallel()
			files, _ := read(t, d.Name())
			bundle := load(t, files)
			suites := suitesOf(t, d.Name(), bundle)
			if len(suites) == 0 {
				t.Fatalf("%s has no *.test.yaml: see procaas explain tests", d.Name())
			}
			cover := flowtest.NewCoverage(bundle)
			report, err := flowtest.Run(t.Context(), suites, flowtest.Options{Chaos: true, Cover: cover})
			if err != nil {
				t.Fatal(err)
			}
			var shown *flowtest.Coverage
			if cover.Total().Percent() < leastCovered {
				shown = cover
				t.Errorf("want at least %d %% to be covered, have %.1f %%", leastCovered, cover.Total().Percent())
			}
			var out strings.Builder
			if err := flowtest.Write(&out, flowtest.Text, report, shown, false); err != nil {
				t.Fatal(err)
			}
			if report.Failed() > 0 || shown != nil {
				t.Error(out.String())
			}
		})
	}
}

// suitesOf loads the tests of a folder.
func suitesOf(t *testing.T, dir string, bundle *tree.Bundle) []*flowtest.Suite {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	env := flowtest.Env{Types: addons.HandlerTypes(), Store: func(now func() time.Time) store.Store { return memory.New(now).Ports() }}
	var suites []*flowtest.Suite
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f := diag.File{Name: filepath.ToSlash(name), Data: data}
		file, found := flowtest.Parse(f)
		noFindings(t, []diag.File{f}, found)
		s, found := flowtest.NewSuite(f.Name, file, bundle, nil, env)
		noFindings(t, []diag.File{f}, found)
		suites = append(suites, s)
	}
	return suites
}
