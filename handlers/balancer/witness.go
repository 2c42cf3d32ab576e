package balancer

import (
	"math"
	"slices"
)

// A witness decides how much of the reported drops is believed. A counter that never resets, or that
// counts something else, must not make an idle worker look overloaded. Drops count only as far as
// the counts of requests leave room for them, and as long as they respond to moves.
type witness struct {
	unit float64 // weight of a request, by workers without drops
	of   []testimony
}

// A testimony is what the witness knows of one worker.
type testimony struct {
	scale         float64 // of the weights of its partitions, so that they include its drops
	drops, served float64 // when load began to leave it because it drops
	tested        float64 // time of that; NaN for none
	until         float64 // its drops do not count until then
}

const (
	unitHalf     = 40   // s: half-life of the weight of a request
	freeBusy     = 0.7  // share of busy time up to which a worker has no reason to drop
	testTime     = 20   // s after which drops must have responded to a move
	sameDrops    = 0.7  // share of the former drops from which on they have not responded
	sameServed   = 0.85 // share of the served requests from which on the worker still serves all it can
	distrustTime = 900  // s for which drops of a worker that reports falsely do not count
)

func newWitness(workers int) witness {
	return witness{of: slices.Repeat([]testimony{{scale: 1, tested: math.NaN(), until: math.Inf(-1)}}, workers)}
}

// observe compares the weights of partitions with the requests of their workers.
func (x *witness) observe(r *Report, held [][]int, step float64) {
	sums, units := make([]float64, len(held)), []float64(nil)
	for w := range held {
		for _, p := range held[w] {
			sums[w] += r.Weights[p] // NaN if it is not reported
		}
		if served := clean(r.Requests[w]); r.Up[w] && sums[w] > 0 && served > 0 && clean(r.Drops[w]) <= hardlyDrops*served {
			units = append(units, min(sums[w], most)/served)
		}
	}
	if len(units) > 0 {
		slices.Sort(units)
		middle := units[len(units)/2]
		if x.unit == 0 {
			x.unit = middle
		}
		x.unit += decay(step, unitHalf) * (middle - x.unit)
	}
	for w := range held {
		x.test(r, w)
		s, served, drops := &x.of[w], clean(r.Requests[w]), clean(r.Drops[w])
		s.scale = 1
		if !r.Up[w] || !(sums[w] > 0) || x.unit == 0 || drops < surelyDrops*served {
			continue
		}
		missing := (served+drops)*x.unit/sums[w] - 1 // share of the requests that no partition counts
		busy := share(r.Busy[w])
		if busy >= idleBusy && busy < freeBusy && missing > drops/(served+drops)/2 {
			s.until = r.At + distrustTime // neither its requests nor its time have room for what it calls drops
		}
		if !x.distrusts(w, r.At) {
			s.scale = max(1, 1+missing)
		}
	}
}

// test distrusts a worker that serves less since load has left it, but drops as before: one that
// drops for lack of capacity serves all it can.
func (x *witness) test(r *Report, w int) {
	s, served, drops := &x.of[w], clean(r.Requests[w]), clean(r.Drops[w])
	if !r.Up[w] || math.IsNaN(s.tested) || r.At < s.tested+testTime {
		return
	}
	if drops > sameDrops*s.drops && served < sameServed*s.served {
		s.until = r.At + distrustTime
	}
	if drops <= sameDrops*s.drops || r.At > s.tested+10*testTime {
		s.tested = math.NaN()
	}
}

// relieved notes that load leaves a worker because it drops.
func (x *witness) relieved(r *Report, w int) {
	s, served, drops := &x.of[w], clean(r.Requests[w]), clean(r.Drops[w])
	if math.IsNaN(s.tested) && drops > hardlyDrops*served {
		s.tested, s.drops, s.served = r.At, drops, served
	}
}

// distrusts reports whether the drops of a worker do not count.
func (x *witness) distrusts(w int, now float64) bool { return now < x.of[w].until }

// believed returns the drops of a worker that count.
func (x *witness) believed(r *Report, w int) float64 {
	if x.distrusts(w, r.At) {
		return 0
	}
	return clean(r.Drops[w])
}
