package planner

import "procaas/dsl/tree"

// This file computes the longest time of a run: see [tree.Longest].

// Longest returns the longest time of a handler from its first attempt on.
func (s *Step) Longest(b *tree.Bundle) tree.Longest {
	var inside tree.Longest
	if s.Callee != nil {
		inside = s.Callee.Longest()
	}
	return s.Handler.Longest(s.Type, b, inside, s.Parallel)
}

// Longest returns the longest time of a run of the pipeline.
func (p *Plan) Longest() tree.Longest {
	var all, beside tree.Longest
	for _, g := range p.Stages {
		for _, s := range g.Steps {
			if s.Handler.Detached {
				beside = beside.Or(all.And(s.ends(p.Bundle)))
			}
		}
		all = all.And(g.Longest(p.Bundle))
	}
	return all.Or(beside).Within(p.Pipeline.Deadline)
}

// ends returns the longest time from the start of the stage to the end of the handler.
func (s *Step) ends(b *tree.Bundle) tree.Longest {
	var begins tree.Longest
	for _, e := range s.After {
		begins = begins.Or(e.From.ends(b))
	}
	return begins.And(s.Longest(b))
}

// Longest returns the longest time of the stage: that of the longest chain of handlers that wait
// for each other.
func (g *Stage) Longest(b *tree.Bundle) tree.Longest {
	var all tree.Longest
	ends := make([]tree.Longest, len(g.Steps))
	for i, s := range g.Steps {
		if s.Handler.Detached {
			continue // nothing waits for it, in this stage or in the next
		}
		var begins tree.Longest
		for _, e := range s.After {
			begins = begins.Or(ends[e.From.Index])
		}
		ends[i] = begins.And(s.Longest(b))
		all = all.Or(ends[i])
	}
	return all.Within(g.Declared.Deadline)
}
