package dsl

import (
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/syntax"
)

// demands lists what must be true for a step to run: the conditions of its stage
// and its own.
func (s step) demands(known *syntax.Cache) []string {
	return slices.Concat(s.stage.Enabled.Expr().Conjuncts(known), s.Enabled.Expr().Conjuncts(known))
}

// underCondition tells whether a step may be left out by a condition that an
// author has written.
func (s step) underCondition() bool { return !s.Enabled.IsNull() || !s.stage.Enabled.IsNull() }

// conditionReads lists what decides whether a handler runs at its place: the stage's
// conditions up to its own branch, and its own.
func (s step) conditionReads() []datum.Read {
	reads := s.stage.Enabled.Reads()
	if s.Branch != nil {
		for _, b := range s.stage.Choose[:s.Branch.Number()] {
			reads = append(reads, b.When.Reads()...)
		}
	}
	return slices.Concat(reads, s.ConditionReads())
}
