package balancer

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// A controller is v5. It moves a partition if the drops that this prevents are worth more than those
// that it causes. docs/systems/balancer-formulas.md has the formulas.
type controller struct {
	cluster Cluster
	params  Params

	// The state of the model, from reports.
	health  healths
	loads   []forecast // of partitions
	workers []estimate
	witness witness
	landing landing
	lasting *correlation // how long a deviation from the mean of minutes lasts
	trend   *correlation // how much of a deviation from the usual load stays
	mean    float64      // capacity of a worker; 0 until it is known
	level   float64      // utilization of the cluster
	present float64      // s of the horizon for which the current loads are expected

	// The assignment, and what moves have left behind.
	owner  []int       // of each partition
	held   [][]int     // partitions of each worker
	landed []float64   // when the cache of each partition began to fill; long ago means warm
	left   [][]leaving // recent former workers of each partition
	deaths []decaying  // of the workers of each partition

	// What was decided.
	made     []trial   // moves of the last decision; they may have been refused
	spent    []float64 // times of the voluntary moves of the last minute
	began    float64   // time of the first report
	next     float64   // time of the next voluntary move
	nextPair float64   // next time for a pair of moves
	filling  []bool    // workers that are being filled
	drained  []float64 // when each worker began to drain
	promises promises

	// replaying is set while reports of a predecessor are followed, and for the decision after them.
	// Moves seen then count against the budget.
	replaying bool
}

// A leaving says that a partition has left a worker.
type leaving struct {
	worker  int
	at      float64
	drained bool // the worker was draining, so the partition had to leave
}

// A trial is a decided move, with the state before it.
type trial struct {
	partition, from int
	landed          float64
	left            []leaving
	voluntary       bool
}

const (
	considerEvery = 4    // s between voluntary moves, so that reports show the effect of the last ones
	atOnce        = 6    // voluntary moves of one decision
	handoverTime  = 0.5  // s for which a moving partition is not served
	missPrice     = 0.02 // drops per cache miss, for the work that it makes elsewhere
	meanCold      = 0.63 // share of the extra work of a cold cache that is done within coldTime
	warmingMost   = 0.25 // share of a capacity for extra work of cold caches, so that landings wait for each other
	urgencyMost   = 2    // factor for drops of a worker that has been overloaded for the horizon
	budgetTime    = 60   // s that the budget covers
	budgetLeast   = 5    // moves: the budget of a small cluster
	budgetDrops   = 3    // factor of the budget while the cluster drops
	clusterDrops  = 0.01 // share of its requests that a cluster drops then
	sourcesMost   = 4    // most hurt workers for which moves are sought
	heaviestMost  = 256  // heaviest partitions of a worker that are looked at
	pairEvery     = 20   // s between pairs of moves, which are costly to find
	pairHeaviest  = 8    // heaviest partitions of a worker that make room for each other
	pairHolders   = 12   // with more workers for a partition, one of them has room
	drainTime     = 15   // s in which a draining worker is emptied: most announce a stop 20 s before
	drainPatience = 8    // s of a partition's load that a landing may drop while a draining worker has time
	lightLoad     = 0.15 // of the mean capacity: so little leaves a draining worker at once
	weightless    = 1e-4 // of the mean capacity: a partition with less load costs nothing anywhere
	returnPrice   = 120  // s of its load that a return saves at least, when a partition must leave
	returnAfter   = 60   // s of drops after which a partition goes back early to a worker that drained: v4 looks at a minute, too
	fillBelow     = 0.5  // of the mean utilization: a worker with less is empty, as a Gini index over the threshold of v4
	fillUntil     = 0.75 // of the mean utilization: then it is filled
)

func newController(c Cluster, p Params) *controller {
	x := &controller{
		cluster: c, params: p, health: healths{of: make([]health, c.Workers)}, loads: make([]forecast, c.Partitions),
		workers: make([]estimate, c.Workers), witness: newWitness(c.Workers),
		lasting: newCorrelation(c.Partitions, max(1, int(math.Round(30/c.Step))), max(30, c.Step), varianceHalf),
		trend:   newCorrelation(c.Partitions, 10, p.Horizon/2, 900),
		owner:   slices.Clone(c.Assignment), held: make([][]int, c.Workers), landed: slices.Repeat([]float64{math.Inf(-1)}, c.Partitions),
		left: make([][]leaving, c.Partitions), deaths: make([]decaying, c.Partitions), began: math.NaN(),
		filling: make([]bool, c.Workers), drained: make([]float64, c.Workers),
	}
	for w := range x.workers {
		x.workers[w] = estimate{shown: math.Inf(1), fresh: 1, since: math.Inf(1)}
	}
	return x
}

// Decide implements [Policy].
func (c *controller) Decide(r *Report) []Move {
	c.forget(r)
	c.follow(r)
	c.observe(r)
	c.promises.observe(c, r)
	moves := c.rescue(r)
	if c.mean <= 0 || r.At < c.next || r.At <= c.began+float64(medianOf(c.cluster.Step)-1)*c.cluster.Step {
		return moves
	}
	c.next = r.At + considerEvery
	better := c.improve(r)
	if len(better) == 0 && r.At >= c.nextPair {
		c.nextPair = r.At + pairEvery
		better = c.makeRoom(r)
	}
	return append(append(moves, better...), c.fill(r)...)
}

// forget undoes the moves that were not made.
func (c *controller) forget(r *Report) {
	refused := 0
	for _, t := range slices.Backward(c.made) {
		if r.Assignment[t.partition] != t.from {
			continue
		}
		c.owner[t.partition], c.landed[t.partition], c.left[t.partition] = t.from, t.landed, t.left
		if t.voluntary {
			refused++
		}
	}
	c.spent = c.spent[:max(0, len(c.spent)-refused)]
	c.made = c.made[:0]
}

// follow takes the assignment and the healthchecks of a report.
func (c *controller) follow(r *Report) {
	if math.IsNaN(c.began) {
		c.began = r.At
	}
	for p, w := range r.Assignment {
		from := c.owner[p]
		if from == w {
			continue
		}
		if c.replaying && r.Up[from] && !r.Draining[from] {
			c.spent = append(c.spent, r.At)
		}
		c.move(p, w, r.At, r.Draining[from])
	}
	for w := range c.held {
		c.held[w] = c.held[w][:0]
	}
	for p, w := range c.owner {
		c.held[w] = append(c.held[w], p)
	}
	restarted := func(w int, at float64) {
		for _, p := range c.held[w] {
			c.landed[p] = at
		}
	}
	died := func(w int) {
		for _, p := range c.held[w] {
			c.deaths[p].add(1, r.At, deathHalf)
		}
	}
	c.health.observe(r, c.cluster.Step, restarted, died)
}

// move notes that a partition is on another worker, and whether its former one was draining.
func (c *controller) move(p, to int, now float64, drained bool) {
	c.left[p] = slices.DeleteFunc(slices.Clone(c.left[p]), func(l leaving) bool { return l.at <= now-c.params.NoReturn })
	c.left[p] = append(c.left[p], leaving{c.owner[p], now, drained})
	c.landed[p] = now
	c.workers[c.owner[p]].dropping, c.workers[to].dropping = 0, 0 // past drops tell nothing about other loads
	c.owner[p] = to
}

// asked returns the reported load of a partition, with its drops, or its last known load.
func (c *controller) asked(r *Report, p int) float64 {
	x, w := r.Weights[p], c.owner[p]
	if math.IsNaN(x) || !r.Up[w] {
		return c.loads[p].now
	}
	return clean(clean(x) * c.witness.of[w].scale)
}

// observe updates the model.
func (c *controller) observe(r *Report) {
	step := c.cluster.Step
	c.witness.observe(r, c.held, step)
	for p := range c.loads {
		if !math.IsNaN(r.Weights[p]) && r.Up[c.owner[p]] {
			c.loads[p].observe(c.asked(r, p), step)
		}
	}
	c.lasting.observe(c.loads, r.At, step, func(f *forecast) (float64, float64) { return f.now, f.mean })
	c.trend.observe(c.loads, r.At, step, func(f *forecast) (float64, float64) { return f.mean, f.usual })
	c.present = c.persists()
	stays := c.trend.left(1)
	spread, load, mean := 0.0, 0.0, 0.0
	for p := range c.loads {
		f := &c.loads[p]
		f.due = max(0, f.usual+stays*(f.mean-f.usual))
		spread += f.variance
		load += (f.now + f.due) / 2
		mean += f.mean
	}
	if mean > 0 {
		spread /= mean
	}
	fade := math.Exp2(-step / coldHalf)
	c.landing.xx, c.landing.xy = fade*c.landing.xx, fade*c.landing.xy
	for w := range c.workers {
		if r.Up[w] {
			c.measure(r, w)
		}
	}
	c.compare()
	able := 0.0
	for w := range c.workers {
		if c.health.answers(r, w) {
			able += c.workers[w].able()
		}
	}
	c.level = load / max(able, 1e-9)
	for w := range c.workers {
		e := &c.workers[w]
		e.now = 0
		e.due = 0
		e.variance = 0
		e.cold = 0
		for _, p := range c.held[w] {
			c.loads[p].shared = (1-borrowed)*c.loads[p].variance + borrowed*spread*c.loads[p].mean
			c.add(e, p, 1)
			e.cold += c.landing.kappa() * c.loads[p].now * c.isCold(p, r.At)
		}
		c.seeCold(r, w)
		e.hurt = c.hurt(e)
		over := e.hurt > 0.01*c.params.Horizon*e.now || c.witness.believed(r, w) > 0.01*clean(r.Requests[w])
		switch {
		case !over || !r.Up[w]:
			e.since = math.Inf(1)
		case math.IsInf(e.since, 1):
			e.since = r.At
		}
	}
}

// persists returns for how many seconds of the horizon the current loads are expected, instead of
// those that are due: the integral of their decay.
func (c *controller) persists() float64 {
	const least, longest = 2, 150
	rho := min(c.lasting.left(math.Exp(-c.lasting.lag/30)), 0.999)
	if rho <= 0.01 {
		return least
	}
	t := -c.lasting.lag / math.Log(rho)
	return min(max(t*(1-math.Exp(-c.params.Horizon/t)), least), longest)
}

// add adds a partition to a worker's load, or removes it (sign -1).
func (c *controller) add(e *estimate, p int, sign float64) {
	f := &c.loads[p]
	e.now = max(0, e.now+sign*f.now)
	e.due = max(0, e.due+sign*f.due)
	e.variance = max(0, e.variance+sign*f.shared)
}

// hurt returns the drops of a worker that are expected within the horizon.
func (c *controller) hurt(e *estimate) float64 {
	return c.present*expectedDrops(e.now, e.variance, e.able()*e.fresh) +
		(c.params.Horizon-c.present)*expectedDrops(e.due, e.variance, e.able())
}

// hurtWith is hurt with a partition more (sign 1) or less (sign -1).
func (c *controller) hurtWith(e *estimate, p int, sign float64) float64 {
	with := estimate{capacity: e.capacity, shown: e.shown, fresh: e.fresh, now: e.now, due: e.due, variance: e.variance}
	c.add(&with, p, sign)
	return c.hurt(&with)
}

// price returns the drops that the landing of a partition causes: by the extra work for its cold
// cache, during the hand-over, and elsewhere.
func (c *controller) price(e *estimate, p int) float64 {
	f, kappa, able := &c.loads[p], c.landing.kappa(), e.able()*e.fresh
	variance := e.variance + f.shared
	with := expectedDrops(e.now+e.cold+f.now*(1+meanCold*kappa), variance, able)
	without := expectedDrops(e.now+meanCold*e.cold+f.now, variance, able)
	return coldTime*max(0, with-without) + handoverTime*f.now + missPrice*f.now*coldTime
}

// place puts a partition on another worker in the model, and returns a function that undoes it.
func (c *controller) place(p, to int) (undo func()) {
	from := c.owner[p]
	a, b := &c.workers[from], &c.workers[to]
	before, after, there := *a, *b, c.held[to]
	c.add(a, p, -1)
	c.add(b, p, 1)
	b.cold += c.landing.kappa() * c.loads[p].now
	a.hurt, b.hurt = c.hurt(a), c.hurt(b)
	c.owner[p], c.held[to] = to, append(there, p)
	return func() {
		*a = before
		*b = after
		c.owner[p] = from
		c.held[to] = there
	}
}

// commit makes a move.
func (c *controller) commit(p, to int, now float64, voluntary bool, reason string) Move {
	from := c.owner[p]
	c.made = append(c.made, trial{partition: p, from: from, landed: c.landed[p], left: c.left[p], voluntary: voluntary})
	if voluntary {
		c.spent = append(c.spent, now)
	}
	c.place(p, to)
	c.owner[p] = from
	c.move(p, to, now, !voluntary && !c.health.of[from].down)
	c.held[from] = slices.DeleteFunc(c.held[from], func(i int) bool { return i == p })
	return Move{Partition: p, To: to, Reason: reason}
}

// heaviest lists up to n partitions of a worker, heaviest first.
func (c *controller) heaviest(w, n int) []int {
	there := slices.Clone(c.held[w])
	slices.SortFunc(there, func(p, q int) int {
		a, b := &c.loads[p], &c.loads[q]
		return cmp.Or(cmp.Compare(b.now+b.due, a.now+a.due), p-q)
	})
	return there[:min(n, len(there))]
}

// rescue moves partitions off workers that are down, at once, and off those that drain, a part of
// them at a time.
func (c *controller) rescue(r *Report) (moves []Move) {
	for w := range c.workers {
		down, why := c.health.of[w].down, fmt.Sprintf("worker %d is down", w)
		if !r.Draining[w] {
			c.drained[w] = math.Inf(1)
		}
		c.drained[w] = min(c.drained[w], r.At)
		quota, patience := math.Inf(1), math.Inf(1)
		if !down {
			if !r.Draining[w] {
				continue
			}
			why = fmt.Sprintf("worker %d is draining", w)
			if left := c.drained[w] + drainTime - r.At; left > 0 && c.mean > 0 && c.workers[w].now > lightLoad*c.mean {
				quota, patience = c.workers[w].now/(1+math.Floor(left/c.cluster.Step)), drainPatience
			}
		}
		for _, p := range c.heaviest(w, len(c.held[w])) {
			if quota < 0 {
				break
			}
			if down && c.deaths[p].of(r.At, deathHalf) >= deathsBlame {
				continue // it would only kill the next one
			}
			to, price := c.refuge(r, p, down)
			if to < 0 || price > patience*c.loads[p].now {
				continue
			}
			quota -= c.loads[p].now
			moves = append(moves, c.commit(p, to, r.At, false, why))
		}
	}
	return moves
}

// refuge returns the best worker for a partition that must leave, or -1, and the drops there. A
// worker that may be about to stop is better than none if its own is down.
func (c *controller) refuge(r *Report, p int, down bool) (best int, drops float64) {
	best = -1
	f := &c.loads[p]
	least := math.Inf(1)
	lowest := math.MaxInt
	fullest := math.Inf(1)
	for _, w := range c.cluster.Allowed[p] {
		rank := 0 // a worker that answers and does not die again and again is best
		switch {
		case w == c.owner[p] || !r.Up[w] || r.Draining[w] && !down:
			continue
		case r.Draining[w]:
			rank = 2
		case !c.health.fit(r, w):
			rank = 1
		}
		e := &c.workers[w]
		d := c.price(e, p) + c.hurtWith(e, p, 1) - e.hurt
		total, full := d, float64(len(c.held[w]))/float64(len(c.owner))
		if c.wasThere(p, w, r.At) && c.utilization(w) >= fillBelow*c.level {
			total += returnPrice * f.now
		}
		if c.mean <= 0 || f.now+f.due <= weightless*c.mean {
			total = 0 // such partitions are spread
		}
		if c.mean > 0 {
			full = full/4 + c.utilization(w)
		}
		if cmp.Or(cmp.Compare(rank, lowest), cmp.Compare(total, least), cmp.Compare(full, fullest)) < 0 {
			best = w
			lowest = rank
			least = total
			fullest = full
			drops = d
		}
	}
	return best, drops
}

// utilization returns the mean of the current and the due load of a worker, as a share of its capacity.
func (c *controller) utilization(w int) float64 {
	e := &c.workers[w]
	return (e.now + e.due) / 2 / e.able()
}

// wasThere reports whether a partition left a worker recently.
func (c *controller) wasThere(p, w int, now float64) bool {
	return slices.ContainsFunc(c.left[p], func(l leaving) bool { return l.worker == w && now-l.at < c.params.NoReturn })
}

// mayReturn reports whether a partition may go back to a worker so soon. It had to leave for a drain,
// that worker has little since, and the present one has dropped for some time.
func (c *controller) mayReturn(p, w int, now float64) bool {
	return c.utilization(w) < fillBelow*c.level && c.workers[c.owner[p]].since <= now-returnAfter &&
		slices.ContainsFunc(c.left[p], func(l leaving) bool { return l.worker == w && l.drained })
}

// mayTake reports whether a worker may get a partition by a voluntary move.
func (c *controller) mayTake(r *Report, w, p int) bool {
	if w == c.owner[p] || !c.health.fit(r, w) || c.health.of[w].misses > 0 || c.landed[p] == r.At ||
		c.wasThere(p, w, r.At) && !c.mayReturn(p, w, r.At) {
		return false
	}
	e, f := &c.workers[w], &c.loads[p]
	extra := e.cold + c.landing.kappa()*f.now
	return e.cold <= 0.01*e.able() || extra <= warmingMost*e.able() || e.now+f.now+extra <= (1-headroom)*e.able()*e.fresh
}

// budget returns how many voluntary moves are left.
func (c *controller) budget(r *Report) int {
	served, drops := 0.0, 0.0
	for w, up := range r.Up {
		if up {
			served += clean(r.Requests[w])
			drops += clean(r.Drops[w])
		}
	}
	limit := max(budgetLeast, c.params.Budget*float64(c.cluster.Partitions))
	if drops > clusterDrops*(served+drops) {
		limit *= budgetDrops
	}
	c.spent = slices.DeleteFunc(c.spent, func(at float64) bool { return at <= r.At-budgetTime })
	return max(0, int(limit)-len(c.spent))
}

// An offer is a move with its net benefit, in drops.
type offer struct {
	partition, from, to int
	benefit, net        float64
}

// hurting returns the workers that expect the most drops, worst first.
func (c *controller) hurting(r *Report) []int {
	var out []int
	for w := range c.workers {
		if r.Up[w] && c.workers[w].hurt > 0 {
			out = append(out, w)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(c.workers[b].hurt, c.workers[a].hurt) })
	return out[:min(sourcesMost, len(out))]
}

// improve makes the voluntary moves that pay, the best first.
func (c *controller) improve(r *Report) (moves []Move) {
	for range min(atOnce, c.budget(r)) {
		var best offer
		for _, w := range c.hurting(r) {
			if o := c.best(r, w, heaviestMost); o.net > best.net {
				best = o
			}
		}
		if best.net <= 0 {
			break
		}
		moves = append(moves, c.volunteer(r, best,
			fmt.Sprintf("worker %d is expected to drop; the move prevents %.0f more than it costs", best.from, best.net)))
	}
	return moves
}

// volunteer makes a move that pays.
func (c *controller) volunteer(r *Report, o offer, reason string) Move {
	c.promises.open = append(c.promises.open, &promise{offer: o, until: r.At + c.params.Horizon})
	c.witness.relieved(r, o.from)
	return c.commit(o.partition, o.to, r.At, true, reason)
}

// makeRoom makes two moves that pay only together: where few workers may hold a partition, another
// one has to leave first.
func (c *controller) makeRoom(r *Report) []Move {
	var first, second offer
	for _, from := range c.hurting(r) {
		for _, p := range c.heaviest(from, pairHeaviest) {
			for _, w := range c.cluster.Allowed[p] {
				if len(c.cluster.Allowed[p]) > pairHolders || !c.mayTake(r, w, p) {
					continue
				}
				undo := c.place(p, w)
				q := c.best(r, w, pairHeaviest)
				undo()
				if q.net <= 0 || q.partition == p {
					continue
				}
				q = c.offer(r, q.partition, q.to)
				undo = c.place(q.partition, q.to)
				o := c.offer(r, p, w)
				undo()
				if q.net+o.net > first.net+second.net {
					first, second = q, o
				}
			}
		}
	}
	net := first.net + second.net
	if net <= 0 || c.budget(r) < 2 {
		return nil
	}
	reason := fmt.Sprintf("worker %d is expected to drop; two moves together prevent %.0f more than they cost", second.from, net)
	return []Move{c.volunteer(r, first, reason), c.volunteer(r, second, reason)}
}

// best returns the best move of one of the n heaviest partitions of a worker.
func (c *controller) best(r *Report, from, n int) (best offer) {
	if c.urgency(r, from)*c.workers[from].hurt <= (1+c.params.Margin)*c.params.FixedCost*c.mean {
		return best // no move can pay
	}
	for _, p := range c.heaviest(from, n) {
		for _, w := range c.cluster.Allowed[p] {
			if c.owner[p] == from && c.mayTake(r, w, p) {
				if o := c.offer(r, p, w); o.net > best.net {
					best = o
				}
			}
		}
	}
	return best
}

// urgency returns the factor for drops that are prevented on a worker.
func (c *controller) urgency(r *Report, from int) float64 {
	since := min(c.workers[from].since, r.At)
	return c.promises.kept() * min(1+c.trend.left(1)*(r.At-since)/c.params.Horizon, urgencyMost)
}

// offer returns the benefit of a move.
func (c *controller) offer(r *Report, p, to int) offer {
	o := offer{partition: p, from: c.owner[p], to: to}
	a, b := &c.workers[o.from], &c.workers[to]
	o.benefit = a.hurt - c.hurtWith(a, p, -1) - (c.hurtWith(b, p, 1) - b.hurt)
	cost := (c.price(b, p) + c.params.FixedCost*c.mean) * (1 + c.deaths[p].of(r.At, deathHalf))
	o.net = c.urgency(r, o.from)*o.benefit - (1+c.params.Margin)*cost
	return o
}

// fill moves a partition to a worker that has little or nothing, as often as v4 would. It may have
// come back, or a ban or a drain has ended. Nobody needs to drop for that.
func (c *controller) fill(r *Report) []Move {
	to, level := -1, c.level
	for w := range c.workers {
		has := c.utilization(w)
		c.filling[w] = c.health.fit(r, w) && (has < fillBelow*level || c.filling[w] && has < fillUntil*level)
		if c.filling[w] && (to < 0 || has < c.utilization(to)) {
			to = w
		}
	}
	if to < 0 || c.budget(r) == 0 {
		return nil
	}
	best, x := -1, &c.workers[to]
	for p, from := range c.owner {
		f := &c.loads[p]
		fits := c.utilization(to)+(f.now+f.due)/2/x.able() <= level && x.now+x.cold+f.now*(1+c.landing.kappa()) <= (1-headroom)*x.able()*x.fresh
		if f.now+f.due <= 0 || !fits || !r.Up[from] || c.utilization(from) <= level ||
			best >= 0 && cmp.Or(cmp.Compare(c.utilization(from), c.utilization(c.owner[best])), cmp.Compare(f.now, c.loads[best].now)) <= 0 {
			continue
		}
		if slices.Contains(c.cluster.Allowed[p], to) && c.mayTake(r, to, p) {
			best = p
		}
	}
	if best < 0 {
		return nil
	}
	return []Move{c.commit(best, to, r.At, true, fmt.Sprintf("worker %d has room and little to do", to))}
}
