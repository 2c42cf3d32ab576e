package dsl

import (
	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// MaxRunParts bounds the handlers that one run may have, each counted anew for each element
// of a for-each and each call of its pipeline: lists inside of lists multiply, and a run
// that is too large brings its node down.
const MaxRunParts = 100_000

// checkParts reports a for-each that makes more of one run than it may be, as far as the
// lists are known. Lists that are computed from data are bounded when the run gets there.
func (c *checker) checkParts() {
	known := map[*tree.Pipeline]float64{}
	for _, p := range c.Bundle.Pipelines {
		if c.Bundle.Index.Pipelines[p.ID] == p {
			c.partsOf(p, known)
		}
	}
}

// partsOf is how many handlers a pipeline makes at least, along its longest chain of lists.
func (c *checker) partsOf(p *tree.Pipeline, known map[*tree.Pipeline]float64) float64 {
	if n, ok := known[p]; ok {
		return n
	}
	known[p] = 1 // for calls in a circle, which are reported
	most := 1.0
	for _, s := range p.Stages {
		inside := 1.0
		for _, h := range s.Handlers {
			below := 0.0
			if h.Call != nil {
				if callee := c.Bundle.Index.Pipelines[h.Call.Pipeline]; callee != nil {
					below = c.partsOf(callee, known)
				}
			}
			inside = max(inside, c.times(h.ForEach, h.PlaceOf("for-each", h.Span), below))
		}
		if s.ForEach != nil {
			inside = c.times(s.ForEach, s.PlaceOf("for-each", s.Span), inside)
		}
		most = max(most, inside)
	}
	known[p] = most
	return most
}

// times is how many handlers there are at least when each element of a list has some below
// it. It reports a product that is too large, and not those around it.
func (c *checker) times(f *tree.ForEach, at diag.Span, below float64) float64 {
	if f == nil {
		return 1 + below
	}
	n := float64(f.KnownLength())
	all := n * (1 + below)
	if all > MaxRunParts && below <= MaxRunParts {
		c.Errorf(at, rules.Parts, "split the work over several runs: emit an event, or queue.put a task, for each element",
			"each of %.0f elements has at least %.0f handlers below it, which makes %.0f in one run; a run may have %d", n, below, all, MaxRunParts)
	}
	return all
}
