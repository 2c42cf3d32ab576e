package balancer

import "testing"

// The less often workers report, the fewer reports are waited for; once healthchecks were
// lost, more of them.
func TestConfirmationsFollowTheStepAndWhatWasLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		step, lost float64
		want       int
	}{
		{1, 0, 3},
		{2, 0, 3},
		{5, 0, 1},
		{10, 0, 1},
		{60, 0, 1},
		{2, 1, 3},
		{2, 100, 4},
		{5, 1, 2},
		{10, 100, 3},
		{10, 5000, 10},
	} {
		h := healths{checks: 10000, lost: c.lost}
		if have := h.confirmations(20, c.step); have != c.want {
			t.Errorf("step %g s, %g of 10,000 lost: want %d misses, have %d", c.step, c.lost, c.want, have)
		}
	}
}

// A worker that was taken for dead, and comes back with the process that it had, has only
// been unheard.
func TestFalseDeathsCountAsLost(t *testing.T) {
	t.Parallel()
	h := healths{of: make([]health, 3)}
	died := 0
	for i := range 20 {
		r := &Report{At: 10 * float64(i+1), Up: []bool{true, true, i != 10 && i != 15}, Age: []float64{
			9e3 + 10*float64(i), 9e3,
			9e3 + 10*float64(i),
		}}
		r.Age[1] = r.Age[0]
		h.observe(r, 10, func(w int, _ float64) { t.Errorf("worker %d is said to have restarted", w) }, func(int) { died++ })
	}
	if died != 1 {
		t.Errorf("want the first silence to be taken for a death, and no other one, have %d deaths", died)
	}
}
