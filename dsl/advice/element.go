package advice

import (
	"fmt"
	"slices"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/steps"
	"procaas/dsl/tree"
)

// adviseElementRules reports rules of on-error that leave out elements of a list without saying so. Earlier versions
// ended the whole list.
func (c *advisor) adviseElementRules() {
	for _, s := range c.Steps {
		if s.ForEach == nil || s.ForEach.OnFailure != "fail" {
			continue // with another on-failure, a failed element has never ended the list
		}
		for _, rule := range s.OnError {
			if !s.OfElement(rule) || !rule.GoesOn() || rule.AppliesTo != "" {
				continue
			}
			c.Report(diag.Diagnostic{
				Span: rule.PlaceOf("then", rule.Span), Severity: diag.Advice, Code: rules.ElementRule,
				Message: "this rule leaves out single elements: the others go on, and sources." + s.ID + ".response has null in their places",
				Hint: "write applies-to: element if you mean that. Write applies-to: list to end the list at the first such error, " +
					"as earlier versions did",
				Related: []diag.Related{{Span: s.PlaceOf("for-each", s.ForEach.Span), Message: "the list"}},
			})
		}
	}
}

// adviseListUndo reports calls for the elements of a list whose pipeline can be undone. A run forgets an element that has
// succeeded, so nothing undoes it when another element or a later handler fails. A call without a list is undone.
func (c *advisor) adviseListUndo() {
	for i, s := range c.Steps {
		list := s.ForEach
		if s.Inside() {
			list = s.Stage.ForEach
		}
		if s.Call == nil || list == nil {
			continue
		}
		p := c.Bundle.Pipeline(s.Call.Pipeline)
		if p == nil || !c.undoes(p, nil) || list.OnFailure != "fail" && !c.failsLater(i) {
			continue
		}
		c.Report(diag.Diagnostic{
			Span: s.Call.PlaceOf("pipeline", s.Call.Span), Severity: diag.Advice, Code: rules.ListNotUndone,
			Message: fmt.Sprintf("elements for which pipeline %q has succeeded are not undone when the run fails after that", p.ID),
			Hint: "undo them by one call, as the compensation of a handler before the list. Or let each element be a run of its own: emit an " +
				"event for it",
			Related: []diag.Related{{Span: list.Span, Message: "the list"}},
		})
	}
}

// undoes reports whether a pipeline, or one that it calls, has a compensation.
func (c *advisor) undoes(p *tree.Pipeline, around []*tree.Pipeline) bool {
	if p == nil || slices.Contains(around, p) {
		return false
	}
	return slices.ContainsFunc(p.Stages, func(s *tree.Stage) bool {
		return slices.ContainsFunc(s.Handlers, func(h *tree.Handler) bool {
			return h.Compensate != nil || h.Call != nil && c.undoes(c.Bundle.Pipeline(h.Call.Pipeline), append(around, p))
		})
	})
}

// failsLater reports whether a critical handler beside or after a step may fail the run.
func (c *advisor) failsLater(i int) bool {
	from := slices.IndexFunc(c.Steps, func(s steps.Step) bool { return s.Stage == c.Steps[i].Stage })
	for j := from; j < len(c.Steps); j++ {
		if s := c.Steps[j]; j != i && s.IsCritical() && !s.Loops() && (s.Type != "" || s.Call != nil) {
			return true
		}
	}
	return false
}
