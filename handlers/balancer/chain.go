package balancer

import (
	"cmp"
	"fmt"
	"slices"
)

const (
	chainSources = 3
	chainMoves   = 5
	chainBeam    = 24
	chainWidth   = 24 // partitions of a worker to look at
	chainEvery   = 20 // seconds
	chainTargets = 12 // with more workers for a partition, one of them has room
)

// A chain is moves that pay only together: in a tight partition map, one partition makes room for
// another. The last move may end where the first began.
type chain struct {
	moves []Move
	gain  float64
}

// improveByChain makes the best chain that pays and fits the budget.
func (e *economist) improveByChain(r *Report, left int) (moves []Move) {
	best := chain{}
	for i, w := range e.worst(r) {
		if i == chainSources {
			break
		}
		if c := e.chainFrom(r, w, left); c.gain > best.gain {
			best = c
		}
	}
	for _, m := range best.moves {
		why := fmt.Sprintf("one of %d moves that prevent %.0f drops more together than they cost", len(best.moves), best.gain)
		moves = append(moves, e.volunteer(m.Partition, m.To, r.At, why))
	}
	return moves
}

// chainFrom returns the best chain that starts at a worker, of at most left moves. It searches from
// the most promising beginnings.
func (e *economist) chainFrom(r *Report, from, left int) (best chain) {
	urgency := e.urgency(&e.machines[from], r.At)
	beam := []chain{{}}
	for range min(chainMoves, left) {
		var wider []chain
		for _, c := range beam {
			wider = append(wider, e.extend(r, c, from, urgency)...)
		}
		slices.SortStableFunc(wider, func(a, b chain) int { return cmp.Compare(b.gain, a.gain) })
		beam = wider[:min(chainBeam, len(wider))]
		if len(beam) > 0 && beam[0].gain > best.gain {
			best = beam[0]
		}
	}
	if len(best.moves) < 2 {
		return chain{} // a single paying move would have been made already
	}
	return best
}

// extend returns a chain extended by each move off the worker where it ends.
func (e *economist) extend(r *Report, c chain, from int, urgency float64) (out []chain) {
	var undo []func()
	for _, m := range c.moves {
		undo = append(undo, e.put(m.Partition, m.To))
	}
	at := from
	if n := len(c.moves); n > 0 {
		at = c.moves[n-1].To
	}
	m := &e.machines[at]
	for _, p := range e.heaviest(at, chainWidth) {
		if e.where[p] != at {
			continue // it has moved in this chain already
		}
		if len(e.cluster.Allowed[p]) > chainTargets {
			continue
		}
		relief := m.hurt - e.hurtWith(m, p, -1)
		for _, w := range e.cluster.Allowed[p] {
			if w == at || !e.mayTake(r, w, p) {
				continue
			}
			x := &e.machines[w]
			gain := c.gain + urgency*(relief-(e.hurtWith(x, p, 1)-x.hurt)) - (1+e.params.Margin)*e.cost(x, p, r.At)
			out = append(out, chain{append(slices.Clone(c.moves), Move{Partition: p, To: w}), gain})
		}
	}
	for _, back := range slices.Backward(undo) {
		back()
	}
	return out
}
