package balancer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// A classic is one of the article's versions. Each adds to the one before:
//
//	v1  a partition of a silent worker goes to the worker with the fewest partitions
//	v2  the weight of partitions counts, and an overloaded worker loses a random one
//	v3  while weights are uneven, the heaviest worker loses a random one
//	v4  a partition that has just moved does not move again
type classic struct {
	version int
	cluster Cluster
	params  Params
	random  *rand.Rand

	next   float64     // when the next cycle is due
	drops  [][]float64 // per worker, in the last minute
	weight []float64   // per partition, as last reported
	even   bool        // the thermostat is on: weights are being made even
	moved  [][]float64 // per partition, times of its moves, for v4
	made   []Move      // of the last decision; they may have been refused
}

func newClassic(version int, c Cluster, p Params) *classic {
	return &classic{
		version: version, cluster: c, params: p, random: rand.New(rand.NewPCG(c.Seed, uint64(version))), next: math.Inf(-1),
		drops: make([][]float64, c.Workers), weight: make([]float64, c.Partitions), moved: make([][]float64, c.Partitions),
	}
}

// Decide implements [Policy].
func (b *classic) Decide(r *Report) []Move {
	for _, m := range b.made {
		if at := b.moved[m.Partition]; r.Assignment[m.Partition] != m.To && len(at) > 0 {
			b.moved[m.Partition] = at[:len(at)-1] // it was refused
		}
	}
	b.made = nil
	b.note(r)
	if math.IsInf(b.next, -1) {
		// Cycles start at a random time, because faults do.
		b.next = r.At + b.params.Cycle*b.random.Float64()
	}
	if r.At < b.next {
		return nil
	}
	b.next = r.At + b.params.Cycle
	chosen, over, why := -1, make([]bool, b.cluster.Workers), ""
	if b.version >= 2 {
		chosen, why = b.choose(r, over)
	}
	return b.assign(r, chosen, over, why)
}

// note records a report.
func (b *classic) note(r *Report) {
	minute := max(1, int(math.Round(60/b.cluster.Step)))
	for w, up := range r.Up {
		if !up {
			continue
		}
		b.drops[w] = append(b.drops[w], clean(r.Drops[w]))
		if n := len(b.drops[w]); n > minute {
			b.drops[w] = b.drops[w][n-minute:]
		}
	}
	for p, x := range r.Weights {
		if !math.IsNaN(x) {
			b.weight[p] = clean(x)
		}
	}
}

// choose returns the partition that should leave its worker, or -1, and marks the overloaded
// workers.
func (b *classic) choose(r *Report, over []bool) (chosen int, why string) {
	load := b.load(r.Assignment)
	worst, most := -1, 0.0
	for w, up := range r.Up {
		// A worker that drops serves all it can, so this is a share of its capacity.
		limit := b.params.Overload * clean(r.Requests[w])
		if m := median(b.drops[w]); up && m > limit {
			over[w] = true
			if m > most {
				worst, most = w, m
			}
		}
	}
	why = "its worker is overloaded"
	if worst < 0 && b.version >= 3 && b.uneven(r, load) {
		why = "its worker is the heaviest, and weights are uneven"
		for w, up := range r.Up {
			if up && (worst < 0 || load[w] > load[worst]) {
				worst = w
			}
		}
	}
	if worst < 0 {
		return -1, ""
	}
	var there []int
	for p, w := range r.Assignment {
		if w == worst {
			there = append(there, p)
		}
	}
	if len(there) == 0 {
		return -1, ""
	}
	chosen = there[b.random.IntN(len(there))]
	if b.version >= 4 && b.hasFriction(chosen, r.At) {
		return -1, ""
	}
	return chosen, why
}

// uneven is the thermostat for the Gini index of the weights of workers.
func (b *classic) uneven(r *Report, load []float64) bool {
	var up []float64
	for w, ok := range r.Up {
		if ok {
			up = append(up, load[w])
		}
	}
	gini := Gini(up)
	if gini > b.params.GiniHigh {
		b.even = true
	}
	if gini < b.params.GiniLow {
		b.even = false
	}
	return b.even
}

// hasFriction reports whether a partition has just moved so often that it stays where it is.
func (b *classic) hasFriction(p int, now float64) bool {
	b.moved[p] = slices.DeleteFunc(b.moved[p], func(at float64) bool { return at <= now-b.params.FrictionTime })
	return len(b.moved[p]) >= b.params.Friction
}

// load returns the weight of each worker.
func (b *classic) load(assignment []int) []float64 {
	load := make([]float64, b.cluster.Workers)
	for p, w := range assignment {
		load[w] += b.weight[p]
	}
	return load
}

// assign moves the partitions of silent workers, and the chosen one, to the smallest allowed
// worker.
func (b *classic) assign(r *Report, chosen int, over []bool, why string) (moves []Move) {
	size := make([]float64, b.cluster.Workers)
	for p, w := range r.Assignment {
		size[w] += b.size(p)
	}
	for p, from := range r.Assignment {
		if r.Up[from] && p != chosen {
			continue
		}
		to := -1
		for _, w := range b.cluster.Allowed[p] {
			if w != from && r.Up[w] && !over[w] && (to < 0 || size[w] < size[to]) {
				to = w
			}
		}
		if to < 0 {
			continue
		}
		reason := why
		if !r.Up[from] {
			reason = fmt.Sprintf("worker %d does not answer", from)
		}
		size[from] -= b.size(p)
		size[to] += b.size(p)
		b.moved[p] = append(b.moved[p], r.At)
		moves = append(moves, Move{Partition: p, To: to, Reason: reason})
	}
	b.made = moves
	return moves
}

// size returns what v1 counts, and the others weigh.
func (b *classic) size(p int) float64 {
	if b.version == 1 {
		return 1
	}
	return b.weight[p]
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(x))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
