package balancer

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// hotAt returns reports of six workers of capacity 100, with 70 for partition 0 while it is hot.
func hotAt(hot bool, where []int, t float64) *Report {
	r := &Report{
		At: t, Up: slices.Repeat([]bool{true}, 6), Draining: make([]bool, 6), Age: slices.Repeat([]float64{1e6 + t}, 6),
		Requests: make([]float64, 6), Drops: make([]float64, 6), Busy: make([]float64, 6), Weights: make([]float64, len(where)),
		Assignment: slices.Clone(where),
	}
	for p, w := range where {
		r.Weights[p] = 10
		if p == 0 && hot {
			r.Weights[p] = 70
		}
		r.Requests[w] += r.Weights[p]
	}
	for w, asked := range r.Requests {
		r.Requests[w], r.Drops[w], r.Busy[w] = min(asked, 100), max(0, asked-100), min(asked/100, 1)
	}
	return r
}

// followHot runs v5 with a partition that is hot for a while.
func followHot(from, until float64) (c *controller, moves int, first float64) {
	about := Cluster{Workers: 6, Partitions: 30, Step: 2}
	for p := range about.Partitions {
		about.Allowed = append(about.Allowed, []int{0, 1, 2, 3, 4, 5})
		about.Assignment = append(about.Assignment, p%6)
	}
	c = newController(about, DefaultParams())
	where := slices.Clone(about.Assignment)
	for t := 2.0; t <= 2000; t += 2 {
		for _, m := range c.Decide(hotAt(t > from && t < until, where, t)) {
			where[m.Partition] = m.To
			if moves++; first == 0 {
				first = t
			}
		}
	}
	return c, moves, first
}

// A first large deviation counts at once, though nothing has ever lasted. Moves that prevent what they
// promise leave the feedback as it was, and those for a burst wear it down.
func TestV5ActsOnTheFirstLargeDeviation(t *testing.T) {
	t.Parallel()
	steady, moves, first := followHot(900, 1e9)
	if moves == 0 || first > 924 || steady.promises.kept() < 0.9 {
		t.Errorf("a load that stays: have %d moves, the first at %g s, and %.2f of promises kept", moves, first, steady.promises.kept())
	}
	over, _, _ := followHot(900, 920)
	if over.promises.made > 0 && over.promises.kept() >= steady.promises.kept() {
		t.Errorf("a load that goes: want fewer promises kept than %v, have %v", steady.promises.kept(), over.promises.kept())
	}
}

// Weights may have a unit of their own, and may leave out what was dropped. Capacities are in the
// same unit, and loads include drops.
func TestV5LearnsWhatWeightsCount(t *testing.T) {
	t.Parallel()
	load := []float64{30, 30, 30, 30, 30, 40, 40, 40}
	for name, k := range map[string]struct {
		count func(asked, served float64) float64
		unit  float64
	}{
		"all requests":         {func(asked, _ float64) float64 { return asked }, 1},
		"half of them":         {func(asked, _ float64) float64 { return asked / 2 }, 0.5},
		"what was served":      {func(asked, served float64) float64 { return asked * served }, 1},
		"served, in thousands": {func(asked, served float64) float64 { return asked * served / 1000 }, 0.001},
	} {
		about := Cluster{Workers: 4, Partitions: 8, Step: 2, Assignment: []int{0, 0, 0, 0, 0, 1, 2, 3}}
		for range load {
			about.Allowed = append(about.Allowed, []int{0, 1, 2, 3})
		}
		c := newController(about, DefaultParams())
		for i := range 60 {
			r := &Report{
				At: 2 * float64(i+1), Up: slices.Repeat([]bool{true}, 4), Draining: make([]bool, 4),
				Age: slices.Repeat([]float64{1e6 + 2*float64(i)}, 4), Requests: []float64{100, 40, 40, 40}, Drops: []float64{50, 0, 0, 0},
				Busy: []float64{1, .4, .4, .4}, Assignment: about.Assignment,
			}
			for p, w := range about.Assignment {
				r.Weights = append(r.Weights, k.count(load[p], r.Requests[w]/(r.Requests[w]+r.Drops[w])))
			}
			c.Decide(r)
			c.forget(r) // nobody makes the moves
		}
		for w := range c.workers {
			if have := c.workers[w].capacity / k.unit; math.Abs(have-100) > 3 {
				t.Errorf("%s: want worker %d to be known to do 100, have %.1f", name, w, have)
			}
		}
		if have := c.loads[0].now / k.unit; math.Abs(have-30) > 1 {
			t.Errorf("%s: want partition 0 to be known as 30, have %.1f", name, have)
		}
	}
}

// Loads that each minute draws anew return to their usual level. Loads that drift stay for a while.
func TestV5LearnsWhichDeviationsStay(t *testing.T) {
	t.Parallel()
	const n, step = 60, 10
	stays := func(load func(p int, at float64) float64) float64 {
		loads, trend := make([]forecast, n), newCorrelation(n, 10, 150, 900)
		for at := 0.0; at < 4*3600; at += step {
			for p := range loads {
				loads[p].observe(load(p, at), step)
			}
			trend.observe(loads, at, step, func(f *forecast) (float64, float64) { return f.mean, f.usual })
		}
		return trend.left(1)
	}
	random := rand.New(rand.NewPCG(1, 2))
	minute, drift, now := make([]float64, n), make([]float64, n), -1.0
	if have := stays(func(p int, at float64) float64 {
		if m := math.Floor(at / 60); m != now {
			now = m
			for i := range minute {
				minute[i] = 100 * math.Exp(0.8*random.NormFloat64()-0.32)
			}
		}
		return minute[p]
	}); have > 0.35 {
		t.Errorf("minutes that are drawn anew: want little to stay, have %.2f", have)
	}
	if have := stays(func(p int, _ float64) float64 {
		drift[p] = 0.998*drift[p] + 0.3*math.Sqrt(1-0.998*0.998)*random.NormFloat64()
		return 100 * math.Exp(drift[p])
	}); have < 0.6 {
		t.Errorf("loads that drift: want most to stay, have %.2f", have)
	}
}
