package pipelines_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"procaas/cmd/procaas/addons"
	"procaas/engine/definitions"
	"procaas/engine/flowtest"
	"procaas/engine/replay"
	"procaas/handlers"
)

// cannotReplay are the reasons for which a replay may leave a run out.
var cannotReplay = []string{"an operator retried it", "its node died"}

// TestRunsReplayAsTheyWent replays each run of the tests of every flow that we ship, by its own version. Recipes have all that
// the language has. What they came to must come of it again, or the replay must say that it cannot tell.
func TestRunsReplayAsTheyWent(t *testing.T) {
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
			program, err := replay.NewProgram(bundle, replay.Env{Types: addons.HandlerTypes(), Alone: handlers.Alone()}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, suite := range suitesOf(t, d.Name(), bundle) {
				played, err := suite.Play(t.Context(), len(suite.File.Tests))
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range played {
					checkReplay(t, suite.Name+": "+p.Name, p, program)
				}
			}
		})
	}
}

// checkReplay replays the runs of a test, as they are written to a file and read from it.
func checkReplay(t *testing.T, name string, p flowtest.Played, program *replay.Program) {
	t.Helper()
	var file bytes.Buffer
	w := replay.NewWriter(&file)
	for i := range p.Recorded {
		if err := w.Write(&p.Recorded[i], func(string) (v definitions.VersionDetail, err error) { return v, nil }); err != nil {
			t.Fatal(err)
		}
	}
	r := replay.NewReader(&file, func(definitions.VersionDetail) error { return nil })
	report, err := replay.Run(t.Context(), r.Next, replay.Options{
		Now: program, Was: func(string) (*replay.Program, error) { return program, nil }, Slower: 0.1,
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, l := range report.LeftOut {
		if slices.ContainsFunc(cannotReplay, func(why string) bool { return strings.Contains(l.Why, why) }) {
			report.Runs -= l.Runs
		}
	}
	if report.Same == report.Runs {
		return
	}
	t.Errorf("%s: want all as it was, have\n%s", name, report.Text())
}
