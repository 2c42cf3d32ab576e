package shardmap

import "testing"

func TestPlacementsOverlapThatMayHaveRowsInCommon(t *testing.T) {
	t.Parallel()
	single := layout{strategy: "directory", parts: 2}
	slots, stretches := layout{strategy: "slots", slots: 16, parts: 2}, layout{strategy: "range", parts: 1, ints: true}
	for _, c := range []struct {
		l    layout
		a, b string
		want bool
	}{
		{single, "42", "42", true},
		{single, "42", "42/archive", true},
		{single, "42/a", "42/b", false},
		{single, "4", "42", false},
		{slots, "#3", "#3", true},
		{slots, "#3", "#4", false},
		{slots, slots.slot("u1"), "u1/inbox", true},
		{slots, "#16", "u1", false},
		{stretches, "[100", "150", true},
		{stretches, "[100", "99", false},
		{stretches, "[", "-7", true},
		{stretches, "[", "[100", false},
	} {
		if c.l.overlap(c.a, c.b) != c.want || c.l.overlap(c.b, c.a) != c.want {
			t.Errorf("%s and %s: want %v", c.a, c.b, c.want)
		}
	}
}
