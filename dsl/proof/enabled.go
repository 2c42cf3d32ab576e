package proof

import (
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/steps"
	"procaas/dsl/tree"
)

// checkEnabled warns of a critical handler that reads a member of a value that another handler sets only under
// a condition, unless its own condition implies that one. The author's condition leaves the null here, not the
// engine. So it is a warning, and passing the null on is allowed.
func (p *proof) checkEnabled(i int) {
	s := p.Steps[i]
	if !s.IsCritical() {
		return
	}
	conditions, demands := s.DecidingReads(), s.Demands(p.Parsed)
	// One finding per value: others of the same value have the same remedy.
	told := make(map[string]bool)
	for _, read := range slices.Concat(s.ConditionReads(), s.Body.Reads(), s.Result.Reads()) {
		if read.Guarded || len(read.Path) <= expr.Settled(read.Path)+1 || looksAt(conditions, read.Path) || p.warned(read.Span) {
			continue
		}
		var chain []steps.Step
		switch {
		case read.Path[0] == expr.StateRoot:
			chain = p.onlyUnder(read.Path[1], i, demands)
		case steps.SourceOf(read.Path) != "" && read.Path[2] == "response":
			chain = p.sourceUnder(steps.SourceOf(read.Path), i, demands)
		}
		if what := datum.Path(read.Path[:expr.Settled(read.Path)+1]).String(); len(chain) > 0 && !told[what] {
			told[what] = true
			p.reportCondition(s.Handler, read, what, chain)
		}
	}
}

// onlyUnder lists the handlers that set a name before a step, if each of them has a condition. It returns none
// if the case is ambiguous.
func (p *proof) onlyUnder(name string, i int, demands []string) []steps.Step {
	first, declared := p.FirstValue(name, i)
	kept := p.FlowState().Get(name) != nil
	if !declared || first != nil || kept {
		return nil
	}
	var chain []steps.Step
	for _, a := range slices.Backward(p.Sets[name]) {
		if a.At >= i || p.apart(a.At, i) || p.LocalTo(name, a.At) != p.LocalTo(name, i) {
			continue
		}
		s := p.Steps[a.At]
		if !s.IsCritical() || s.GoesOn() != nil || p.conditional(a.At, i) || !s.UnderCondition() ||
			expr.ImpliedBy(s.Demands(p.Parsed), demands) {
			return nil // it is certain, or the proof itself checks it
		}
		chain = append(chain, s)
	}
	return chain
}

// sourceUnder returns the handler whose response is read, if that handler has a condition.
func (p *proof) sourceUnder(id string, i int, demands []string) []steps.Step {
	for j, s := range p.Steps[:i] {
		if !p.Steps[i].Hides(s) && s.ID == id && s.IsCritical() && s.GoesOn() == nil && !p.conditional(j, i) && s.UnderCondition() &&
			!expr.ImpliedBy(s.Demands(p.Parsed), demands) {
			return []steps.Step{s}
		}
	}
	return nil
}

// warned reports whether the checks of types have already reported a read.
func (p *proof) warned(at diag.Span) bool {
	return slices.ContainsFunc(p.found, func(d diag.Diagnostic) bool {
		return d.Code == rules.ExprMaybeNull && d.File == at.File && d.Start == at.Start
	})
}

func (p *proof) reportCondition(h *tree.Handler, read datum.Read, what string, chain []steps.Step) {
	var names []string
	related := []diag.Related{{Span: h.PlaceOf("id", h.Span), Message: fmt.Sprintf("%q is critical", h.ID)}}
	for _, s := range slices.Backward(chain) {
		names = append(names, fmt.Sprintf("%q", s.ID))
		at := s.Enabled
		if at.IsNull() {
			at = s.Stage.Enabled
		}
		related = append(related, diag.Related{Span: at.Span, Message: fmt.Sprintf("%q sets %s only under this condition", s.ID, what)})
	}
	p.Report(diag.Diagnostic{
		Span: read.Span, Severity: diag.Warning, Code: rules.Conditional, Related: related,
		Hint: fmt.Sprintf("%s, or copy the condition into %q", p.withDefault(h, read), h.ID),
		Message: fmt.Sprintf("critical handler %q takes a member of %s, which is null when %s %s not enabled",
			h.ID, what, strings.Join(names, " and "), map[bool]string{true: "are", false: "is"}[len(names) > 1]),
	})
}
