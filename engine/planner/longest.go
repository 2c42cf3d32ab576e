package planner

import "procaas/dsl/tree"

// This file computes the longest time of a run: see [tree.Longest]. It does so once for each plan, because a pipeline may
// be called from many places.

// Longest returns the longest time of a handler from its first attempt on.
func (s *Step) Longest() tree.Longest { return s.longest }

// Longest returns the longest time of the stage: that of the longest chain of handlers that wait
// for each other.
func (g *Stage) Longest() tree.Longest { return g.longest }

// Longest returns the longest time of a run of the pipeline.
func (p *Plan) Longest() tree.Longest { return p.longest }

// findLongest computes the longest times.
func (p *Plan) findLongest() {
	var all, beside tree.Longest
	for _, g := range p.Stages {
		ends := make([]tree.Longest, len(g.Steps)) // from the start of the stage
		for i, s := range g.Steps {
			var begins, inside tree.Longest
			for _, earlier := range s.direct { // the others end before one of these does
				begins = begins.Or(ends[earlier.Index])
			}
			if s.Callee != nil {
				inside = s.Callee.longest
			}
			s.longest = s.Handler.Longest(s.Type, p.Bundle, inside, s.Parallel)
			ends[i] = begins.And(s.longest)
			if s.Handler.Detached { // nothing waits for it, in this stage or in the next
				beside = beside.Or(all.And(ends[i]))
			} else {
				g.longest = g.longest.Or(ends[i])
			}
		}
		g.longest = g.longest.Within(g.Declared.Deadline)
		all = all.And(g.longest)
	}
	p.longest = all.Or(beside).Within(p.Pipeline.Deadline)
}
