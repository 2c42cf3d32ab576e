package check

import (
	"fmt"
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// checkStage checks the conditions of a stage. at is the index of its first handler in the pipeline. The
// conditions are evaluated before any handler of the stage starts, so they may read only what is known then.
func (c *walk) checkStage(s *tree.Stage, at int) {
	if s.Enabled != nil {
		spec.Compile(s.Enabled, &spec.Field{ExprKind: datum.BoolKind}, c.scopeBefore(s, at), c.Reporter)
	}
	if s.Loop() == nil {
		c.checkBranches(s, at)
	}
	checkChoice(c.Whole, s, c.Reporter)
}

// checkBranches checks the conditions of a stage's branches. In a repeated stage, each element evaluates them.
func (c *walk) checkBranches(s *tree.Stage, at int) {
	if len(s.Choose) == 0 {
		return
	}
	// A branch is evaluated only if the stage is enabled and the branches before it were not taken.
	sc := c.scopeBefore(s, at)
	sc.Facts = slices.Concat(sc.Facts, s.Enabled.Expr().Holds())
	for _, b := range s.Choose {
		spec.Compile(b.When, &spec.Field{ExprKind: datum.BoolKind}, sc, c.Reporter)
		sc.Facts = append(slices.Clip(sc.Facts), b.When.Expr().Fails()...)
	}
}

// scopeBefore returns what may be read before a stage. i is the index of the stage's first handler.
func (c *walk) scopeBefore(stage *tree.Stage, i int) *expr.Scope {
	sc := c.newScope()
	for _, s := range c.Steps[:i] {
		if s.Inside() {
			hide(sc, s)
		} else {
			sc.Sources = append(sc.Sources, s.ID)
		}
	}
	sc.Late = func() map[string]string { return c.lateBefore(stage, i) }
	return sc
}

// lateBefore returns why the outcomes of some handlers may not be read before a stage.
func (c *walk) lateBefore(stage *tree.Stage, i int) map[string]string {
	late := make(map[string]string)
	for j, s := range c.Steps {
		switch {
		case j < i && s.Inside():
			late[s.ID] = whyHidden(s)
		case j < i: // it may be read
		case s.Stage == stage && s.Loops():
			late[s.ID] = "is this stage, whose response exists when all elements are done"
		case s.Stage == stage:
			late[s.ID] = "runs in this stage, whose conditions come first"
		default:
			late[s.ID] = fmt.Sprintf("runs in a later stage, %q", s.Stage.ID)
		}
	}
	return late
}

// checkChoice reports branches that are never taken, and choices with nothing to choose.
func checkChoice(w *merge.Whole, s *tree.Stage, r *diag.Reporter) {
	for i, b := range s.Choose {
		if b.When != nil || i == len(s.Choose)-1 || w.Blamed(b.Span) {
			continue
		}
		next := s.Choose[i+1]
		r.Report(diag.Diagnostic{
			Span: b.Span.Head(), Code: rules.Choose,
			Message: "this branch has no when, so those behind it are never taken", Hint: "write when:, or make it the last one",
			Related: []diag.Related{{Span: next.Span.Head(), Message: "never taken"}},
		})
		return // only once: later branches are not taken either
	}
	if len(s.Choose) == 1 && s.Choose[0].When == nil && !w.Blamed(s.Choose[0].Span) {
		r.Errorf(s.Choose[0].Span.Head(), rules.Choose, "write when:, or write the handlers below handlers: of the stage",
			"the only branch of stage %q has no when, so there is nothing to choose", s.ID)
	}
}
