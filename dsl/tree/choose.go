package tree

import (
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
)

// A Branch is one of the alternatives of a stage. The stage runs the first branch whose when is true, and skips the handlers of the others.
type Branch struct {
	Span diag.Span `yaml:"-"`

	places

	// When must be true for the stage to take the branch. It may read everything that is known before the stage. The
	// last branch may leave it out, to be taken when no other branch is.
	When *expr.Value `yaml:"when" kind:"bool"`

	// Handlers are the steps of the branch. A branch without handlers does nothing.
	Handlers []*Handler `yaml:"handlers"`

	number int // from 1
}

// Number returns the position of the branch in its stage, from 1.
func (b *Branch) Number() int { return b.number }

// Apart reports whether two handlers of a stage never run in the same run, because they are in different
// branches.
func Apart(a, b *Handler) bool {
	return a.Branch != nil && b.Branch != nil && a.Branch != b.Branch
}

// JoinBranches adds the handlers of all branches to the handlers of the stage.
func (s *Stage) JoinBranches() {
	for i, b := range s.Choose {
		b.number = i + 1
		for _, h := range b.Handlers {
			h.Branch = b
			s.Handlers = append(s.Handlers, h)
		}
	}
}

// ConditionReads lists what the conditions of the stage and its branches read.
func (s *Stage) ConditionReads() []datum.Read {
	reads := s.Enabled.Reads()
	for _, b := range s.Choose {
		reads = append(reads, b.When.Reads()...)
	}
	return reads
}
