package stub

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A ring is the end of all that was ever added.
func TestRingKeepsTheLatest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := ring[int]{size: rapid.IntRange(1, 8).Draw(t, "size")}
		var all []int
		for i := range rapid.IntRange(0, 30).Draw(t, "items") {
			old, full := r.add(i)
			if full != (i >= r.size) || full && old != i-r.size {
				t.Fatalf("adding %d to a ring of %d gave back %d, %v", i, r.size, old, full)
			}
			all = append(all, i)
		}
		want := all[max(0, len(all)-r.size):]
		if have := r.all(); !slices.Equal(have, want) || r.total != len(all) {
			t.Fatalf("have %v of %d, want %v", have, r.total, want)
		}
	})
}

// A demo that runs for days forgets its oldest keys, and counts on.
func TestJournalForgetsTheOldestKeys(t *testing.T) {
	t.Parallel()
	j := newJournal()
	j.calls.size, j.recent.size = 2, 3
	for i := range 5 {
		j.add(Call{Key: fmt.Sprint(i), Status: 200})
	}
	have := j.record()
	if _, kept := have.Keys["1"]; kept || len(have.Keys) != 3 || len(have.Calls) != 2 || have.Total != 5 || have.Effects != 5 {
		t.Errorf("have %+v", have)
	}
}
