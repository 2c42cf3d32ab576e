package stats

import "testing"

// The p99 is that of the runs since the last sample, also if the counts have begun anew.
func TestP99OfASample(t *testing.T) {
	t.Parallel()
	before := Numbers{Took: map[float64]uint64{0.1: 1000, 1: 1000, 10: 1000}}
	for want, now := range map[float64]map[float64]uint64{
		0:    {0.1: 1000, 1: 1000, 10: 1000},
		99:   {0.1: 1100, 1: 1100, 10: 1100},
		550:  {0.1: 1098, 1: 1100, 10: 1100},
		9910: {0.1: 0, 1: 0, 10: 10},
	} {
		if have := (Numbers{Took: now}).P99(before); have < want-1 || have > want+1 {
			t.Errorf("%v: want %v ms, have %v", now, want, have)
		}
	}
	if have := (Numbers{}).P99(Numbers{}); have != 0 {
		t.Errorf("want nothing without runs, have %v", have)
	}
}
