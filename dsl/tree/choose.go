package tree

import (
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
)

// A Branch is one of the ways that a stage may go. The first whose when is true is
// taken, and the handlers of the others are skipped.
type Branch struct {
	Span diag.Span `yaml:"-"`

	places

	// When must be true for the branch to be taken. It may read what is known
	// before the stage. The last branch may do without: it is taken when no other
	// one is.
	When *expr.Value `yaml:"when" kind:"bool"`

	// Handlers are the steps of the branch; none when there is nothing to do.
	Handlers []*Handler `yaml:"handlers"`

	number int // from 1
}

// Number gives the place of the branch among the others, from 1.
func (b *Branch) Number() int { return b.number }

// Apart tells whether two handlers of a stage never run both, since they are in
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
