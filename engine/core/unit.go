package core

import (
	"fmt"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// A unit is what makes calls: a handler, or one item of its for-each. It has the record of their
// outcome.
type unit struct {
	*planner.Step
	rec  *record
	item int     // number of the item, from 1; 0 for the handler itself
	of   *record // the handler's record; the same as rec if there is no item
}

// unitOf returns the unit of a handler or of its compensation.
func unitOf(s *planner.Step, rec *record) unit { return unit{Step: s, rec: rec, of: rec} }

// ref names the unit in the run, like [Attempt.Ref].
func (u unit) ref() string { return model.RefOf(u.Path, u.item) }

// keepsAttempts reports whether a crash must not hide an attempt, since it may have to be verified or undone.
func (u unit) keepsAttempts() bool {
	return u.Handler.Parks() || u.Handler.Verification() != nil || u.Undo != nil
}

// within adds to an error which item it is about.
func (u unit) within(err error) error {
	if u.item == 0 {
		return err
	}
	return fmt.Errorf("item %d: %w", u.item-1, err)
}
