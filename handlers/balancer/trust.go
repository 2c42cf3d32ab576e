package balancer

import (
	"math"
	"slices"
)

// trust learns how much of what voluntary moves promised to prevent they did prevent. With bursts
// that are over before a move takes effect that is little, and moves must promise more.
type trust struct {
	open           []promise
	promised, kept float64 // of past moves, decayed, in capacities of a worker
}

// A promise is a voluntary move whose effect is observed for the horizon.
type promise struct {
	partition, from, to int
	until               float64
	promised, kept      float64
}

const (
	trustHalf  = 3600 // seconds: half-life of the memory of promises
	trustPrior = 20   // assumed kept promises, in seconds of a worker's capacity
	leastTrust = 0.1
)

// of returns the expected share of what is promised.
func (t *trust) of() float64 {
	return min(max((trustPrior+t.kept)/(trustPrior+t.promised), leastTrust), 1)
}

// watch follows a move that is about to be made.
func (e *economist) watch(p, to int, now float64) {
	a, b := &e.machines[e.where[p]], &e.machines[to]
	benefit := a.hurt - e.hurtWith(a, p, -1) - (e.hurtWith(b, p, 1) - b.hurt)
	if benefit > 0 {
		e.trust.open = append(e.trust.open, promise{partition: p, from: e.where[p], to: to, until: now + e.params.Horizon, promised: benefit})
	}
}

// keepPromises computes what a step would have been without the observed moves.
func (e *economist) keepPromises(r *Report) {
	t, step := &e.trust, e.cluster.Step
	if e.mean <= 0 || len(t.open) == 0 && t.promised == 0 {
		return
	}
	fade := math.Exp2(-step / trustHalf)
	t.promised *= fade
	t.kept *= fade
	loads := map[int]float64{}
	load := func(w int) float64 {
		sum, known := loads[w]
		if !known {
			for _, p := range e.aboard[w] {
				sum += e.loadOf(r, p)
			}
			loads[w] = sum
		}
		return sum
	}
	t.open = slices.DeleteFunc(t.open, func(x promise) bool { return e.where[x.partition] != x.to || !r.Up[x.to] || !r.Up[x.from] })
	for i := range t.open {
		x := &t.open[i]
		a, b, l := &e.machines[x.from], &e.machines[x.to], e.loadOf(r, x.partition)
		at, bt := a.room()*a.fresh, b.room()*b.fresh
		la, lb := load(x.from), load(x.to)
		x.kept += step * (e.loss.pain(la+l, 0, at) - e.loss.pain(la, 0, at) - e.loss.pain(lb, 0, bt) + e.loss.pain(lb-l, 0, bt))
	}
	t.open = slices.DeleteFunc(t.open, func(x promise) bool {
		if r.At < x.until {
			return false
		}
		t.promised += x.promised / e.mean
		t.kept += min(max(x.kept, 0), x.promised) / e.mean
		return true
	})
}
