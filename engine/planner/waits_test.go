package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"procaas/dsl/datum"
	"procaas/dsl/tree"
)

// join adds handlers to a stage, as Plan does.
func join(steps []*Step) *sharing {
	w := newSharing()
	for i, s := range steps {
		s.Index = i
		w.join(s)
	}
	return w
}

// stepOf makes a handler of a stage. Reads and writes are paths with dots.
func stepOf(id string, branch *tree.Branch, reads, writes []string, touches ...string) *Step {
	s := &Step{Handler: &tree.Handler{ID: id, Branch: branch}, Touches: touches}
	for _, r := range reads {
		s.Reads = append(s.Reads, datum.Read{Path: strings.Split(r, ".")})
	}
	for _, w := range append(writes, SourcesRoot+"."+id) {
		s.Writes = append(s.Writes, Write{Path: strings.Split(w, ".")})
	}
	return s
}

// dependent is the definition: neither may write what the other reads or writes, and they touch nothing in common.
func dependent(a, b *Step) bool {
	_, _, reads := Overlap(a, b)
	_, _, read := Overlap(b, a)
	return !apart(a, b) && (reads || read || slices.ContainsFunc(a.Writes, func(w Write) bool {
		return slices.ContainsFunc(b.Writes, func(v Write) bool { return v.Path.Overlaps(w.Path) })
	}) || slices.ContainsFunc(a.Touches, func(t string) bool { return slices.Contains(b.Touches, t) }))
}

// The lists of what is shared find the pairs that comparing all pairs finds, and the edges that no others imply.
func TestHandlersWaitForAllThatTheyDependOn(t *testing.T) {
	t.Parallel()
	branches := []*tree.Branch{nil, nil, {}, {}}
	rapid.Check(t, func(t *rapid.T) {
		var steps []*Step
		ids := []string{"none"}
		for i := range rapid.IntRange(1, 90).Draw(t, "handlers") {
			id := fmt.Sprint("h", i)
			names := rapid.SampledFrom([]string{"shared-state.a", "shared-state.b", "shared-state.c", "shared-state.d"})
			reads := rapid.SliceOfN(rapid.OneOf(names, rapid.SampledFrom([]string{
				"shared-state", "shared-state.*", "shared-state.a.b", "shared-state.*.x", "event.payload", "sources", "sources.*.response",
				"sources." + rapid.SampledFrom(ids).Draw(t, "source") + ".outcome",
			})), 0, 2).Draw(t, "reads")
			writes := rapid.SliceOfN(names, 0, 1).Draw(t, "writes")
			touches := rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y"}), 0, 1).Draw(t, "touches")
			steps = append(steps, stepOf(id, rapid.SampledFrom(branches).Draw(t, "branch"), reads, writes, touches...))
			ids = append(ids, id)
		}
		join(steps)
		after := make([]map[int]bool, len(steps)) // all that a handler comes after, by chains
		for i, s := range steps {
			after[i] = map[int]bool{}
			var want, direct []string
			for j := range i {
				if dependent(steps[j], s) {
					want = append(want, steps[j].Handler.ID)
				}
			}
			for j := i - 1; j >= 0; j-- {
				if dependent(steps[j], s) && !after[i][j] {
					direct = append(direct, steps[j].Handler.ID)
					after[i][j] = true
					for k := range after[j] {
						after[i][k] = true
					}
				}
			}
			var have, short []string
			for _, e := range s.After() {
				have = append(have, e.From.Handler.ID)
				if r := e.Reason(); r.Why == "" {
					t.Errorf("no reason why %s waits for %s", s.Handler.ID, e.From.Handler.ID)
				}
			}
			for _, e := range s.Direct() {
				short = append(short, e.From.Handler.ID)
			}
			slices.Reverse(short)
			if !slices.Equal(have, want) || !slices.Equal(short, direct) {
				t.Fatalf("%s: want %v, of these directly %v; have %v and %v", s.Handler.ID, want, direct, have, short)
			}
			for j := range i {
				if have := s.WaitsFor(steps[j]); have != after[i][j] {
					t.Fatalf("%s comes after h%d: want %v, have %v", s.Handler.ID, j, after[i][j], have)
				}
			}
		}
	})
}

// Twice the handlers cost about twice as much, also if all of them depend on each other.
func TestDependenciesAreFoundInLinearTime(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(i int) *Step{
		"all write one name": func(i int) *Step {
			return stepOf(fmt.Sprint("h", i), nil, []string{"shared-state.a"}, []string{"shared-state.a"})
		},
		"each reads the one before": func(i int) *Step {
			return stepOf(fmt.Sprint("h", i), nil, []string{fmt.Sprintf("sources.h%d.outcome", i-1)}, nil)
		},
		"independent": func(i int) *Step {
			return stepOf(fmt.Sprint("h", i), nil, nil, []string{fmt.Sprint("shared-state.a", i)})
		},
		"all touch one thing": func(i int) *Step {
			return stepOf(fmt.Sprint("h", i), nil, nil, nil, "printer")
		},
		"many read, and some write": func(i int) *Step {
			if i%10 == 0 {
				return stepOf(fmt.Sprint("h", i), nil, nil, []string{"shared-state.a"})
			}
			return stepOf(fmt.Sprint("h", i), nil, []string{"shared-state.a.b"}, nil)
		},
	} {
		looked := func(n int) int {
			var steps []*Step
			for i := range n {
				steps = append(steps, make(i))
			}
			return join(steps).looked
		}
		few, many := looked(1000), looked(2000)
		if many > few*5/2 || many > 20*2000 {
			t.Errorf("%s: want about twice the work for twice the handlers, have %d and %d", name, few, many)
		}
	}
}
