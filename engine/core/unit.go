package core

import (
	"fmt"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// A unit is what makes calls, with the record of what became of them: a handler, or
// one item of its for-each.
type unit struct {
	*planner.Step
	rec  *record
	item int     // of the for-each, from 1; 0 for the handler itself
	of   *record // of the handler; rec unless it is for one item
}

// unitOf returns a handler, or its compensation, as what makes calls.
func unitOf(s *planner.Step, rec *record) unit { return unit{Step: s, rec: rec, of: rec} }

// ref names the unit among all of the run, as [Attempt.Ref] does.
func (u unit) ref() string { return model.RefOf(u.Path, u.item) }

// within says which item an error is about.
func (u unit) within(err error) error {
	if u.item == 0 {
		return err
	}
	return fmt.Errorf("item %d: %w", u.item-1, err)
}
