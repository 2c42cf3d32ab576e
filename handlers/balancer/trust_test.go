package balancer

import (
	"slices"
	"testing"
)

// hotAt returns reports of six workers of capacity 100 on which partition 0 gets hot when
// hot says so.
func hotAt(hot func(t float64) bool, where []int, t float64) *Report {
	r := &Report{
		At: t, Up: slices.Repeat([]bool{true}, 6), Draining: make([]bool, 6), Age: slices.Repeat([]float64{1e6 + t}, 6),
		Requests: make([]float64, 6), Drops: make([]float64, 6), Busy: make([]float64, 6), Weights: make([]float64, len(where)),
		Assignment: slices.Clone(where),
	}
	for p, w := range where {
		r.Weights[p] = 10
		if p == 0 && hot(t) {
			r.Weights[p] = 70
		}
		r.Requests[w] += r.Weights[p]
	}
	for w, asked := range r.Requests {
		r.Requests[w], r.Drops[w], r.Busy[w] = min(asked, 100), max(0, asked-100), min(asked/100, 1)
	}
	return r
}

func followHot(hot func(t float64) bool, until float64) (e *economist, moves int, first float64) {
	c := Cluster{Workers: 6, Partitions: 30, Step: 2}
	for p := range c.Partitions {
		c.Allowed = append(c.Allowed, []int{0, 1, 2, 3, 4, 5})
		c.Assignment = append(c.Assignment, p%6)
	}
	e = newEconomist(c, DefaultParams())
	where := slices.Clone(c.Assignment)
	for t := 2.0; t <= until; t += 2 {
		for _, m := range e.Decide(hotAt(hot, where, t)) {
			where[m.Partition] = m.To
			if moves++; first == 0 {
				first = t
			}
		}
	}
	return e, moves, first
}

// A first great deviation counts at once, though nothing has ever lasted.
func TestV5ActsOnTheFirstGreatDeviation(t *testing.T) {
	t.Parallel()
	_, moves, first := followHot(func(t float64) bool { return t > 900 }, 1000)
	if moves == 0 || first > 924 {
		t.Errorf("want moves soon after 900 s, have %d, the first at %g s", moves, first)
	}
}

// Moves that prevented what they promised leave trust as it was; those for bursts that
// were over before they helped wear it down.
func TestV5TrustsMovesThatKeepTheirPromises(t *testing.T) {
	t.Parallel()
	steady, moves, _ := followHot(func(t float64) bool { return t > 900 }, 2000)
	if have := steady.trust.of(); moves == 0 || have < 0.9 {
		t.Errorf("a load that stays: want trust of about 1 after %d moves, have %.2f", moves, have)
	}
	e := economist{trust: trust{promised: 1000, kept: 0}}
	if have := e.trust.of(); have != leastTrust {
		t.Errorf("nothing kept: want trust of %v, have %v", leastTrust, have)
	}
	over, _, _ := followHot(func(t float64) bool { return t > 900 && t < 920 }, 2000)
	if over.trust.promised > 0 && over.trust.of() >= steady.trust.of() {
		t.Errorf("a load that goes: want less trust than %v, have %v", steady.trust.of(), over.trust.of())
	}
}

// Where landings would drop more than the outage of a worker that comes back soon, its
// partitions wait for it; where nobody knows that it does, they leave.
func TestV5WaitsForWorkersThatComeBackSoon(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		outage float64
		moves  bool
	}{{0, true}, {4, false}, {1000, true}} {
		cluster := Cluster{Workers: 3, Partitions: 3, Step: 10, Assignment: []int{0, 1, 2}, Allowed: [][]int{{0, 1}, {1, 2}, {2, 1}}}
		e := newEconomist(cluster, DefaultParams())
		moved := 0
		for i := range 31 {
			r := &Report{
				At: 10 * float64(i+1), Up: []bool{i < 30, true, true}, Draining: make([]bool, 3), Age: slices.Repeat([]float64{1e6 + 10*float64(i)},
					3),
				Requests: []float64{50, 90, 90}, Drops: make([]float64, 3), Busy: []float64{.5, .9, .9}, Weights: []float64{50, 90, 90},
				Assignment: cluster.Assignment,
			}
			if i == 30 && c.outage > 0 {
				e.health.outage = c.outage + 10
			}
			for _, m := range e.Decide(r) {
				if m.Partition == 0 {
					moved++
				}
			}
			e.recall(r)
		}
		if (moved > 0) != c.moves {
			t.Errorf("outages of %g s: want moved %v, have %d moves", c.outage, c.moves, moved)
		}
	}
}
