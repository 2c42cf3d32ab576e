package plant

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"procaas/handlers/balancer"
)

// A world is the cluster at one moment.
type world struct {
	s        *Scenario
	capacity []float64
	zone     []int
	allowed  [][]int
	demand   *demand
	pings    *rand.Rand

	workers []worker
	parts   []part
	offered []float64 // of this step, per partition
	report  balancer.Report
}

type worker struct {
	up       bool
	draining bool
	began    float64 // when the process started
	back     float64 // when it is up again
	deaths   []death // planned, next one first

	requests, drops, busy float64 // of the last step
	util                  float64 // requested work as a share of the capacity
}

// A death is a planned death.
type death struct{ at, back float64 }

type part struct {
	worker  int
	cold    float64
	handing bool // it has moved, and is not served at the start of this step
	homes   []home
}

// A home is a former worker of a partition, for a while.
type home struct {
	worker int
	left   float64
}

func newWorld(s *Scenario, seed uint64) *world {
	n, m := s.Cluster.Workers, s.Partitions.Count
	w := &world{
		s: s, capacity: make([]float64, n), zone: make([]int, n), allowed: make([][]int, m), pings: stream(seed, streamPings),
		workers: make([]worker, n), parts: make([]part, m), offered: make([]float64, m),
	}
	r := stream(seed, streamMap)
	for i := range n {
		w.capacity[i] = s.Cluster.Capacity
		if c := s.Cluster.Capacities; len(c) == 2 {
			w.capacity[i] = c[0] + (c[1]-c[0])*r.Float64()
		}
		w.zone[i] = i % s.Cluster.Zones
		w.workers[i] = worker{up: true, began: -1e6}
	}
	for p := range w.allowed {
		w.allowed[p] = w.mapOf(p, r)
	}
	w.demand = newDemand(s, seed, w.capacity)
	w.place()
	w.plan()
	w.report = balancer.Report{
		Up: make([]bool, n), Draining: make([]bool, n), Requests: make([]float64, n), Drops: make([]float64, n),
		Busy: make([]float64, n), Age: make([]float64, n), Weights: make([]float64, m), Assignment: make([]int, m),
	}
	return w
}

// mapOf chooses the workers that may hold a partition.
func (w *world) mapOf(p int, r *rand.Rand) []int {
	n, k := len(w.workers), w.s.Partitions.Replicas
	switch w.s.Partitions.Map {
	case "all":
		k = n
		fallthrough
	case "ring":
		out := make([]int, k)
		for i := range out {
			out[i] = (p*n/len(w.allowed) + i) % n
		}
		return out
	case "zone":
		var out []int
		for _, i := range r.Perm(n) {
			full := 0
			for _, have := range out {
				if w.zone[have] == w.zone[i] {
					full++
				}
			}
			if full < (k+w.s.Cluster.Zones-1)/w.s.Cluster.Zones && len(out) < k {
				out = append(out, i)
			}
		}
		return out
	}
	return r.Perm(n)[:k]
}

// place places the partitions, evenly by number or heaviest first by load.
func (w *world) place() {
	even := w.s.Partitions.Initial == "lpt"
	order := make([]int, len(w.parts))
	for p := range order {
		order[p] = p
	}
	if even {
		order = w.demand.ranked
	}
	size := make([]float64, len(w.workers))
	for _, p := range order {
		weight, best, least := 1.0, -1, math.Inf(1)
		if even {
			weight = w.demand.usual[p] * w.demand.cost[p]
		}
		for _, i := range w.allowed[p] {
			filled := size[i] + weight
			if even {
				filled /= w.capacity[i]
			}
			if filled < least {
				best, least = i, filled
			}
		}
		size[best] += weight
		w.parts[p].worker = best
	}
}

// plan plans the deaths of workers.
func (w *world) plan() {
	for _, e := range w.s.Events {
		kill := func(i int, at, down float64) {
			w.workers[i].deaths = append(w.workers[i].deaths, death{at, at + down})
		}
		switch e.Kind {
		case "crash":
			for i := range e.Count {
				if e.Period <= 0 {
					kill(e.Worker+i, e.At, orForever(e.For))
					continue
				}
				for at := e.At; e.active(at) && at < w.s.Duration; at += e.Period {
					kill(e.Worker+i, at, e.Down)
				}
			}
		case "zone_down":
			for i, z := range w.zone {
				if z == e.Zone {
					kill(i, e.At, orForever(e.For))
				}
			}
		case "restart_all":
			for i := range w.workers {
				kill(i, e.At+float64(i)*e.Gap, e.Down)
			}
		}
	}
	for i := range w.workers {
		slices.SortFunc(w.workers[i].deaths, func(a, b death) int { return cmp.Compare(a.at, b.at) })
	}
}

func orForever(x float64) float64 {
	if x == 0 {
		return math.Inf(1)
	}
	return x
}

// live advances processes to a time: some die, some come back.
func (w *world) live(at float64) {
	notice := 0.0
	for _, e := range w.s.Events {
		notice = max(notice, e.Notice)
		if e.Kind == "poison" && e.active(at) {
			w.poison(e, at)
		}
	}
	for i := range w.workers {
		x := &w.workers[i]
		if !x.up && at >= x.back {
			x.up, x.began = true, at
			for p := range w.parts {
				if w.parts[p].worker == i {
					w.parts[p].cold = 1
				}
			}
		}
		for len(x.deaths) > 0 && at >= x.deaths[0].at {
			x.up, x.back = false, x.deaths[0].back
			x.deaths = x.deaths[1:]
		}
		x.draining = x.up && notice > 0 && len(x.deaths) > 0 && at >= x.deaths[0].at-notice
	}
}

// poison kills the worker that has held a partition long enough.
func (w *world) poison(e *Event, at float64) {
	p := &w.parts[w.demand.ranked[e.Rank]]
	x := &w.workers[p.worker]
	arrived := max(e.At, x.began)
	if n := len(p.homes); n > 0 {
		arrived = max(arrived, p.homes[n-1].left)
	}
	if x.up && at-arrived >= e.Ramp {
		x.up, x.back = false, at+e.Down
	}
}

// speed returns how much work a worker can do in a step.
func (w *world) speed(i int, at float64) float64 {
	x := &w.workers[i]
	f := w.s.Plant
	c := w.capacity[i] * w.s.Step
	if age := at - x.began; f.FreshRamp > 0 && age < f.FreshRamp {
		c *= f.Fresh + (1-f.Fresh)*age/f.FreshRamp
	}
	for _, e := range w.s.Events {
		if e.Kind == "slow" && e.active(at) && i >= e.Worker && i < e.Worker+e.Count {
			c *= e.Factor
		}
	}
	return max(c, 1e-9)
}

// A tally counts the requests of a step.
type tally struct {
	offered, dropped float64
	dead, handing    float64 // dropped because the worker is down, or during a hand-over
	cold             float64 // cache misses
	hottest          float64 // highest utilization of a worker
}

// serve simulates a step.
func (w *world) serve(at float64) (t tally) {
	w.demand.requests(at, w.offered)
	asked, work := make([]float64, len(w.workers)), make([]float64, len(w.workers))
	f := w.s.Plant
	for p := range w.parts {
		q, n := &w.parts[p], w.offered[p]
		t.offered += n
		if !w.workers[q.worker].up {
			t.dropped += n
			t.dead += n
			continue
		}
		if q.handing {
			lost := n * min(1, f.Handoff/w.s.Step)
			t.dropped += lost
			t.handing += lost
			n -= lost
		}
		asked[q.worker] += n
		work[q.worker] += n * w.demand.cost[p] * (1 + (f.ColdMult-1)*q.cold)
	}
	served := make([]float64, len(w.workers))
	for i := range w.workers {
		x := &w.workers[i]
		x.requests = 0
		x.drops = 0
		x.busy = 0
		x.util = 0
		if !x.up {
			continue
		}
		can := w.speed(i, at)
		served[i] = 1
		if work[i] > can {
			served[i] = max(0, (can-f.Reject*work[i])/((1-f.Reject)*work[i]))
		}
		x.requests, x.drops = asked[i]*served[i], asked[i]*(1-served[i])
		x.busy, x.util = min(1, work[i]/can), work[i]/can
		t.dropped += x.drops
		t.hottest = max(t.hottest, x.util)
	}
	for p := range w.parts {
		q := &w.parts[p]
		q.handing = false
		t.cold += w.offered[p] * q.cold
		if w.workers[q.worker].up {
			q.cold *= math.Exp(-w.s.Step / f.ColdTau * served[q.worker])
		}
	}
	return t
}

// observe makes the report of the step that ends at a time.
func (w *world) observe(at float64) *balancer.Report {
	r := &w.report
	r.At = at
	lost := 0.0
	for _, e := range w.s.Events {
		if e.Kind == "ping_loss" && e.active(at) {
			lost = e.Prob
		}
	}
	for i := range w.workers {
		x := &w.workers[i]
		r.Up[i] = x.up && (lost == 0 || w.pings.Float64() >= lost)
		r.Draining[i] = false
		r.Requests[i] = 0
		r.Drops[i] = 0
		r.Busy[i] = 0
		r.Age[i] = 0
		if r.Up[i] {
			r.Draining[i] = x.draining
			r.Requests[i] = x.requests
			r.Drops[i] = x.drops
			r.Busy[i] = x.busy
			r.Age[i] = at - x.began
		}
	}
	for p := range w.parts {
		r.Assignment[p], r.Weights[p] = w.parts[p].worker, math.NaN()
		if r.Up[w.parts[p].worker] {
			r.Weights[p] = w.offered[p]
		}
	}
	return r
}

// describe returns what policies know at the start.
func (w *world) describe(seed uint64) balancer.Cluster {
	c := balancer.Cluster{
		Seed: seed, Workers: len(w.workers), Partitions: len(w.parts), Capacity: slices.Clone(w.capacity), Zone: w.zone,
		Allowed: w.allowed, Assignment: make([]int, len(w.parts)), Step: w.s.Step,
	}
	for i := range c.Capacity {
		if w.s.Cluster.Hide {
			c.Capacity[i] = w.s.Cluster.Capacity
		}
	}
	for p := range w.parts {
		c.Assignment[p] = w.parts[p].worker
	}
	return c
}
