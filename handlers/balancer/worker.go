package balancer

import (
	"math"
	"slices"
)

const (
	capacityHalf = 40  // seconds: half-life of the learned capacity
	shownHalf    = 8   // seconds: the same while the worker drops, and so shows its capacity
	freshShare   = 0.6 // share of its capacity that a new process has
	freshTime    = 120 // seconds until it has all of it
	idle         = 0.1 // share of busy time below which nothing is learned
	warm         = 0.05
	saturated    = 0.05 // drops, as a share of served requests, of a saturated worker
)

// A machine is the state of one worker, in loads of partitions.
type machine struct {
	capacity float64 // capacity of a process that is not new; 0 until known
	least    float64 // what it has served, if busy times are not reported
	measured bool
	ceiling  float64   // what it could serve when it dropped; infinite if it has not
	shown    []float64 // the same for each of the last steps
	fresh    float64   // share of the capacity that it has now

	now, due, variance float64 // of its load
	surge              float64 // current extra work for cold caches

	hurt  float64 // expected drops over the horizon
	since float64 // start of its overload; infinite for none
}

// freshness returns the share of its capacity that a process of an age has.
func freshness(age float64) float64 {
	return min(1, freshShare+(1-freshShare)*age/freshTime)
}

// coldModel learns the extra work of requests to a cold cache: kappa times more at first, decaying
// over tau seconds.
type coldModel struct {
	taus []float64
	sums []coldSums // one per tau
	best int
}

// coldSums are the sums of a regression of extra work on cold load.
type coldSums struct{ xx, xy, yy float64 }

const (
	priorKappa = 2.0
	mostKappa  = 20.0
	priorTau   = 1 // its index
	// priorWeight is the weight of the prior, as a share of what one cold worker shows in a step.
	priorWeight = 10
)

func newColdModel() *coldModel {
	taus := []float64{30, 60, 120, 240}
	return &coldModel{taus: taus, sums: make([]coldSums, len(taus)), best: priorTau}
}

func (c *coldModel) tau() float64 { return c.taus[c.best] }

// kappa returns how many times more work a cold request is.
func (c *coldModel) kappa() float64 {
	s := c.sums[c.best]
	prior := priorWeight * 0.01 // cold loads are shares of a worker's load
	return min(max((s.xy+prior*priorKappa)/(s.xx+prior), 0), mostKappa)
}

// see adds an observation of one worker: its extra work, and its cold load for each tau, both as
// shares of its load.
func (c *coldModel) see(extra float64, cold []float64) {
	for i := range c.sums {
		s := &c.sums[i]
		s.xx += cold[i] * cold[i]
		s.xy += cold[i] * extra
		s.yy += extra * extra
	}
}

// choose chooses the tau with the best fit, if there is enough data.
func (c *coldModel) choose(step float64) {
	fade := math.Exp2(-step / 1800)
	least := math.Inf(1)
	for i := range c.sums {
		s := &c.sums[i]
		s.xx, s.xy, s.yy = s.xx*fade, s.xy*fade, s.yy*fade
		if s.xx <= 0 {
			continue
		}
		if rest := s.yy - s.xy*s.xy/s.xx; s.xx > 0.2 && rest < 0.98*least {
			least, c.best = rest, i
		}
	}
}

// learn updates the state of all workers from a report.
func (e *economist) learn(r *Report) {
	kappa, tau := e.cold.kappa(), e.cold.tau()
	colds := make([]float64, len(e.cold.taus))
	for w := range e.machines {
		m := &e.machines[w]
		if !r.Up[w] {
			continue
		}
		if m.fresh = 1; !math.IsNaN(r.Age[w]) {
			m.fresh = freshness(clean(r.Age[w]))
		}
		served, dropped, busy := clean(r.Requests[w]), clean(r.Drops[w]), busyOf(r, w)
		load, told := 0.0, 0.0
		clear(colds)
		for _, p := range e.aboard[w] {
			load += e.parts[p].now
			told += e.loadOf(r, p)
			for i, t := range e.cold.taus {
				colds[i] += e.parts[p].now * e.parts[p].wasCold(r.At, t, e.cluster.Step)
			}
		}
		m.notice(told, served, dropped, e.cluster.Step)
		if busy < idle {
			m.grow(told*served/max(served+dropped, 1e-9), e.cluster.Step)
			continue
		}
		if load <= 0 || told <= 0 || served <= 0 {
			continue
		}
		for i := range colds {
			colds[i] /= load
		}
		// Of all requests, by the weights of partitions, whose units may differ from those of
		// served requests.
		can := told * served / (served + dropped) / busy / m.fresh
		if colds[e.cold.best] < warm {
			if !m.measured {
				m.capacity, m.measured = can, true
			}
			half := float64(capacityHalf)
			if dropped > 0.01*served {
				half = shownHalf
			}
			m.capacity += (1 - math.Exp2(-e.cluster.Step/half)) * (can - m.capacity)
			continue
		}
		if m.measured && m.fresh == 1 {
			asked := served + dropped
			work := m.capacity * busy * asked / served
			e.cold.see(max(-1, work/told-1), colds)
		} else if !m.measured {
			// Cold from the start, so its capacity is more than it shows.
			m.capacity = can * (1 + kappa*colds[e.cold.best])
		}
	}
	e.cold.choose(e.cluster.Step)
	e.guess()
	for w := range e.machines {
		e.weigh(w, r, tau)
	}
}

// busyOf returns the share of time that a worker was busy. One that drops was busy all the time,
// whatever it reports. If its report is useless, drops are the only evidence.
func busyOf(r *Report, w int) float64 {
	busy, enough := share(r.Busy[w]), saturated
	if busy < idle {
		enough = quiet
	}
	if clean(r.Drops[w]) > enough*clean(r.Requests[w]) {
		return 1
	}
	return busy
}

// grow raises the least capacity of a worker to what it serves, if its busy time is unknown.
func (m *machine) grow(served, step float64) {
	if m.least = max(m.least, served); m.measured && served > m.capacity {
		m.capacity += (1 - math.Exp2(-step/shownHalf)) * (served - m.capacity)
	}
}

// loadOf returns the reported load of a partition, or its last known one.
func (e *economist) loadOf(r *Report, p int) float64 {
	if x := e.units.asked(r, p); !math.IsNaN(x) {
		return x
	}
	return e.parts[p].now
}

// asked returns the reported load of a partition, or NaN. If weights count only served requests, it
// adds its worker's drops.
func (u *units) asked(r *Report, p int) float64 {
	x, w := r.Weights[p], r.Assignment[p]
	if math.IsNaN(x) || !r.Up[w] {
		return math.NaN()
	}
	if served, dropped := clean(r.Requests[w]), clean(r.Drops[w]); u.servedOnly() && served > 0 {
		return clean(clean(x) * (1 + dropped/served))
	}
	return clean(x)
}

// guess gives workers without data the values of similar ones.
func (e *economist) guess() {
	known := func(unit func(w int) float64) (m float64) {
		var of []float64
		for w := range e.machines {
			if e.machines[w].measured {
				of = append(of, e.machines[w].capacity/unit(w))
			}
		}
		if len(of) == 0 {
			return 0
		}
		slices.Sort(of)
		return of[len(of)/2]
	}
	ratio := known(e.told)
	sum, n := 0.0, 0.0
	for w := range e.machines {
		m := &e.machines[w]
		if !m.measured && ratio > 0 {
			m.capacity = max(ratio*e.told(w), m.least)
		}
		if m.capacity > 0 {
			sum, n = sum+m.capacity, n+1
		}
	}
	e.mean = sum / max(n, 1)
}

// told returns the capacity in the cluster's description. If there is none, all workers are equal.
func (e *economist) told(w int) float64 {
	if len(e.cluster.Capacity) > 0 && e.cluster.Capacity[w] > 0 {
		return e.cluster.Capacity[w]
	}
	return 1
}

// coldness returns the share of a partition's cache that is still empty.
func (p *partition) coldness(now, tau float64) float64 {
	return math.Exp(min(0, (p.since-now)/tau))
}

// wasCold returns the mean coldness over the step of a report, which determines the work of that
// step. In a step as long as tau, a cache that is cold at the start is warm at the end.
func (p *partition) wasCold(now, tau, step float64) float64 {
	age := now - p.since
	if age < step {
		step = age // it has been there for only a part of the step
	}
	if !(step > 0) {
		return 1
	}
	if math.IsInf(age, 1) {
		return 0
	}
	return tau / step * (math.Exp((step-age)/tau) - math.Exp(-age/tau))
}

// weigh sums up the partitions of a worker.
func (e *economist) weigh(w int, r *Report, tau float64) {
	m := &e.machines[w]
	m.now, m.due, m.variance, m.surge = 0, 0, 0, 0
	kappa := e.cold.kappa()
	for _, p := range e.aboard[w] {
		q := &e.parts[p]
		m.now += q.now
		m.due += q.due
		m.variance += e.variance(p)
		if c := q.coldness(r.At, tau); c > 0.01 {
			m.surge += kappa * q.now * c
		}
	}
	if r.Up[w] {
		m.heed(e.cluster.Step)
	}
	m.hurt = e.hurt(m)
	if over := m.hurt > 0.01*e.params.Horizon*m.now || clean(r.Drops[w]) > 0.01*clean(r.Requests[w]); !over || !r.Up[w] {
		m.since = math.Inf(1)
	} else if math.IsInf(m.since, 1) {
		m.since = r.At
	}
}
