package dsl

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"procaas/dsl/contracts"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
)

// This file checks stages that are repeated for each element of a list.

// checkLoopFields reports fields of a stage that have a meaning only beside for-each,
// and what a stage that is repeated cannot do.
func (c *pipelineCheck) checkLoopFields(s *tree.Stage) {
	if s.ForEach == nil {
		for _, name := range []string{"shared-state", "state-schemas", "result"} {
			if at := s.PlaceOf(name, diag.Span{}); at != (diag.Span{}) {
				hint := map[string]string{
					"shared-state":  "declare the names in shared-state of the pipeline, or add for-each: {items: …}",
					"state-schemas": "write it into the pipeline, or add for-each: {items: …}",
					"result":        "write it into the handler whose response it reads, or add for-each: {items: …}",
				}[name]
				c.Errorf(at.Head(), rules.Loop, hint, "stage %q is not repeated; field %q is about the elements of for-each", s.ID,
					name)
			}
		}
		return
	}
	at := s.PlaceOf("for-each", s.Span)
	if len(s.Handlers) == 0 && !c.Blamed(s.Span) {
		c.Errorf(s.PlaceOf("id", s.Span), rules.Loop, "add handlers: […]", "stage %q has no handlers that could be repeated", s.ID)
	}
	c.checkElementNames(s)
	for _, h := range s.Handlers {
		c.checkInLoop(s, h)
	}
	for _, other := range c.steps {
		if other.ID == s.ID && !other.Loops() {
			c.Report(diag.Diagnostic{
				Span: other.IDPlace(), Code: rules.Loop, Hint: "rename one of them",
				Message: fmt.Sprintf("sources.%s would mean this handler and the repeated stage %q", s.ID, s.ID),
				Related: []diag.Related{{Span: s.PlaceOf("id", s.Span), Message: "the stage"}},
			})
		}
	}
	f := s.ForEach
	for _, h := range s.Handlers {
		if f.MaxParallel > 1 && len(h.Touches) > 0 {
			c.Report(diag.Diagnostic{
				Span: f.PlaceOf("max-parallel", at), Severity: diag.Warning, Code: rules.ForEach,
				Message: fmt.Sprintf("the elements are worked on one after the other, since handler %q touches %s", h.ID, h.Touches[0]),
				Hint:    "drop touches: when calls for different elements are independent, or drop this",
				Related: []diag.Related{{Span: h.PlaceOf("touches", h.Span), Message: "what it touches"}},
			})
			break // one of them makes the whole stage go one by one
		}
	}
}

// checkElementNames reports names of an element's state that the run has, too.
func (c *pipelineCheck) checkElementNames(s *tree.Stage) {
	for _, k := range s.SharedState.Keys() {
		if _, taken := c.state[k.Name]; !taken {
			continue
		}
		owner, keys := "the pipeline", c.pipeline.SharedState.Keys()
		other, ok := expr.FindKey(keys, k.Name)
		if !ok {
			owner = "the flow"
			other, _ = expr.FindKey(c.flowState().Keys(), k.Name)
		}
		c.Report(diag.Diagnostic{
			Span: k.Span, Code: rules.StateTwice,
			Message: fmt.Sprintf("shared-state.%s is declared by stage %q for each element, and by %s", k.Name, s.ID, owner),
			Hint:    "rename one of them: inside of the stage both may be read",
			Related: []diag.Related{{Span: other.Span, Message: "declared by " + owner}},
		})
	}
}

// checkInLoop reports what a handler of a repeated stage cannot be.
func (c *pipelineCheck) checkInLoop(s *tree.Stage, h *tree.Handler) {
	switch {
	case h.ForEach != nil:
		c.Report(diag.Diagnostic{
			Span: h.PlaceOf("for-each", h.ForEach.Span), Code: rules.Loop,
			Message: fmt.Sprintf("handler %q is repeated for each element of stage %q already", h.ID, s.ID),
			Hint:    "call a pipeline that repeats it: call: {pipeline: …, with: {…: !$ item}}; or make one list of all, with a stage before",
			Related: []diag.Related{{Span: s.PlaceOf("for-each", s.Span), Message: "the list of the stage"}},
		})
	case h.Await != nil:
		c.Report(diag.Diagnostic{
			Span: h.PlaceOf("await", h.Await.Span), Code: rules.Loop,
			Message: fmt.Sprintf("handler %q cannot wait for an event: stage %q is repeated, and nobody could tell which element the event is for",
				h.ID, s.ID),
			Hint:    "wait in a stage of its own before or behind this one, or emit an event of another flow, whose key is the element, and wait there",
			Related: []diag.Related{{Span: s.PlaceOf("for-each", s.Span), Message: "the list of the stage"}},
		})
	}
	if h.Compensate != nil {
		c.Errorf(h.PlaceOf("compensate", h.Compensate.Span), rules.Loop,
			"let the handler itself undo what it must, with on-error of a later one; or undo all elements by one call in a stage behind this one",
			"handler %q of the repeated stage %q cannot have a compensation", h.ID, s.ID)
	}
}

// stepsOf lists the handlers of a stage in the order in which a run gets past them: a
// stage that is repeated ends with the handler that it is from outside.
func stepsOf(s *tree.Stage) []step {
	out := make([]step, 0, len(s.Handlers)+1) // one more for the stage itself
	for _, h := range s.Handlers {
		out = append(out, step{Handler: h, stage: s})
	}
	if s.Loop() != nil {
		out = append(out, step{Handler: s.Loop(), stage: s})
	}
	return out
}

// inside tells whether a step is of one element of a repeated stage; the step that is the
// stage as seen from outside is not.
func (s step) inside() bool { return s.stage.Loop() != nil && !s.Loops() }

// hides tells whether a step cannot see another one that comes earlier, which is of one
// element of a stage that it is not a part of itself.
func (s step) hides(earlier step) bool {
	return earlier.inside() && (earlier.stage != s.stage || !s.inside())
}

// whyHidden says why the outcome of a handler of a repeated stage cannot be read.
func (s step) whyHidden() string {
	return fmt.Sprintf("runs once for each element of stage %q", s.stage.ID)
}

// hide keeps a scope from reading the outcome of a handler of a repeated stage.
func hide(sc *expr.Scope, s step) {
	sc.Late[s.ID] = s.whyHidden()
	if sc.Hints == nil {
		sc.Hints = make(map[string]string)
	}
	sc.Hints[s.ID] = fmt.Sprintf("let it set a name of shared-state of stage %q, and read that from sources.%s.response, the list of what "+
		"all elements have left", s.stage.ID, s.stage.ID)
}

// An element is what is known of one element while the check is inside of a stage that
// is repeated.
type element struct {
	stage *tree.Stage
	item  *typing.Outline
	outer map[string]any // the shared state of the run
}

// enterLoop begins to check a repeated stage, whose first handler is the at-th: its
// names are those of one element. What it gives back leaves it again.
func (c *pipelineCheck) enterLoop(s *tree.Stage, at int) (leave func()) {
	compileItems(s.ForEach, c.scopeBefore(s, at), c.Reporter)
	// What handlers do to the view inside is about one element: it is undone on leaving.
	around, view, state := c.element, c.view.clone(), c.state
	c.element = &element{stage: s, outer: state}
	if o := s.ForEach.Items.Outline(); o != nil {
		c.element.item = o.Elem
	}
	own := make(map[string]any)
	firstValues(s.SharedState, own)
	c.state = maps.Clone(state)
	maps.Copy(c.state, own)
	c.view = c.view.clone()
	for name, first := range own {
		switch contract := s.Once().Contracts[name]; {
		case contract != nil && first == nil:
			c.known[name] = contract.Outline().Absent("")
		case contract != nil:
			c.known[name] = contract.Outline()
		case first == nil:
			c.known[name] = &typing.Outline{Shape: datum.NullShape}
		default:
			c.known[name] = firstOutline(first)
		}
	}
	return func() {
		s.Loop().Expected = c.leftBy(s, at) // while the names are still those of the element
		c.element, c.view, c.state = around, view, state
	}
}

// leftBy is what is known of the state that an element leaves behind.
func (c *pipelineCheck) leftBy(s *tree.Stage, at int) *typing.Outline {
	out := &typing.Outline{Shape: datum.MapShape, Closed: true, Inferred: true, Members: make(map[string]*typing.Member)}
	first := make(map[string]any)
	firstValues(s.SharedState, first)
	for _, k := range s.SharedState.Keys() {
		o := c.known[k.Name]
		if why := c.mayLeaveNull(s, k.Name, at); why != "" && first[k.Name] == nil {
			if o == nil || o.Shape == datum.NullShape {
				o = &typing.Outline{Shape: datum.AnyShape &^ datum.SecretShape, Inferred: true}
			}
			copied := *o
			copied.Shape |= datum.NullShape
			copied.Why = why
			o = &copied
		}
		out.Members[k.Name] = &typing.Member{Outline: o, Required: true}
	}
	return out
}

// mayLeaveNull says why an element may never set a name that is null at first, when only
// handlers that may be off do; empty when one is sure to set it, or nobody does.
func (c *pipelineCheck) mayLeaveNull(s *tree.Stage, name string, at int) string {
	var off []string
	for i := range s.Handlers {
		for _, a := range c.assignments(at + i) {
			if a.key.Name != name {
				continue
			}
			if h := s.Handlers[i]; h.IsCritical() || a.standIn != nil && !a.standIn.IsNull() {
				return "" // or the reason is known already
			}
			if id := fmt.Sprintf("%q", s.Handlers[i].ID); !slices.Contains(off, id) {
				off = append(off, id)
			}
		}
	}
	if len(off) == 0 {
		return ""
	}
	if len(off) == 1 {
		return fmt.Sprintf("only %s of stage %q sets it, which is not critical, so it may be off", off[0], s.ID)
	}
	return fmt.Sprintf("only %s of stage %q set it, which are not critical, so they may be off", strings.Join(off, " and "), s.ID)
}

// contract is what a name of the shared state must be where the check has got to; nil
// for anything.
func (c *pipelineCheck) contract(name string) *contracts.Contract {
	if c.element != nil {
		if c.element.stage.SharedState.Get(name) != nil {
			return c.element.stage.Once().Contracts[name]
		}
	}
	return c.pipeline.Contracts[name]
}

// undeclaredInLoop reports a name that a handler of a repeated stage sets and that is
// not of its element.
func (c *pipelineCheck) undeclaredInLoop(k expr.Key, what string) {
	s := c.element.stage
	if s.SharedState.Get(k.Name) != nil {
		return
	}
	if _, ok := c.element.outer[k.Name]; ok {
		c.Errorf(k.Span, rules.Loop,
			fmt.Sprintf("declare a name of one element in the stage: shared-state: {…: null}, and set %s in result: of the stage, from "+
				"sources.%s.response", k.Name, s.ID),
			"%s sets shared-state.%s of the run, but stage %q is repeated for each element, and they would overwrite each other", what, k.Name,
			s.ID)
		return
	}
	known := s.SharedState.KeyNames
	hint := fmt.Sprintf("declare it in stage %q: shared-state: {%s: null}", s.ID, k.Name)
	c.Errorf(k.Span, rules.Undeclared, c.SuggestOr(k.Name, known, hint), "%s sets shared-state.%s, which is not declared", what, k.Name)
}

// localTo gives the repeated stage whose elements have a name of their own, seen from a
// step; nil when the name is of the run.
func (c *pipelineCheck) localTo(name string, at int) *tree.Stage {
	if at >= len(c.steps) || !c.steps[at].inside() {
		return nil
	}
	if c.steps[at].stage.SharedState.Get(name) != nil {
		return c.steps[at].stage
	}
	return nil
}

// firstValue gives what a name holds at first, seen from a step.
func (c *pipelineCheck) firstValue(name string, at int) (first any, declared bool) {
	if s := c.localTo(name, at); s != nil {
		return s.SharedState.Get(name).Literal()
	}
	first, declared = c.state[name]
	return first, declared
}
