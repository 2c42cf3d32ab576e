package core

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

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

// current returns the stage that the run is in, or nil between the last one and finally.
func (r *Run) current() *planner.Stage {
	switch {
	case r.closing != "":
		return r.plan.Final
	case r.stage < r.plan.Regular():
		return r.plan.Stages[r.stage]
	}
	return nil
}

// open returns the handlers that may begin or continue: those of the current stage, and undecided
// detached ones of earlier stages.
func (r *Run) open() (steps []*planner.Step) {
	if stage := r.current(); stage != nil {
		steps = stage.Steps
	}
	if r.closing != "" {
		return steps
	}
	for _, s := range r.plan.Detached {
		if s.Stage < r.stage && !r.records[s.Position].decided() {
			steps = append(slices.Clip(steps), s)
		}
	}
	return steps
}

// unit returns the unit of a handler.
func (r *Run) unit(s *planner.Step) unit { return unitOf(s, &r.records[s.Position]) }

// find returns the unit of a ref. ok is false if there is none.
func (r *Run) find(ref string) (u unit, ok bool) {
	path, index, isItem := strings.Cut(ref, "[")
	s := r.plan.ByPath[path]
	if s == nil {
		s = r.plan.ByPath[strings.TrimSuffix(path, model.UndoPath)]
		if s != nil && s.Undo != nil && r.records[s.Position].undo != nil {
			return unitOf(s.Undo, r.records[s.Position].undo), true
		}
		return unit{}, false
	}
	if !isItem {
		return r.unit(s), true
	}
	n, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
	each := r.records[s.Position].each
	if err != nil || each == nil || n < 0 || n >= len(each.of) {
		return unit{}, false
	}
	return r.itemOf(s, n), true
}

// itemOf returns the unit of the i-th item of a handler, from 0.
func (r *Run) itemOf(s *planner.Step, i int) unit {
	rec := &r.records[s.Position]
	return unit{Step: s, rec: &rec.each.of[i], item: i + 1, of: rec}
}

// called returns the call that a ref leads into, and the rest of the ref. ok is false if the call
// has ended.
func (r *Run) called(ref string) (u unit, rest string, inside, ok bool) {
	head, rest, inside := strings.Cut(ref, model.IntoCall)
	u, ok = r.find(head)
	return u, rest, inside, ok && (!inside || u.rec.sub != nil)
}

// visit calls f for each unit of a handler: the handler itself, or its items once they
// are known.
func (r *Run) visit(s *planner.Step, f func(unit)) {
	rec := &r.records[s.Position]
	if rec.each == nil || rec.decided() {
		f(r.unit(s))
		return
	}
	for i := range rec.each.of {
		f(r.itemOf(s, i))
	}
}
