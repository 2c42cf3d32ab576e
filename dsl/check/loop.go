package check

import (
	"fmt"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/steps"
	"procaas/dsl/tree"
)

// This file checks repeated stages.

// checkLoopFields reports fields of a stage that need for-each, and what a repeated stage cannot do.
func checkLoopFields(w *merge.Whole, p *steps.Pipeline, s *tree.Stage, r *diag.Reporter) {
	if s.ForEach == nil {
		for _, name := range []string{"shared-state", "state-schemas", "result"} {
			if at := s.PlaceOf(name, diag.Span{}); at != (diag.Span{}) {
				hint := map[string]string{
					"shared-state":  "declare the names in shared-state of the pipeline, or add for-each: {items: …}",
					"state-schemas": "write it into the pipeline, or add for-each: {items: …}",
					"result":        "write it into the handler whose response it reads, or add for-each: {items: …}",
				}[name]
				r.Errorf(at.Head(), rules.Loop, hint, "stage %q is not repeated; field %q is about the elements of for-each", s.ID,
					name)
			}
		}
		return
	}
	at := s.PlaceOf("for-each", s.Span)
	if len(s.Handlers) == 0 && !w.Blamed(s.Span) {
		r.Errorf(s.PlaceOf("id", s.Span), rules.Loop, "add handlers: […]", "stage %q has no handlers that could be repeated", s.ID)
	}
	checkElementNames(p, s, r)
	for _, h := range s.Handlers {
		checkInLoop(s, h, r)
	}
	for _, other := range p.Steps {
		if other.ID == s.ID && !other.Loops() {
			r.Report(diag.Diagnostic{
				Span: other.IDPlace(), Code: rules.Loop, Hint: "rename one of them",
				Message: fmt.Sprintf("sources.%s would mean this handler and the repeated stage %q", s.ID, s.ID),
				Related: []diag.Related{{Span: s.PlaceOf("id", s.Span), Message: "the stage"}},
			})
		}
	}
	f := s.ForEach
	for _, h := range s.Handlers {
		if f.MaxParallel > 1 && len(h.Touches) > 0 {
			r.Report(diag.Diagnostic{
				Span: f.PlaceOf("max-parallel", at), Severity: diag.Warning, Code: rules.ForEach,
				Message: fmt.Sprintf("the elements are worked on one after the other, since handler %q touches %s", h.ID, h.Touches[0]),
				Hint:    "drop touches: when calls for different elements are independent, or drop this",
				Related: []diag.Related{{Span: h.PlaceOf("touches", h.Span), Message: "what it touches"}},
			})
			break // one of them makes the whole stage sequential
		}
	}
}

// checkElementNames reports names of an element's state that the run has too.
func checkElementNames(p *steps.Pipeline, s *tree.Stage, r *diag.Reporter) {
	for _, k := range s.SharedState.Keys() {
		if _, taken := p.State[k.Name]; !taken {
			continue
		}
		owner, keys := "the pipeline", p.Declared.SharedState.Keys()
		other, ok := expr.FindKey(keys, k.Name)
		if !ok {
			owner = "the flow"
			other, _ = expr.FindKey(p.FlowState().Keys(), k.Name)
		}
		r.Report(diag.Diagnostic{
			Span: k.Span, Code: rules.StateTwice,
			Message: fmt.Sprintf("shared-state.%s is declared by stage %q for each element, and by %s", k.Name, s.ID, owner),
			Hint:    "rename one of them: inside of the stage both may be read",
			Related: []diag.Related{{Span: other.Span, Message: "declared by " + owner}},
		})
	}
}

// checkInLoop reports what handlers of a repeated stage must not do.
func checkInLoop(s *tree.Stage, h *tree.Handler, r *diag.Reporter) {
	switch {
	case h.ForEach != nil:
		r.Report(diag.Diagnostic{
			Span: h.PlaceOf("for-each", h.ForEach.Span), Code: rules.Loop,
			Message: fmt.Sprintf("handler %q is repeated for each element of stage %q already", h.ID, s.ID),
			Hint:    "call a pipeline that repeats it: call: {pipeline: …, with: {…: !$ item}}; or make one list of all, with a stage before",
			Related: []diag.Related{{Span: s.PlaceOf("for-each", s.Span), Message: "the list of the stage"}},
		})
	case h.Await != nil:
		r.Report(diag.Diagnostic{
			Span: h.PlaceOf("await", h.Await.Span), Code: rules.Loop,
			Message: fmt.Sprintf("handler %q cannot wait for an event: stage %q is repeated, and the event does not say which element it is for",
				h.ID, s.ID),
			Hint:    "wait in a stage before or after this one, or emit an event of another flow, with the element as its key",
			Related: []diag.Related{{Span: s.PlaceOf("for-each", s.Span), Message: "the list of the stage"}},
		})
	}
	if h.Compensate != nil {
		r.Errorf(h.PlaceOf("compensate", h.Compensate.Span), rules.Loop,
			"let the handler itself undo what it must, with on-error of a later one; or undo all elements by one call in a stage behind this one",
			"handler %q of the repeated stage %q cannot have a compensation", h.ID, s.ID)
	}
}
