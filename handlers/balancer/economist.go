package balancer

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// An economist is v5. It moves a partition if the drops that the move prevents are worth more than
// those that it causes. Oscillations do not pay, so it does not oscillate. A plan of several moves
// may pay.
type economist struct {
	cluster Cluster
	params  Params
	loss    *lossTable

	health   healths
	cold     *coldModel
	lasts    *persistence
	tide     *tide
	units    units
	drains   drains
	trust    trust
	parts    []partition
	machines []machine
	aboard   [][]int // partitions of each worker
	spread   float64 // variance per unit of load, over the cluster
	mean     float64 // mean capacity of a worker
	present  float64 // seconds of the horizon for which current loads are expected
	where    []int   // assignment of the last report, with later moves
	made     []trial // moves of the last decision; they may have been refused

	started   bool
	first     float64 // when there is enough data
	next      float64 // next time for voluntary moves
	nextChain float64 // next time for chains
	budget    budget

	// heir is set while past reports are followed, and for the decision after them. Moves seen then
	// were made by another node, and use up the same budget.
	heir bool
}

const (
	considerEvery = 4 // seconds between voluntary moves
	movesAtOnce   = 6
	handover      = 0.5  // seconds for which a moving partition is not served
	doubt         = 5    // partitions wait for a worker up to this many times its expected outage
	homecoming    = 120  // a move back must save this many seconds of the partition's load
	database      = 0.02 // cost of a cache miss to others, as a share of a drop
)

func newEconomist(c Cluster, p Params) *economist {
	e := &economist{
		cluster: c, params: p, loss: newLossTable(), health: healths{of: make([]health, c.Workers)}, cold: newColdModel(),
		lasts: newPersistence(c.Partitions, c.Step), tide: newTide(c.Partitions), drains: newDrains(c.Workers),
		parts: make([]partition, c.Partitions), machines: make([]machine, c.Workers),
		aboard: make([][]int, c.Workers), where: slices.Clone(c.Assignment),
	}
	for i := range e.parts {
		e.parts[i].since = math.Inf(-1)
	}
	for i := range e.machines {
		e.machines[i] = machine{ceiling: math.Inf(1), fresh: 1, since: math.Inf(1)}
	}
	return e
}

// A trial is a decided move, with the earlier state of the partition.
type trial struct {
	partition, from int
	since           float64
	homes           []home
	voluntary       bool
}

// Decide implements [Policy].
func (e *economist) Decide(r *Report) []Move {
	e.recall(r)
	e.follow(r)
	e.sample(r)
	e.learn(r)
	e.keepPromises(r)
	e.drains.see(r)
	moves := e.rescue(r)
	if r.At >= e.next && r.At > e.first {
		e.next = r.At + considerEvery
		moves = joinMoves(append(moves, e.improve(r)...), r.Assignment)
	}
	return moves
}

// joinMoves merges the moves of one partition. A partition that left a draining worker may have
// been moved again.
func joinMoves(moves []Move, assignment []int) []Move {
	first := map[int]int{} // index of the partition's move
	out := moves[:0]
	for _, m := range moves {
		if i, again := first[m.Partition]; again {
			out[i].To = m.To
			continue
		}
		first[m.Partition] = len(out)
		out = append(out, m)
	}
	return slices.DeleteFunc(out, func(m Move) bool { return assignment[m.Partition] == m.To })
}

// recall undoes the moves that were not made.
func (e *economist) recall(r *Report) {
	refused := 0
	for _, t := range slices.Backward(e.made) {
		if r.Assignment[t.partition] == t.from {
			q := &e.parts[t.partition]
			e.where[t.partition], q.since, q.homes = t.from, t.since, t.homes
			if t.voluntary {
				refused++
			}
		}
	}
	e.budget.refund(refused)
	e.made = e.made[:0]
}

// follow notes the current places of partitions.
func (e *economist) follow(r *Report) {
	if !e.started {
		e.started = true
		e.first = r.At + float64(samplesOf(e.cluster.Step)-1)*e.cluster.Step
		e.begin(r)
	}
	for p, w := range r.Assignment {
		from := e.where[p]
		if from == w {
			continue
		}
		if e.heir && r.Up[from] && !r.Draining[from] {
			e.budget.spend(r.At)
		}
		e.left(p, w, r.At)
	}
	for w := range e.aboard {
		e.aboard[w] = e.aboard[w][:0]
	}
	for p, w := range e.where {
		e.aboard[w] = append(e.aboard[w], p)
	}
	e.health.see(r, e.cluster.Step, func(w int, at float64) {
		for _, p := range e.aboard[w] {
			e.parts[p].since = at
		}
	}, func(w int) {
		for _, p := range e.aboard[w] {
			e.parts[p].crash.add(1, r.At, flapHalf)
		}
	})
}

// begin takes the ages of the first report. If all processes have the same age, that age says
// nothing about their caches.
func (e *economist) begin(r *Report) {
	if !(slices.Max(r.Age)-slices.Min(r.Age) > e.cluster.Step) {
		return // nor if some are missing
	}
	for p, w := range r.Assignment {
		e.parts[p].since = r.At - clean(r.Age[w])
	}
}

// left notes that a partition has moved to another worker.
func (e *economist) left(p, to int, now float64) {
	q := &e.parts[p]
	q.homes = slices.DeleteFunc(q.homes, func(h home) bool { return h.left <= now-e.params.NoReturn })
	q.homes = append(q.homes, home{e.where[p], now})
	q.since = now
	// Their past drops say nothing about their new loads.
	e.machines[e.where[p]].shown, e.machines[to].shown = nil, nil
	e.where[p] = to
}

// sample takes the loads of partitions. Those of a silent worker keep their last known loads.
func (e *economist) sample(r *Report) {
	e.units.see(r, e.aboard, e.cluster.Step)
	varied, load := 0.0, 0.0
	for p := range e.parts {
		q := &e.parts[p]
		if x := e.units.asked(r, p); !math.IsNaN(x) {
			q.see(x, e.cluster.Step)
		}
		varied += q.variance
		load += q.slow
	}
	e.spread = 0
	if load > 0 {
		e.spread = varied / load
	}
	e.lasts.see(e.parts, e.cluster.Step)
	e.tide.see(e.parts, r.At, e.cluster.Step)
	e.present = e.lasts.lasting(e.params.Horizon)
}

// variance returns the variance of a partition's load, blended with that of others, because it is
// hard to measure.
func (e *economist) variance(p int) float64 {
	const drawn = 0.3
	q := &e.parts[p]
	return (1-drawn)*q.variance + drawn*e.spread*q.slow
}

// hurt returns the expected drops of a worker over the horizon: with current loads as long as they
// last, then with usual ones.
func (e *economist) hurt(m *machine) float64 {
	return e.present*e.loss.pain(m.now, m.variance, m.room()*m.fresh) +
		(e.params.Horizon-e.present)*e.loss.pain(m.due, m.variance, m.room())
}

// hurtWith is hurt with a partition added (sign 1) or removed (sign -1).
func (e *economist) hurtWith(m *machine, p int, sign float64) float64 {
	q := &e.parts[p]
	with := machine{
		capacity: m.capacity, ceiling: m.ceiling, fresh: m.fresh, now: max(0, m.now+sign*q.now), due: max(0, m.due+sign*q.due),
		variance: max(0, m.variance+sign*e.variance(p)),
	}
	return e.hurt(&with)
}

// landing returns the cost of moving a partition to a worker with a cold cache: drops caused by the
// extra work, requests during the hand-over, and the cost of the work elsewhere.
func (e *economist) landing(m *machine, p int) float64 {
	const mostly = 0.63 // share of the extra work that is done within tau
	q, kappa, tau := &e.parts[p], e.cold.kappa(), e.cold.tau()
	capacity := m.room() * m.fresh
	variance := m.variance + e.variance(p)
	with := e.loss.pain(m.now+m.surge+q.now*(1+mostly*kappa), variance, capacity)
	without := e.loss.pain(m.now+mostly*m.surge+q.now, variance, capacity)
	return tau*max(0, with-without) + handover*q.now + database*q.now*tau + e.params.FixedCost*e.mean
}

// put moves a partition in the model, and returns a function that undoes it.
func (e *economist) put(p, to int) (undo func()) {
	from := e.where[p]
	a, x := e.machines[from], e.machines[to]
	q, v := &e.parts[p], e.variance(p)
	e.where[p] = to
	m := &e.machines[from]
	m.now, m.due, m.variance = max(0, m.now-q.now), max(0, m.due-q.due), max(0, m.variance-v)
	m.hurt = e.hurt(m)
	m = &e.machines[to]
	m.now, m.due, m.variance = m.now+q.now, m.due+q.due, m.variance+v
	m.surge += e.cold.kappa() * q.now
	m.hurt = e.hurt(m)
	return func() { e.where[p], e.machines[from], e.machines[to] = from, a, x }
}

// commit makes a move.
func (e *economist) commit(p, to int, now float64, reason string) Move {
	from := e.where[p]
	e.made = append(e.made, trial{partition: p, from: from, since: e.parts[p].since, homes: slices.Clone(e.parts[p].homes)})
	e.put(p, to)
	e.where[p] = from
	e.left(p, to, now)
	e.aboard[from] = slices.DeleteFunc(e.aboard[from], func(i int) bool { return i == p })
	e.aboard[to] = append(e.aboard[to], p)
	return Move{Partition: p, To: to, Reason: reason}
}

// volunteer makes a voluntary move, and counts it against the budget.
func (e *economist) volunteer(p, to int, now float64, reason string) Move {
	m := e.commit(p, to, now, reason)
	e.made[len(e.made)-1].voluntary = true
	e.budget.spend(now)
	return m
}

// rescue moves partitions off workers that are down, at once, and off those about to stop, over
// their expected remaining life. If a landing would drop more than the outage, the partition waits
// for its worker.
func (e *economist) rescue(r *Report) (moves []Move) {
	for w := range e.machines {
		down := e.health.of[w].down
		if !down && !r.Draining[w] {
			continue
		}
		why, left, wait := fmt.Sprintf("worker %d is down", w), math.Inf(1), doubt*e.health.back(r, w)
		if !down {
			why = fmt.Sprintf("worker %d is draining", w)
			if m := &e.machines[w]; m.now > lightLoad*e.mean {
				share := e.drains.share(w, r.At, e.cluster.Step)
				left = share * m.now
				if share < 1 {
					wait = patience
				}
			}
		}
		leaving := slices.Clone(e.aboard[w])
		slices.SortStableFunc(leaving, func(p, q int) int { return cmp.Compare(e.parts[q].now, e.parts[p].now) })
		for _, p := range leaving {
			if left < 0 {
				break
			}
			if down && e.parts[p].crash.of(r.At, flapHalf) >= poison {
				continue // it would only kill the next one
			}
			to, price, back := e.refuge(r, p, down)
			if !down {
				back = 0 // a worker that still serves must be empty before it stops
			}
			if to < 0 || price+back > wait*e.parts[p].now {
				continue
			}
			moves = append(moves, e.commit(p, to, r.At, why))
			left -= e.parts[p].now
		}
	}
	return moves
}

// wasHome reports whether a partition left a worker recently.
func (p *partition) wasHome(w int, now, noReturn float64) bool {
	return slices.ContainsFunc(p.homes, func(h home) bool { return h.worker == w && now-h.left < noReturn })
}

// refuge returns the best worker for a partition, or -1, the drops of the move, and an extra cost
// if the partition was there recently. A partition that must leave accepts a worker that may be
// about to stop, rather than none.
func (e *economist) refuge(r *Report, p int, must bool) (best int, drops, back float64) {
	tests := []func(w int) bool{
		func(w int) bool { return e.health.fit(r, w) },
		func(w int) bool { return e.health.answers(r, w) },
		func(w int) bool { return must && r.Up[w] },
	}
	for _, ok := range tests {
		var found []shelter
		for _, w := range e.cluster.Allowed[p] {
			if w == e.where[p] || !ok(w) {
				continue
			}
			m := &e.machines[w]
			x := shelter{w: w, drops: e.landing(m, p) - e.params.FixedCost*e.mean + e.hurtWith(m, p, 1) - m.hurt}
			if e.parts[p].wasHome(w, r.At, e.params.NoReturn) {
				x.back = homecoming * (e.parts[p].now + e.params.FixedCost*e.mean)
			}
			found = append(found, x)
		}
		if len(found) > 0 {
			x := e.shelter(found, p)
			return x.w, x.drops, x.back
		}
	}
	return -1, 0, 0
}

// A shelter is a worker that may take a partition, and the cost.
type shelter struct {
	w           int
	drops, back float64
}

// shelter returns the cheapest one, and of equal ones the least full. A partition with almost no
// weight, or with a weight of unknown significance, costs nothing anywhere, so such partitions are
// spread.
func (e *economist) shelter(found []shelter, p int) shelter {
	const nothing = 1e-4 // of a worker's capacity
	q := &e.parts[p]
	weighs := e.mean > 0 && q.now+q.due > nothing*e.mean
	return slices.MinFunc(found, func(a, b shelter) int {
		if c := cmp.Compare(a.drops+a.back, b.drops+b.back); c != 0 && weighs {
			return c
		}
		if c := cmp.Compare(a.back, b.back); c != 0 {
			return c
		}
		return cmp.Compare(e.fullness(a.w), e.fullness(b.w))
	})
}

// fullness returns the utilization of a worker, as far as it is known, and its share of all
// partitions.
func (e *economist) fullness(w int) float64 {
	m := &e.machines[w]
	share := float64(len(e.aboard[w])) / float64(len(e.parts))
	if m.capacity <= 0 {
		return share
	}
	return (m.now+m.due)/2/m.room() + share/4
}
