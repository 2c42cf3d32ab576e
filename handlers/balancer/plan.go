package balancer

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

const (
	sources     = 4   // workers for which a plan is made
	longestPlan = 20  // moves
	perWorker   = 256 // heaviest partitions of a worker to look at
	mostUrgent  = 2   // factor for a prevented drop on a worker that has been overloaded for long
	surgeAtMost = 0.25
)

// An offer is the best move of one partition.
type offer struct {
	p, to int
	price float64 // loss of the landing worker, plus the cost of the move
	cost  float64
}

// A plan is moves that pay together, best first.
type plan struct {
	from  int
	gain  float64
	moves []offer
}

// improve makes the voluntary moves that pay, within the budget.
func (e *economist) improve(r *Report) (moves []Move) {
	left := e.budget.left(e.budgetOf(r), r.At)
	if e.mean <= 0 {
		return nil
	}
	for len(moves) < min(movesAtOnce, left) {
		best := e.bestPlan(r)
		if len(best.moves) == 0 {
			break
		}
		o := best.moves[0]
		why := fmt.Sprintf("worker %d is expected to drop; the move prevents %.0f more than it costs", best.from, best.gain)
		if len(best.moves) > 1 {
			why = fmt.Sprintf("worker %d is expected to drop; the first of %d moves that prevent %.0f more than they cost", best.from,
				len(best.moves), best.gain)
		}
		e.watch(o.p, o.to, r.At)
		moves = append(moves, e.volunteer(o.p, o.to, r.At, why))
	}
	if len(moves) == 0 && r.At >= e.nextChain {
		e.nextChain = r.At + chainEvery
		moves = e.improveByChain(r, left)
	}
	return moves
}

// bestPlan returns the plan that pays most, for one of the worst workers.
func (e *economist) bestPlan(r *Report) (best plan) {
	for i, w := range e.worst(r) {
		if i == sources {
			break
		}
		if p := e.planFor(r, w); p.gain > best.gain {
			best = p
		}
	}
	return best
}

// worst lists the workers whose drops make a move worthwhile, worst first.
func (e *economist) worst(r *Report) (workers []int) {
	least := (1 + e.params.Margin) * e.params.FixedCost * e.mean / mostUrgent
	for w := range e.machines {
		if r.Up[w] && e.machines[w].hurt > least {
			workers = append(workers, w)
		}
	}
	slices.SortStableFunc(workers, func(a, b int) int { return cmp.Compare(e.machines[b].hurt, e.machines[a].hurt) })
	return workers
}

// urgency returns the factor for a prevented drop. A lasting overload is expected to continue,
// unless loads change at random.
func (e *economist) urgency(m *machine, now float64) float64 {
	if math.IsInf(m.since, 1) {
		return e.trust.of()
	}
	return e.trust.of() * min(1+e.tide.stays()*(now-m.since)/e.params.Horizon, mostUrgent)
}

// planFor returns the moves that relieve a worker best: a single one, or several with the best
// ratio of gain to cost. The second kind lets a hot partition stay while its neighbors go.
func (e *economist) planFor(r *Report, a int) plan {
	m := &e.machines[a]
	urgency := e.urgency(m, r.At)
	offers := e.offers(r, a, urgency)
	one, many := plan{from: a}, plan{from: a}
	if len(offers) == 0 {
		return one
	}
	var undo []func()
	taken := map[int]bool{}
	for len(many.moves) < longestPlan {
		pick, yield, gain := -1, 0.0, 0.0
		for i, o := range offers {
			if taken[o.p] || o.to < 0 {
				continue
			}
			g := urgency*(m.hurt-e.hurtWith(m, o.p, -1)) - o.price
			if len(many.moves) == 0 && g > one.gain {
				one.gain, one.moves = g, []offer{o}
			}
			if y := g / (o.cost + 0.2*e.mean); g > 0 && y > yield {
				pick, yield, gain = i, y, g
			}
		}
		if pick < 0 {
			break
		}
		o := offers[pick]
		taken[o.p] = true
		many.gain += gain
		many.moves = append(many.moves, o)
		undo = append(undo, e.put(o.p, o.to))
		for i := range offers {
			if offers[i].to == o.to && !taken[offers[i].p] {
				offers[i] = e.offer(r, offers[i].p, a, urgency)
			}
		}
	}
	for _, back := range slices.Backward(undo) {
		back()
	}
	if many.gain > one.gain {
		return many
	}
	return one
}

// offers returns the best move of each partition of a worker.
func (e *economist) offers(r *Report, a int, urgency float64) []offer {
	there := e.heaviest(a, perWorker)
	out := make([]offer, 0, len(there))
	for _, p := range there {
		if o := e.offer(r, p, a, urgency); o.to >= 0 {
			out = append(out, o)
		}
	}
	return out
}

// heaviest lists up to n partitions of a worker, heaviest first.
func (e *economist) heaviest(w, n int) []int {
	there := slices.Clone(e.aboard[w])
	slices.SortFunc(there, func(p, q int) int {
		if c := cmp.Compare(e.parts[q].now+e.parts[q].due, e.parts[p].now+e.parts[p].due); c != 0 {
			return c
		}
		return p - q
	})
	return there[:min(n, len(there))]
}

// offer returns the best move of a partition.
func (e *economist) offer(r *Report, p, a int, urgency float64) offer {
	best := offer{p: p, to: -1, price: math.Inf(1)}
	for _, w := range e.cluster.Allowed[p] {
		if w == a || !e.mayTake(r, w, p) {
			continue
		}
		m := &e.machines[w]
		cost := e.cost(m, p, r.At)
		if price := urgency*(e.hurtWith(m, p, 1)-m.hurt) + (1+e.params.Margin)*cost; price < best.price {
			best = offer{p: p, to: w, price: price, cost: cost}
		}
	}
	return best
}

// cost returns the cost of a landing. It is higher for partitions whose workers have died.
func (e *economist) cost(m *machine, p int, now float64) float64 {
	return e.landing(m, p) * (1 + e.parts[p].crash.of(now, flapHalf))
}

// mayTake reports whether a voluntary move of a partition to a worker is possible.
func (e *economist) mayTake(r *Report, w, p int) bool {
	if !e.health.fit(r, w) || e.health.of[w].misses > 0 || e.parts[p].wasHome(w, r.At, e.params.NoReturn) {
		return false
	}
	m := &e.machines[w]
	surge := e.cold.kappa() * e.parts[p].now
	return m.surge <= 0.01*m.capacity || m.surge+surge <= surgeAtMost*m.capacity
}
