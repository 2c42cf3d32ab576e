package plant_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/handlers/balancer"
	"procaas/handlers/balancer/plant"
)

func scenario(t *testing.T, yaml string) *plant.Scenario {
	t.Helper()
	s, found := plant.Parse(diag.File{Name: "test.yaml", Data: []byte(yaml)})
	if s == nil {
		t.Fatalf("the scenario is refused: %+v", found)
	}
	return s
}

// small is a cluster that tests have time for.
const small = "version: 1\nname: small\nduration_s: 1500\nwarmup_s: 200\ncluster: {workers: 12}\n"

// run compares v4 and v5, with the checks that hold for every run. v5 may move up to so many partitions back.
func run(t *testing.T, yaml string, back int) (v4, v5 plant.Result) {
	t.Helper()
	s := scenario(t, yaml)
	results := map[string]plant.Result{}
	for _, p := range []string{"v4", "v5"} {
		r, err := plant.Run(s, p, balancer.DefaultParams(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if r.Invalid > 0 || r.Drops < r.Bound-1e-9 || r.Drops > 1 || r.Dead+r.Handing > r.Drops+1e-9 {
			t.Errorf("have %+v: an invalid move, fewer drops than possible, or drops that do not add up", r)
		}
		t.Log(r)
		results[p] = r
	}
	v4, v5 = results["v4"], results["v5"]
	if v5.Oscillations > back {
		t.Errorf("v5: have %d moves back within ten minutes, want %d at most", v5.Oscillations, back)
	}
	return v4, v5
}

// The figures hold on average; the tests take one seed, and leave room.
func TestV5DropsLessAndMovesLess(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		yaml         string
		drops, moves float64 // at most, as shares of those of v4
	}{
		"a hot partition": {small + "partitions: {count: 240, util: 0.65}\nevents:\n  - {at_s: 400, kind: spike, rank: 5, to: 0.6, " +
			"for_s: 600}\n", 0.5, 1.15},
		"a monster": {small + "partitions: {count: 240, util: 0.65}\nevents:\n  - {at_s: 400, kind: spike, rank: 3, to: 1.4, " +
			"for_s: 800}\n", 0.3, 0.75},
		"unequal workers": {strings.Replace(small, "workers: 12", "workers: 12, capacities: [600, 1400], hide_capacity: true", 1) +
			"partitions: {count: 240, util: 0.75}\n", 0.5, 0.75},
		"slow workers": {small + "partitions: {count: 240, util: 0.6}\nevents:\n  - {at_s: 400, kind: slow, worker: 2, count: 1, " +
			"factor: 0.5}\n", 0.6, 1},
		"dear caches": {small + "partitions: {count: 240, util: 0.7}\nplant: {cold_mult: 8, cold_tau_s: 90}\n", 0.5, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v4, v5 := run(t, c.yaml, 0)
			if v4.Excess() < 1e-4 {
				t.Fatalf("v4 drops %.4f%% only: the test shows nothing", 100*v4.Excess())
			}
			if v5.Excess() > c.drops*v4.Excess() || float64(v5.Moves) > c.moves*float64(v4.Moves) {
				t.Errorf("want %.2f of the drops and %.2f of the moves of v4 at most, have %.2f and %.2f", c.drops, c.moves,
					v5.Excess()/v4.Excess(), float64(v5.Moves)/float64(v4.Moves))
			}
		})
	}
}

func TestV5DoesNotMoveForLostHealthchecksAndBursts(t *testing.T) {
	t.Parallel()
	const calm = "partitions: {count: 240, util: 0.5, initial: lpt}\n"
	if _, v5 := run(t, small+calm+"events:\n  - {at_s: 100, kind: ping_loss, prob: 0.02}\n", 0); v5.Moves > 0 {
		t.Errorf("lost healthchecks: have %d moves, want none", v5.Moves)
	}
	v4, v5 := run(t, small+calm+"load: {bursts_per_hour: 300, burst_share: 0.6}\n", 0)
	if v5.Moves > v4.Moves {
		t.Errorf("bursts: have %d moves, v4 needs %d", v5.Moves, v4.Moves)
	}
}

func TestV5EmptiesWorkersThatAreAboutToStop(t *testing.T) {
	t.Parallel()
	// What leaves a draining worker may go back to one that has nothing.
	v4, v5 := run(t, small+"partitions: {count: 240, util: 0.5}\nevents:\n  - {at_s: 300, kind: restart_all, down_s: 20, gap_s: "+
		"60, notice_s: 30}\n", 2)
	if v5.Dead > 0 || v4.Dead == 0 {
		t.Errorf("have drops of %v on workers that have stopped, and %v with v4; want none, and some", v5.Dead, v4.Dead)
	}
}

func TestRunsRepeat(t *testing.T) {
	t.Parallel()
	s := scenario(t, "version: 1\nname: small\nduration_s: 200\ncluster: {workers: 6}\npartitions: {count: 60, util: 0.9}\n"+
		"load: {drift_sigma: 0.3, bursts_per_hour: 100}\nevents:\n  - {at_s: 50, kind: crash, worker: 1, for_s: 60}\n")
	var all [2]bytes.Buffer
	for i := range all {
		c, err := plant.Compare(s, balancer.Names(), balancer.DefaultParams(), 2)
		if err != nil {
			t.Fatal(err)
		}
		if err := datum.WriteJSON(&all[i], plant.Report{Scenarios: []plant.Comparison{c}}); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(all[0].Bytes(), all[1].Bytes()) {
		t.Error("have two reports that differ, for the same scenario and seeds")
	}
}

func TestShippedScenariosAreSound(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../testdata/balancer/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("have %d scenarios and error %v, want ten or more", len(files), err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		s := scenario(t, string(data))
		if want := strings.TrimSuffix(filepath.Base(name), ".yaml"); s.Name != want || s.About == "" || s.Expect == "" {
			t.Errorf("%s: want the name %s, what happens and what to expect, have %q, %q and %q", name, want, s.Name, s.About, s.Expect)
		}
	}
}

func TestBadScenariosAreRefused(t *testing.T) {
	t.Parallel()
	const v1, one, part = "version: 1\nduration_s: 9\n", "cluster: {workers: 1}\n", "partitions: {count: 1, replicas: 1}\n"
	for _, c := range []struct{ yaml, want string }{
		{"version: 2\nduration_s: 9\n" + one + part, "version"},
		{v1 + one + "partitions: {count: 1}\n", "replicas: want 1 workers at most, have 6"},
		{v1 + one + part + "events: [{at_s: 1, kind: crash, worker: 1}]\n", "want a worker below 1, have 1"},
		{v1 + one + "partitions: {count: 1, replicas: 1, colour: red}\n", "colour"},
		{"version: 1\nduration_s: 1e6\nstep_s: 0.1\n" + "cluster: {workers: 2000}\npartitions: {count: 100000}\n", "too many to simulate"},
		{v1 + "warmup_s: 9\n" + one + part, "warmup_s: want less than duration_s"},
		{v1 + "cluster: {workers: 1, capacities: [3]}\n" + part, "capacities: want the least and the most"},
		{v1 + one + part + "events: [{at_s: 1, kind: spike, rank: 1}]\n", "want a rank below 1"},
		{v1 + "cluster: {workers: 3}\n" + part + "events: [{at_s: 1, kind: zone_down, zone: 3}]\n", "want a zone below 3"},
	} {
		s, found := plant.Parse(diag.File{Name: "test.yaml", Data: []byte("name: a\n" + c.yaml)})
		var all strings.Builder
		for _, d := range found {
			all.WriteString(d.Message + "\n")
		}
		if s != nil || !strings.Contains(all.String(), c.want) {
			t.Errorf("%s: want findings with %q, have %q", c.yaml, c.want, all.String())
		}
	}
}
