package balancer

import (
	"math"
	"slices"
)

// This file estimates what workers can do, in the unit of the weights of partitions, from what they
// report. Reported drops are facts, so they correct what follows from the reported busy time.

const (
	capacityHalf = 40   // s: half-life of a measured capacity, so that one odd report changes little
	droppingHalf = 8    // s: the same while the worker drops, and so shows its capacity
	freshShare   = 0.6  // share of its capacity that a process has when it starts
	freshTime    = 120  // s until it has all of it
	idleBusy     = 0.1  // share of busy time below which a division by it tells nothing
	warmShare    = 0.05 // share of cold load below which a worker counts as warm
	surelyDrops  = 0.05 // drops per served request of a worker that must have been busy all the time
	hardlyDrops  = 5e-3 // the same if its busy time is unknown

	dropsHalf   = 20   // s: half-life of the share of reports with drops
	dropsOften  = 0.3  // of them, from which on drops show the capacity; a burst does not
	coldExcuse  = 0.3  // extra work for cold caches per load, above which they are the cause of drops
	dropsForget = 1800 // s without drops in which the capacity by drops doubles
)

// An estimate is the state of one worker.
type estimate struct {
	capacity float64 // by busy time, of a process that is not new; 0 until it is known
	guessed  bool    // measured while it was cold
	measured bool    // measured while it was warm
	shown    float64 // capacity by drops; infinite if it has not dropped
	dropping float64 // share of the latest reports with drops
	fresh    float64 // share of its capacity that it has now

	asked              float64 // load of the last report
	now, due, variance float64 // of its load
	cold               float64 // extra work for cold caches now
	hurt               float64 // drops that are expected within the horizon
	since              float64 // time since which it is overloaded; infinite if it is not
}

// able returns the capacity of a worker that is not new.
func (e *estimate) able() float64 { return max(min(e.capacity, e.shown), 1e-9) }

// A reading is what a worker reports, as far as it is believed.
type reading struct {
	asked   float64 // sum of the weights of its partitions
	share   float64 // served part of its requests
	dropped bool    // it drops more than single requests
	busy    float64 // share of its time; 0 if unknown
}

// read returns the reading of a worker.
func (c *controller) read(r *Report, w int) reading {
	served, drops := clean(r.Requests[w]), c.witness.believed(r, w)
	x := reading{share: served / max(served+drops, 1e-9), dropped: drops > 1e-3*served, busy: share(r.Busy[w])}
	for _, p := range c.held[w] {
		x.asked += c.asked(r, p)
	}
	if drops > surelyDrops*served || x.busy < idleBusy && drops > hardlyDrops*served {
		x.busy = 1
	}
	return x
}

// measure updates the capacity of a worker.
func (c *controller) measure(r *Report, w int) {
	e := &c.workers[w]
	e.fresh = 1
	if !math.IsNaN(r.Age[w]) {
		e.fresh = min(1, freshShare+(1-freshShare)*clean(r.Age[w])/freshTime)
	}
	x, load, cold := c.read(r, w), 0.0, 0.0
	for _, p := range c.held[w] {
		load += c.loads[p].now
		cold += c.loads[p].now * c.wasCold(p, r.At)
	}
	e.asked = x.asked
	e.measureDrops(x, c.cluster.Step)
	switch {
	case load <= 0 || x.asked <= 0 || x.share <= 0:
		return
	case x.busy < idleBusy:
		// It can do what it does and, if it reports little busy time, much more.
		done := x.asked * x.share
		if x.busy > 0 {
			done /= idleBusy
		}
		if done > e.capacity {
			e.capacity += decay(c.cluster.Step, droppingHalf) * (done - e.capacity)
		}
		return
	}
	able := x.asked * x.share / x.busy / e.fresh
	cold /= load
	switch {
	case cold >= warmShare && !e.measured:
		e.capacity, e.guessed = able*(1+c.landing.kappa()*cold), true // it has been cold from the start
	case cold >= warmShare:
		if e.fresh == 1 {
			c.landing.observe(e.capacity*x.busy/(x.asked*x.share)-1, cold)
		}
	case !e.measured:
		e.capacity, e.measured = able, true
	case x.dropped:
		e.capacity += decay(c.cluster.Step, droppingHalf) * (able - e.capacity)
	default:
		e.capacity += decay(c.cluster.Step, capacityHalf) * (able - e.capacity)
	}
}

// measureDrops updates the capacity by drops: a worker that drops in many reports can do what it
// serves in these, and no more.
func (e *estimate) measureDrops(x reading, step float64) {
	if e.cold > coldExcuse*e.now {
		return
	}
	done := x.asked * x.share / e.fresh
	if !x.dropped {
		e.dropping -= decay(step, dropsHalf) * e.dropping
		e.shown = max(e.shown*math.Exp2(step/dropsForget), done)
		return
	}
	e.dropping += decay(step, dropsHalf) * (1 - e.dropping)
	e.shown = max(e.shown, done)
	if e.dropping < dropsOften {
		return
	}
	if math.IsInf(e.shown, 1) {
		e.shown = done
	}
	e.shown += decay(step, droppingHalf) * (done - e.shown)
}

// compare gives workers whose own capacity is unknown that of the median worker, in proportion to
// the declared capacities, and computes the mean.
func (c *controller) compare() {
	declared := func(w int) float64 {
		if len(c.cluster.Capacity) > 0 && c.cluster.Capacity[w] > 0 {
			return c.cluster.Capacity[w]
		}
		return 1
	}
	var known []float64
	for w, e := range c.workers {
		if e.guessed || e.measured {
			known = append(known, e.capacity/declared(w))
		}
	}
	slices.Sort(known)
	c.mean = 0
	for w := range c.workers {
		e := &c.workers[w]
		if !e.guessed && !e.measured && len(known) > 0 {
			e.capacity = max(e.capacity, known[len(known)/2]*declared(w))
		}
		c.mean += e.capacity / float64(len(c.workers))
	}
}

// A landing learns the price of a cold cache: a request to it is kappa times more work at first, and
// that decays with the time coldTime.
type landing struct{ xx, xy float64 }

const (
	coldTime   = 60   // s in which two thirds of a cache are filled
	priorKappa = 2    // times more work for a request to an empty cache, before it is known
	mostKappa  = 20   // bounds what odd reports can teach
	priorCold  = 0.1  // weight of the prior, in squares of cold shares
	coldHalf   = 1800 // s: half-life of what was learned
)

// kappa returns how many times more work a request to an empty cache is.
func (l *landing) kappa() float64 {
	return min(max((l.xy+priorCold*priorKappa)/(l.xx+priorCold), 0), mostKappa)
}

// observe adds the extra work of a worker, and the share of its load that was cold.
func (l *landing) observe(extra, cold float64) {
	l.xx += cold * cold
	l.xy += cold * max(-1, extra)
}

// seeCold bounds the expected extra work of a worker by what its busy time leaves room for. What has
// landed in the last step does not show yet.
func (c *controller) seeCold(r *Report, w int) {
	e, x := &c.workers[w], c.read(r, w)
	if !r.Up[w] || math.IsNaN(r.Busy[w]) || x.dropped {
		return
	}
	seen := max(0, x.busy*e.able()*e.fresh-x.asked)
	for _, p := range c.held[w] {
		if r.At-c.landed[p] < 2*c.cluster.Step {
			seen += c.landing.kappa() * c.loads[p].now
		}
	}
	e.cold = min(e.cold, seen)
}

// isCold returns the share of a partition's cache that is still empty.
func (c *controller) isCold(p int, now float64) float64 {
	return math.Exp(min(0, (c.landed[p]-now)/coldTime))
}

// wasCold returns the mean of that over the last step. In a step as long as coldTime, a cache that is
// cold at the start is warm at the end.
func (c *controller) wasCold(p int, now float64) float64 {
	step := min(now-c.landed[p], c.cluster.Step)
	if !(step > 0) {
		return 1
	}
	return coldTime / step * c.isCold(p, now) * math.Expm1(step/coldTime)
}
