package balancer

import (
	"math"
	"slices"
	"testing"
)

// overloaded returns reports of four workers of capacity 100, the first of which gets 150.
// count says what the weight of a partition counts, of what was asked for and what share
// of it was served.
func overloaded(steps int, count func(asked, served float64) float64) (c Cluster, reports []*Report) {
	load := []float64{30, 30, 30, 30, 30, 40, 40, 40}
	c = Cluster{Workers: 4, Partitions: 8, Step: 2, Assignment: []int{0, 0, 0, 0, 0, 1, 2, 3}}
	for range load {
		c.Allowed = append(c.Allowed, []int{0, 1, 2, 3})
	}
	for i := range steps {
		r := &Report{
			At: 2 * float64(i+1), Up: slices.Repeat([]bool{true}, 4), Draining: make([]bool, 4), Age: slices.Repeat([]float64{1e6 + 2*float64(i)},
				4),
			Requests: []float64{100, 40, 40, 40}, Drops: []float64{50, 0, 0, 0}, Busy: []float64{1, .4, .4, .4}, Assignment: c.Assignment,
		}
		for p, w := range c.Assignment {
			r.Weights = append(r.Weights, count(load[p], r.Requests[w]/(r.Requests[w]+r.Drops[w])))
		}
		reports = append(reports, r)
	}
	return c, reports
}

// Weights may be counted in units of their own, and may leave out what was dropped: what
// workers can do comes out the same, in the units of weights.
func TestV5LearnsWhatWeightsCount(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]struct {
		count func(asked, served float64) float64
		unit  float64
	}{
		"all that was asked for": {func(asked, _ float64) float64 { return asked }, 1},
		"in a second, of two":    {func(asked, _ float64) float64 { return asked / 2 }, 0.5},
		"what was served":        {func(asked, served float64) float64 { return asked * served }, 1},
		"served, in thousands":   {func(asked, served float64) float64 { return asked * served / 1000 }, 0.001},
	} {
		c, reports := overloaded(60, k.count)
		e := newEconomist(c, DefaultParams())
		for _, r := range reports {
			e.Decide(r)
			e.recall(r) // nobody makes the moves
		}
		for w := range e.machines {
			if have := e.machines[w].capacity / k.unit; math.Abs(have-100) > 3 {
				t.Errorf("%s: want worker %d to be known to do 100, have %.1f", name, w, have)
			}
		}
		if have := e.parts[0].now / k.unit; math.Abs(have-30) > 1 {
			t.Errorf("%s: want partition 0 to be known as 30, have %.1f", name, have)
		}
	}
}
