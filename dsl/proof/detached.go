package proof

import (
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// checkDetached proves that the end of a detached handler affects no other handler: later ones neither read nor
// set what it sets, and do not set what it reads.
func (p *proof) checkDetached(i int) {
	s := p.Steps[i]
	if !s.Handler.Detached {
		return
	}
	at := s.PlaceOf("detached", s.Span)
	refuse := func(hint, why string) {
		p.Errorf(at, rules.NotDetached, hint, "handler %q cannot be detached: %s", s.ID, why)
	}
	t := p.Types[s.Type]
	switch {
	case s.IsCritical():
		refuse("write critical: false when the run can succeed without it", "it is critical")
	case s.Await != nil, s.Call != nil, s.Compensate != nil, s.Handler.Parks():
		refuse("drop detached", "it awaits, calls a pipeline, parks, or can be undone")
	case s.Type == "", t.SetsState, t.Emits:
		refuse("drop detached", "it takes no time")
	case len(s.Touches) > 0:
		refuse("drop touches or detached", "what it touches would lose its order")
	case s.Inside():
		refuse("drop detached", "its stage is repeated, and has no next stage to wait for it")
	default:
		p.checkUnread(i, at)
	}
}

// checkUnread reports what handler i shares with later handlers.
func (p *proof) checkUnread(i int, at diag.Span) {
	s := p.Steps[i]
	sets := []datum.Path{{"sources", s.ID}}
	for _, a := range p.Assignments(i) {
		sets = append(sets, datum.Path{expr.StateRoot, a.Key.Name})
	}
	told := false
	report := func(by string, where diag.Span, path datum.Path, what string) {
		if told {
			return
		}
		told = true
		p.Report(diag.Diagnostic{
			Span: at, Code: rules.NotDetached, Hint: "drop detached, so that the run waits for " + s.ID,
			Message: "handler \"" + s.ID + "\" cannot be detached: " + by + " " + what + " " + path.String(),
			Related: []diag.Related{{Span: where, Message: by + " " + what + " it here"}},
		})
	}
	readBy := func(by string, reads []datum.Read) {
		for _, r := range reads {
			if slices.ContainsFunc(sets, r.Path.Overlaps) {
				report(by, r.Span, r.Path, "reads")
			}
		}
	}
	var stage *tree.Stage
	for j := i + 1; j < len(p.Steps); j++ {
		next := p.Steps[j]
		if tree.Apart(s.Handler, next.Handler) && next.Stage == s.Stage {
			continue
		}
		by := "\"" + next.ID + "\""
		if next.Stage != s.Stage && next.Stage != stage {
			stage = next.Stage
			readBy("stage \""+stage.ID+"\"", stage.ConditionReads())
		}
		readBy(by, next.Reads())
		for _, a := range p.Assignments(j) {
			if p.LocalTo(a.Key.Name, j) != nil {
				continue
			}
			path := datum.Path{expr.StateRoot, a.Key.Name}
			if slices.ContainsFunc(sets, path.Overlaps) || slices.ContainsFunc(s.Reads(), func(r datum.Read) bool { return r.Path.Overlaps(path) }) {
				report(by, a.Key.Span, path, "sets")
			}
		}
	}
	readBy("an output", p.Declared.Outputs.Reads())
	for _, earlier := range p.Steps[:i] {
		readBy("the compensation of \""+earlier.ID+"\"", earlier.CompensateReads())
	}
}
