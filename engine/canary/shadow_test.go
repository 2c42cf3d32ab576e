package canary_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"procaas/engine/canary"
	"procaas/engine/model"
)

// shadowed is a version in the shadow of all runs.
func shadowed(now time.Time) *canary.State {
	return canary.Begin("old", "new", canary.Order{Percent: 100, Shadow: true}, 0, nil, "ann", "", now)
}

// No run uses a version in the shadow, whatever its share.
func TestAVersionInTheShadowGetsNoRuns(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	s := shadowed(now)
	if s.Runs() || !s.Lasts() || s.Split() != (model.Split{Old: "old"}) || !s.Shadows("r") {
		t.Errorf("have %+v, which serves %s", s, s.Split())
	}
	var b canary.Book
	if w := b.Watch(s, "old", "f", "k", "r", now, false, now); w != nil {
		t.Errorf("want that no run is watched, have %+v", w)
	}
	if events := s.Decide(now.Add(time.Hour), nil, "old", nil); len(events) > 0 {
		t.Errorf("want that nothing is decided, have %v", events)
	}
	if s.Decide(now, nil, "other", nil); s.Phase != canary.Superseded {
		t.Errorf("want superseded by another current version, have %s", s.Phase)
	}
}

// Pipelines, differences and reasons beyond their bounds are counted together.
func TestCountsOfAShadowAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	s, count := shadowed(now), 1000
	var all []model.Tally
	for i := range count {
		name := fmt.Sprint("p", i)
		d := canary.ShadowDifference{Pipeline: name, Kind: "request", Path: name + "/s/h", Examples: []string{"r"}}
		all = append(all, s.Tally(canary.Replay{Pipeline: name, Differs: []canary.ShadowDifference{d}}, now),
			s.Tally(canary.Replay{Pipeline: name, Skip: name}, now))
	}
	later := *s
	later.Turn(50, now.Add(time.Second))
	all = append(all, later.Tally(canary.Replay{Pipeline: "p"}, now), model.Tally{Path: "p/s/h", Good: 1})
	s.Decide(now, all, "old", nil)
	f := s.Shadow
	if n := f.Total(); n.Different != count || n.Skipped != count || n.Same != 0 {
		t.Errorf("want %d different and skipped each, have %s", count, n.Text())
	}
	if len(f.Pipelines) > 201 || len(f.Differences) > 30 || len(f.Skipped) > 11 || f.Other != count-len(f.Differences) {
		t.Errorf("have %d pipelines, %d differences and %d others, %d reasons", len(f.Pipelines), len(f.Differences), f.Other, len(f.Skipped))
	}
	if f.Skipped[0].Why != canary.Others {
		t.Errorf("want the other reasons together, have %v", f.Skipped)
	}
}

// A difference counts once for each run, and names three of them. A node reports words and runs no more often than that.
func TestADifferenceNamesAFewRuns(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	s := shadowed(now)
	var examples canary.Examples
	paths := map[string]bool{}
	for i := range 10 {
		first := canary.ShadowDifference{Pipeline: "p", Kind: "request", Path: "p/s/a", What: "a differs", Examples: []string{fmt.Sprint("r", i)}}
		then := canary.ShadowDifference{Pipeline: "p", Kind: "result", Path: "p/s/b", What: "b differs", Examples: []string{fmt.Sprint("r", i)}}
		examples.Trim(s, &first)
		examples.Trim(s, &then)
		tally := s.Tally(canary.Replay{Pipeline: "p", Differs: []canary.ShadowDifference{first, then}}, now)
		paths[tally.Path] = true
		s.Decide(now, []model.Tally{tally}, "old", nil)
	}
	if len(paths) != 4 {
		t.Errorf("want 3 reports with runs, and the same one for all others, have %d", len(paths))
	}
	for i, want := range []struct {
		what  string
		first int
	}{{"a differs", 10}, {"b differs", 0}} {
		d := s.Shadow.Differences[i]
		if d.What != want.what || d.Runs != 10 || d.First != want.first || !slices.Equal(d.Examples, []string{"r0", "r1", "r2"}) {
			t.Errorf("have %+v", d)
		}
	}
}

// The values of a run that was erased go, and so do all words of its difference. Other differences keep theirs.
func TestValuesOfRunsThatAreGoneAreForgotten(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	s := shadowed(now)
	for run, path := range map[string]string{"gone": "p/s/a", "stays": "p/s/b"} {
		d := canary.ShadowDifference{
			Pipeline: "p", Kind: "request", Path: path, What: "x of " + run, Was: "1 of " + run, Now: "2 of " + run, Examples: []string{run},
		}
		s.Decide(now, []model.Tally{s.Tally(canary.Replay{Pipeline: "p", Differs: []canary.ShadowDifference{d}}, now)}, "old", nil)
	}
	is := func(run string) (bool, error) { return run == "gone", nil }
	if n, err := s.ForgetValues(is); n != 1 || err != nil {
		t.Errorf("have %d, %v, want one", n, err)
	}
	text := fmt.Sprintf("%+v", s.Shadow.Differences)
	if strings.Contains(text, "gone") || !strings.Contains(text, "1 of stays") || len(s.Shadow.Differences) != 2 {
		t.Errorf("have %s", text)
	}
	if n, err := s.ForgetValues(is); n != 0 || err != nil {
		t.Errorf("have %d, %v the second time", n, err)
	}
	var none *canary.State
	if n, err := none.ForgetValues(is); n != 0 || err != nil {
		t.Errorf("have %d, %v of no trial", n, err)
	}
}
