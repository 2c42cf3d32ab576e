package proof

import (
	"procaas/dsl/diag"
	"procaas/dsl/tree"
)

// This file handles branches in the proof of degradation: a name that one branch sets is null if another branch
// is taken.

// apart reports whether two steps never run in the same run.
func (p *proof) apart(a, b int) bool {
	return a < len(p.Steps) && b < len(p.Steps) && p.Steps[a].Stage == p.Steps[b].Stage && tree.Apart(p.Steps[a].Handler, p.Steps[b].Handler)
}

// conditional reports whether a step may be left out although reader runs, because only the step is in a
// branch.
func (p *proof) conditional(a, reader int) bool {
	of := p.Steps[a].Branch
	return of != nil && (reader >= len(p.Steps) || p.Steps[reader].Branch != of)
}

// inEveryBranch reports whether every branch of a stage certainly sets a name.
func (p *proof) inEveryBranch(name string, stage *tree.Stage) bool {
	if stage.Choose[len(stage.Choose)-1].When != nil { // there is a branch, since the step is in one
		return false // possibly no branch is taken
	}
	sure := make(map[*tree.Branch]bool)
	for _, a := range p.Sets[name] {
		if s := p.Steps[a.At]; s.Stage == stage && s.Branch != nil {
			causes, sets := p.null(a)
			sure[s.Branch] = sure[s.Branch] || sets && len(causes) == 0
		}
	}
	for _, b := range stage.Choose {
		if !sure[b] {
			return false
		}
	}
	return true
}

// unchosen returns the cause for a branch that is not taken.
func (p *proof) unchosen(step int, at diag.Span, message string) cause {
	c := newCause(p.Steps[step].Handler, at, message)
	c.unchosen = true
	return c
}
