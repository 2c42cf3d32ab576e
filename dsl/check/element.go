package check

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
	"procaas/dsl/steps"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
)

// whyHidden returns why the outcome of a handler in a repeated stage cannot be read.
func whyHidden(s steps.Step) string {
	return fmt.Sprintf("runs once for each element of stage %q", s.Stage.ID)
}

// hide removes the outcome of a handler in a repeated stage from a scope.
func hide(sc *expr.Scope, s steps.Step) {
	if sc.Hints == nil {
		sc.Hints = make(map[string]string)
	}
	sc.Hints[s.ID] = fmt.Sprintf("let it set a name of shared-state of stage %q, and read that from sources.%s.response, the list of what "+
		"all elements have left", s.Stage.ID, s.Stage.ID)
}

// An element is what is known of one element while the walk is inside a repeated stage.
type element struct {
	stage *tree.Stage
	item  *typing.Outline
	outer map[string]any // the run's shared state
}

// enterLoop starts the check of a repeated stage. at is the index of its first handler. Inside, names are those
// of one element. The returned function leaves the stage.
func (c *walk) enterLoop(s *tree.Stage, at int) (leave func()) {
	compileItems(s.ForEach, c.scopeBefore(s, at), c.Reporter)
	// Inside, handlers change the view of one element. Leaving restores the view of the run.
	around, view, state := c.element, c.view.clone(), c.state
	c.element = &element{stage: s, outer: state}
	if o := s.ForEach.Items.Outline(); o != nil {
		c.element.item = o.Elem
	}
	own := make(map[string]any)
	steps.FirstValues(s.SharedState, own)
	c.state = maps.Clone(state)
	maps.Copy(c.state, own)
	c.view = c.view.clone()
	for name, first := range own {
		c.known[name] = firstOutline(first, s.Once().Contracts[name])
	}
	return func() {
		s.Loop().Expected = c.leftBy(s, at) // while the names are still those of the element
		c.element, c.view, c.state = around, view, state
	}
}

// leftBy returns the type of the state that an element leaves.
func (c *walk) leftBy(s *tree.Stage, at int) *typing.Outline {
	out := &typing.Outline{Shape: datum.MapShape, Closed: true, Inferred: true, Members: make(map[string]*typing.Member)}
	first := make(map[string]any)
	steps.FirstValues(s.SharedState, first)
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

// mayLeaveNull returns why an element may never set a name that is null at first, because only optional
// handlers set it. It returns "" if a critical handler sets it, or none does.
func (c *walk) mayLeaveNull(s *tree.Stage, name string, at int) string {
	var off []string
	for i := range s.Handlers {
		for _, a := range c.Assignments(at + i) {
			if a.Key.Name != name {
				continue
			}
			if h := s.Handlers[i]; h.IsCritical() || a.StandIn != nil && !a.StandIn.IsNull() {
				return "" // or the reason is already known
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

// contract returns the contract of a name of the shared state at this place, or nil.
func (c *walk) contract(name string) *contracts.Contract {
	if c.element != nil {
		if c.element.stage.SharedState.Get(name) != nil {
			return c.element.stage.Once().Contracts[name]
		}
	}
	return c.Declared.Contracts[name]
}

// undeclaredInLoop reports a name that a handler of a repeated stage sets, but that its element does not
// declare.
func (c *walk) undeclaredInLoop(k expr.Key, what string) {
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

// declared reports names that are set but not declared. It suggests the nearest declared one.
func (c *walk) declared(h *tree.Handler, keys []expr.Key, what string) {
	for _, k := range keys {
		if c.element != nil {
			c.undeclaredInLoop(k, what)
			continue
		}
		if _, ok := c.state[k.Name]; ok {
			continue
		}
		hint := fmt.Sprintf("declare it in the pipeline: shared-state: {%s: null}", k.Name)
		if h.Into != "" {
			hint = h.OwnName(k.Name)
		}
		c.Errorf(k.Span, rules.Undeclared, c.SuggestOr(k.Name, diag.NamesIn(c.state), hint), "%s sets shared-state.%s, which is not declared",
			what, k.Name)
	}
}
