package balancer

import "slices"

// promises is the feedback about voluntary moves: how much of the drops that they were to prevent
// they did prevent. With bursts that end before a move takes effect this is little.
type promises struct {
	open         []*promise
	made, honest float64 // drops that were promised and prevented, in seconds of a worker's capacity, decayed
}

// A promise is a move whose effect is observed for the horizon.
type promise struct {
	offer
	until, prevented float64
}

const (
	promiseHalf  = 3600 // s: half-life of the experience
	promisePrior = 20   // s of a worker's capacity that are taken as promised and prevented at first
	promiseLeast = 0.1  // so that a worker that drops for long is relieved in any case
)

// kept returns the share of promised benefits that is expected.
func (x *promises) kept() float64 {
	return min(max((promisePrior+x.honest)/(promisePrior+x.made), promiseLeast), 1)
}

// observe computes what the last step would have been without the moves.
func (x *promises) observe(c *controller, r *Report) {
	fade := 1 - decay(c.cluster.Step, promiseHalf)
	x.made, x.honest = fade*x.made, fade*x.honest
	x.open = slices.DeleteFunc(x.open, func(m *promise) bool {
		if c.owner[m.partition] != m.to || !r.Up[m.to] || !r.Up[m.from] {
			return true
		}
		a, b, l := &c.workers[m.from], &c.workers[m.to], c.asked(r, m.partition)
		spared := func(e *estimate, load float64) float64 { // by the load less
			able := e.able() * e.fresh
			return expectedDrops(load, 0, able) - expectedDrops(load-l, 0, able)
		}
		m.prevented += c.cluster.Step * (spared(a, a.asked+l) - spared(b, b.asked))
		if r.At < m.until {
			return false
		}
		x.made += m.benefit / c.mean
		x.honest += min(max(m.prevented, 0), m.benefit) / c.mean
		return true
	})
}
