package core

import (
	"fmt"
	"strconv"
	"strings"

	"procaas/dsl/datum"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// A unit is what makes calls, with the record of what became of them: a handler, or
// one item of its for-each.
type unit struct {
	*planner.Step
	rec  *record
	item int // of the for-each, from 1; 0 for the handler itself
}

// unit gives the handler as what makes calls.
func (r *Run) unit(s *planner.Step) unit { return unit{Step: s, rec: &r.records[s.Position]} }

// ref names the unit among all of the run, as [Attempt.Ref] does.
func (u unit) ref() string { return model.RefOf(u.Path, u.item) }

// find gives the unit of a ref; ok is false when there is none.
func (r *Run) find(ref string) (u unit, ok bool) {
	path, index, isItem := strings.Cut(ref, "[")
	s := r.plan.ByPath[path]
	if s == nil {
		if s = r.plan.ByPath[strings.TrimSuffix(path, model.UndoPath)]; s != nil && s.Undo != nil && r.records[s.Position].undo != nil {
			return unit{Step: s.Undo, rec: r.records[s.Position].undo}, true
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

// itemOf gives the i-th item of a handler, from 0, as what makes calls.
func (r *Run) itemOf(s *planner.Step, i int) unit {
	return unit{Step: s, rec: &r.records[s.Position].each.of[i], item: i + 1}
}

// envOf gives the roots that the calls of a unit may read.
func (r *Run) envOf(u unit, live Live) datum.Env {
	if u.item == 0 {
		return r.scope.env(live)
	}
	return r.scope.itemEnv(r.records[u.Position].each.items[u.item-1], u.item-1, live)
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

// within says which item an error is about.
func (u unit) within(err error) error {
	if u.item == 0 {
		return err
	}
	return fmt.Errorf("item %d: %w", u.item-1, err)
}
