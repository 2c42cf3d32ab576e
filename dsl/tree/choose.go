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

// Number returns the place of the branch among the others, from 1.
func (b *Branch) Number() int { return b.number }

// Apart reports whether two handlers of a stage never run both, since they are in
// different branches.
func Apart(a, b *Handler) bool {
	return a.Branch != nil && b.Branch != nil && a.Branch != b.Branch
}

// JoinBranches puts the handlers of all branches behind those of the stage itself.
func (s *Stage) JoinBranches() {
	for i, b := range s.Choose {
		b.number = i + 1
		for _, h := range b.Handlers {
			h.Branch = b
			s.Handlers = append(s.Handlers, h)
		}
	}
}

// ConditionReads lists what decides how the stage goes: the reads of enabled and
// of its branches.
func (s *Stage) ConditionReads() []datum.Read {
	reads := s.Enabled.Reads()
	for _, b := range s.Choose {
		reads = append(reads, b.When.Reads()...)
	}
	return reads
}
