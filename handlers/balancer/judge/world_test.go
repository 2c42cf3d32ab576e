package judge

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"procaas/handlers/balancer"
)

// backWithin is within how many seconds a partition that comes back has gone to and fro.
const backWithin = 600

// A result is what became of a run. Requests are counted.
type result struct {
	Offered, Drops float64
	Bound          float64 // drops that no assignment could have spared
	Excess         float64 // drops beyond the bound
	Dead           float64 // drops since the worker was down
	Handing        float64 // drops in hand-overs
	Over           float64 // drops for lack of capacity
	Moves          int
	Back           int // moves to where the partition was within ten minutes
	Invalid        int // moves to where it may not be or is, or a second one of a partition
	Hottest        float64
}

// add sums runs up; Hottest is a mean of so many.
func (r *result) add(x result, runs int) {
	r.Offered, r.Drops, r.Bound, r.Excess = r.Offered+x.Offered, r.Drops+x.Drops, r.Bound+x.Bound, r.Excess+x.Excess
	r.Dead, r.Handing, r.Over = r.Dead+x.Dead, r.Handing+x.Handing, r.Over+x.Over
	r.Moves, r.Back, r.Invalid = r.Moves+x.Moves, r.Back+x.Back, r.Invalid+x.Invalid
	r.Hottest += x.Hottest / float64(runs)
}

// A world is a cluster at one moment.
type world struct {
	s          scenario
	capacities []float64
	mean       float64 // capacity of a worker
	allowed    [][]int
	ranked     []int     // partitions, the heaviest first
	base, cost []float64 // requests a second of each partition, and the work of one

	at         []int // the worker of each partition
	up         []bool
	began      []float64 // when each process started
	queue      []float64 // work that waits
	cold, hand []float64 // of each partition: what its cache lacks, and seconds of hand-over that are left
	left       []map[int]float64
	drift      []float64
	burst      []float64
	burstUntil []float64

	noise, drifting, checks, bursting *rand.Rand

	last   *balancer.Report
	out    result
	steps  int
	traced io.Writer // where moves are reported; nil for nowhere
}

// newWorld lays a cluster out. Each stream of chance is for something else, so that what
// policies do changes nothing of what happens to them.
func newWorld(s scenario, seed uint64) *world {
	n, parts := s.Workers, s.Partitions
	r := stream(seed, 2)
	w := &world{
		s: s, capacities: make([]float64, n), base: make([]float64, parts), cost: make([]float64, parts), at: make([]int, parts),
		up: make([]bool, n), began: make([]float64, n), queue: make([]float64, n), cold: make([]float64, parts), hand: make([]float64, parts),
		left: make([]map[int]float64, parts), drift: make([]float64, parts), burst: make([]float64, parts), burstUntil: make([]float64, parts),
		noise: stream(seed, 3), drifting: stream(seed, 4), checks: stream(seed, 5), bursting: stream(seed, 6),
	}
	total := 0.0
	for i := range w.capacities {
		w.capacities[i] = 1000 * (1 + s.CapacitySpread*(2*r.Float64()-1))
		if w.early(i) {
			total += w.capacities[i]
		} else {
			total += w.capacities[i] / 2 // it is there for a part of the time
		}
	}
	w.mean = total / float64(n)
	w.allow(r)
	w.weigh(r, total)
	w.place()
	for i := range w.up {
		w.up[i] = w.early(i)
		w.began[i] = -between(r, 0, 5000)
	}
	for p := range w.drift {
		w.drift[p] = s.Drift * w.drifting.NormFloat64()
	}
	return w
}

// early reports whether a worker is there from the beginning.
func (w *world) early(i int) bool { return w.s.BornFrom == 0 || i < w.s.BornFrom }

// allow draws the map of partitions.
func (w *world) allow(r *rand.Rand) {
	s, n := &w.s, w.s.Workers
	w.allowed = make([][]int, s.Partitions)
	for p := range w.allowed {
		switch s.Map {
		case "all":
			for i := range n {
				w.allowed[p] = append(w.allowed[p], i)
			}
		case "ring":
			for k := range s.Replicas {
				w.allowed[p] = append(w.allowed[p], (p*n/s.Partitions+k)%n)
			}
		case "zone":
			used := map[int]int{}
			for _, i := range r.Perm(n) {
				if len(w.allowed[p]) < s.Replicas && used[i%s.Zones] < (s.Replicas+s.Zones-1)/s.Zones {
					used[i%s.Zones]++
					w.allowed[p] = append(w.allowed[p], i)
				}
			}
		default:
			w.allowed[p] = r.Perm(n)[:s.Replicas]
		}
		if s.BornFrom > 0 && !slices.ContainsFunc(w.allowed[p], w.early) {
			w.allowed[p][0] = r.IntN(s.BornFrom) // or nobody could hold it at first
		}
	}
}

// weigh draws the loads of partitions.
func (w *world) weigh(r *rand.Rand, total float64) {
	w.ranked = r.Perm(w.s.Partitions)
	for rank, p := range w.ranked {
		w.base[p] = math.Pow(float64(rank+1), -w.s.Zipf)
	}
	for range 30 { // what the heaviest may not have goes to the others
		sum := 0.0
		for _, x := range w.base {
			sum += x
		}
		for p := range w.base {
			w.base[p] = min(w.base[p]*w.s.Utilisation*total/sum, w.s.MaxShare*w.mean)
		}
	}
	for p := range w.cost {
		w.cost[p] = math.Exp(w.s.CostSpread * r.NormFloat64())
		w.base[p] /= w.cost[p]
	}
}

// place assigns each partition to its first worker.
func (w *world) place() {
	byLoad := w.s.Initial == "lpt"
	order := make([]int, len(w.at))
	for i := range order {
		order[i] = i
	}
	if byLoad {
		order = w.ranked
	}
	size := make([]float64, w.s.Workers)
	filled := func(i int) float64 {
		if byLoad {
			return size[i] / w.capacities[i]
		}
		return size[i]
	}
	for _, p := range order {
		best := -1
		for _, i := range w.allowed[p] {
			if w.early(i) && (best < 0 || filled(i) < filled(best)) {
				best = i
			}
		}
		w.at[p] = best
		if byLoad {
			size[best] += w.base[p] * w.cost[p]
		} else {
			size[best]++
		}
	}
}

// describe returns what policies know beforehand.
func (w *world) describe(seed uint64) balancer.Cluster {
	c := balancer.Cluster{
		Seed: seed, Workers: w.s.Workers, Partitions: w.s.Partitions, Allowed: w.allowed, Assignment: slices.Clone(w.at), Step: w.s.Step,
	}
	for i, x := range w.capacities {
		switch w.s.CapacityTold {
		case "true":
			c.Capacity = append(c.Capacity, x)
		case "equal":
			c.Capacity = append(c.Capacity, 500)
		case "zero":
			c.Capacity = append(c.Capacity, 0)
		}
		c.Zone = append(c.Zone, i%w.s.Zones)
	}
	return c
}

// run lets a policy balance a cluster, and tells the moves to traced unless that is nil.
func run(s scenario, seed uint64, policy string, traced io.Writer) (result, error) {
	w := newWorld(s, seed)
	w.traced = traced
	p, err := balancer.New(policy, w.describe(seed), balancer.DefaultParams())
	if err != nil {
		return result{}, err
	}
	for t := 0.0; t < s.Duration; t += s.Step {
		w.live(t)
		x := w.step(t)
		w.move(t+s.Step, p.Decide(w.report(t, x)), x)
	}
	w.out.Hottest /= float64(max(w.steps, 1))
	w.out.Excess = max(0, w.out.Drops-w.out.Bound)
	return w.out, nil
}

// live lets processes die and start.
func (w *world) live(t float64) {
	for i, was := range w.up {
		w.up[i] = (w.early(i) || t >= w.s.BornAt) && !slices.ContainsFunc(w.s.Outages, func(o outage) bool { return o.covers(i, t) })
		if !w.up[i] || was {
			continue
		}
		w.began[i], w.queue[i] = t, 0
		for p, at := range w.at {
			if at == i {
				w.cold[p] = 1
			}
		}
	}
}

// speed is the work that a worker can do in a step.
func (w *world) speed(i int, t float64) float64 {
	x := w.capacities[i] * w.s.Step
	if age := t - w.began[i]; age < w.s.FreshTime {
		x *= w.s.Fresh + (1-w.s.Fresh)*age/w.s.FreshTime
	}
	for _, o := range w.s.Slow {
		if o.covers(i, t) {
			x *= w.s.SlowTo
		}
	}
	return x
}

// loads returns the requests a second for each partition, apart from chance.
func (w *world) loads(t float64) []float64 {
	s, load := &w.s, make([]float64, len(w.base))
	keep, day := math.Exp2(-s.Step/s.DriftTime), 1.0
	if s.Period > 0 {
		day = 1 - s.Diurnal*math.Cos(2*math.Pi*t/s.Period)
	}
	day *= math.Exp(s.Common * w.noise.NormFloat64())
	for p := range load {
		if s.Drift > 0 {
			w.drift[p] = keep*w.drift[p] + s.Drift*math.Sqrt(1-keep*keep)*w.drifting.NormFloat64()
		}
		load[p] = w.base[p] * day * math.Exp(w.drift[p]-s.Drift*s.Drift/2)
	}
	for _, f := range s.Surges {
		if t < f.From || t >= f.From+f.For {
			continue
		}
		for k := range f.Count {
			p := w.ranked[(f.Rank+k)%len(w.ranked)]
			load[p] = max(load[p], f.To*w.mean/w.cost[p])
		}
	}
	if s.Bursts > 0 {
		for x := s.Bursts * s.Step / 3600; x > 0; x-- {
			if w.bursting.Float64() < x {
				p := w.bursting.IntN(len(load))
				w.burst[p] = between(w.bursting, 0.2, 0.5) * w.mean
				w.burstUntil[p] = t + between(w.bursting, 4, 25)
			}
		}
	}
	return load
}

// A passed is what happened in a step.
type passed struct {
	load, seen             []float64 // of partitions: requests a second without chance, and requests that came
	work, speed            []float64 // of workers
	served                 []float64 // the share of requests that was
	requests, drops, busy  []float64
	offered, dead, handing float64
}

// step lets a step pass.
func (w *world) step(t float64) *passed {
	n := w.s.Workers
	x := &passed{
		load: w.loads(t), seen: make([]float64, len(w.at)), work: make([]float64, n), speed: make([]float64, n), served: make([]float64, n),
		requests: make([]float64, n), drops: make([]float64, n), busy: make([]float64, n),
	}
	can, need := 0.0, 0.0
	for i := range x.speed {
		if x.speed[i] = w.speed(i, t); w.up[i] {
			can += x.speed[i]
		}
	}
	asked := w.ask(t, x, &need)
	hottest, over := 0.0, 0.0
	for i := range w.up {
		if !w.up[i] {
			continue
		}
		if x.work[i] > 0 {
			hottest = max(hottest, x.work[i]/x.speed[i])
		}
		w.serve(i, x)
		x.requests[i], x.drops[i] = asked[i]*x.served[i], asked[i]*(1-x.served[i])
		over += x.drops[i]
	}
	for p, i := range w.at {
		if w.cold[p] > 0 && w.up[i] {
			k := w.s.Step / w.s.ColdTime
			if w.s.ColdBy == "served" {
				k *= x.served[i]
			}
			w.cold[p] *= math.Exp(-k)
		}
	}
	if t < w.s.Warmup {
		return x
	}
	o := &w.out
	o.Offered, o.Drops = o.Offered+x.offered, o.Drops+x.dead+x.handing+over
	o.Dead, o.Handing, o.Over = o.Dead+x.dead, o.Handing+x.handing, o.Over+over
	if need > 0 {
		o.Bound += x.offered * max(0, 1-can/need)
	}
	o.Hottest += hottest
	w.steps++
	return x
}

// ask lets requests come, and returns those that reach each worker. need is the work that
// they are when nothing is cold.
func (w *world) ask(t float64, x *passed, need *float64) (asked []float64) {
	s := &w.s
	asked = make([]float64, s.Workers)
	for p, n := range x.load {
		if t < w.burstUntil[p] {
			n += w.burst[p] / w.cost[p]
		}
		n *= s.Step
		if s.Noise > 0 {
			n *= max(0, 1+s.Noise*w.noise.NormFloat64())
		}
		n = max(0, math.Round(n+math.Sqrt(n)*w.noise.NormFloat64()))
		x.offered += n
		*need += n * w.cost[p]
		x.seen[p] = n
		i := w.at[p]
		if !w.up[i] {
			x.dead += n
			w.hand[p] = 0
			continue
		}
		if w.hand[p] > 0 {
			lost := n * min(1, w.hand[p]/s.Step)
			w.hand[p] = max(0, w.hand[p]-s.Step)
			x.handing += lost
			n -= lost
		}
		asked[i] += n
		x.work[i] += n * w.cost[p] * (1 + (s.Cold-1)*w.cold[p])
	}
	return asked
}

// serve lets a worker do what it can.
func (w *world) serve(i int, x *passed) {
	s, can := &w.s, x.speed[i]
	todo := x.work[i] + w.queue[i]
	x.served[i] = 1
	w.queue[i] = max(0, todo-can)
	if room := s.Queue * w.capacities[i]; w.queue[i] > room {
		dropped := w.queue[i] - room
		if s.RejectCost > 0 {
			dropped = min(x.work[i], dropped*(1+s.RejectCost))
		}
		x.served[i] = 1 - min(1, dropped/max(x.work[i], 1e-9))
		w.queue[i] = room
	}
	x.busy[i] = min(1, todo/can)
	if s.BusyNoise > 0 {
		x.busy[i] = min(1, max(0, x.busy[i]*(1+s.BusyNoise*w.noise.NormFloat64())))
	}
}

// report returns what happened in the step that began at a time, as far as anybody knows.
func (w *world) report(t float64, x *passed) *balancer.Report {
	s, n := &w.s, w.s.Workers
	now := t + s.Step
	r := &balancer.Report{
		At: now, Up: make([]bool, n), Draining: make([]bool, n), Requests: make([]float64, n), Drops: make([]float64, n),
		Busy: make([]float64, n), Age: make([]float64, n), Weights: make([]float64, len(w.at)), Assignment: slices.Clone(w.at),
	}
	per := s.Step
	if !s.RequestsPerSecond {
		per = 1
	}
	for i := range r.Up {
		lost := w.checks.Float64() < s.LostChecks
		if r.Up[i] = w.up[i] && !lost && !slices.ContainsFunc(s.Blind, func(o outage) bool { return o.covers(i, t) }); !r.Up[i] {
			continue
		}
		r.Requests[i], r.Drops[i], r.Busy[i], r.Age[i] = x.requests[i]/per, x.drops[i]/per, x.busy[i], now-w.began[i]
		r.Draining[i] = s.Notice > 0 && slices.ContainsFunc(s.Outages, func(o outage) bool {
			return o.Worker == i && o.Planned && now >= o.From-s.Notice && now < o.From
		})
	}
	for p, i := range w.at {
		untold := s.Untold > 0 && w.checks.Float64() < s.Untold
		if r.Weights[p] = math.NaN(); !r.Up[i] || untold {
			continue
		}
		r.Weights[p] = x.seen[p]
		if s.WeightsOfServed {
			r.Weights[p] *= x.served[i]
		}
		if s.WeightsPerSecond {
			r.Weights[p] /= s.Step
		}
	}
	told := r
	if s.Lag && w.last != nil {
		late := *r
		late.Requests, late.Drops, late.Busy, late.Weights = w.last.Requests, w.last.Drops, w.last.Busy, w.last.Weights
		told = &late
	}
	w.last = r
	return told
}

// move makes the moves that a policy wants, as far as they are allowed.
func (w *world) move(now float64, moves []balancer.Move, x *passed) {
	moved := map[int]bool{}
	for _, m := range moves {
		p := m.Partition
		if p < 0 || p >= len(w.at) || moved[p] || w.at[p] == m.To || !slices.Contains(w.allowed[p], m.To) {
			w.out.Invalid++
			continue
		}
		from := w.at[p]
		if w.traced != nil {
			fmt.Fprintf(w.traced, "%7.0f p%d %d->%d load %.0f util %.2f->%.2f %s\n", now, p, from, m.To, x.load[p]*w.cost[p],
				x.work[from]/x.speed[from], x.work[m.To]/x.speed[m.To], m.Reason)
		}
		moved[p], w.at[p], w.hand[p] = true, m.To, w.s.Handover
		if w.s.Cold > 1 {
			w.cold[p] = 1
		}
		if w.left[p] == nil {
			w.left[p] = map[int]float64{}
		}
		if now >= w.s.Warmup {
			w.out.Moves++
			if at, was := w.left[p][m.To]; was && now-at < backWithin {
				w.out.Back++
			}
		}
		w.left[p][from] = now
	}
}
