package advice

import (
	"fmt"
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/steps"
	"procaas/dsl/tree"
	"procaas/dsl/wiring"
)

// adviseRouting reports handlers that only compute conditions for a single stage.
func (c *advisor) adviseRouting() {
	for i, s := range c.Steps {
		if !c.Types.SetsState(s.Handler) || s.Branch != nil || len(s.Body.Keys()) == 0 {
			continue
		}
		var asking *tree.Stage
		routes := true
		for k, key := range s.Body.Keys() {
			e := s.Body.Elems[k].Expr()
			if e == nil || e.Result.Types() != datum.BoolShape || c.Keeps(key.Name) {
				routes = false
				break
			}
			stage, ok := c.onlyAskedBy(key.Name, i)
			routes = ok && (asking == nil || asking == stage)
			if !routes {
				break
			}
			asking = stage
		}
		if routes && asking != nil {
			c.Advisef(s.IDPlace(), rules.Routing, fmt.Sprintf("write the condition into enabled of stage %q or of its handlers, and drop %q",
				asking.ID, s.ID),
				"%q only decides which handlers run", s.ID)
		}
	}
}

// onlyAskedBy returns the stage whose conditions are the only readers of a name that handler i sets.
func (c *advisor) onlyAskedBy(name string, i int) (asking *tree.Stage, ok bool) {
	path := datum.Path{expr.StateRoot, name}
	overlaps := func(r datum.Read) bool { return r.Path.Overlaps(path) }
	for j, s := range c.Steps {
		conditions := slices.ContainsFunc(s.DecidingReads(), overlaps)
		all := s.Handler.Reads()
		if n := len(s.ConditionReads()); slices.ContainsFunc(all[n:], overlaps) || j != i && slices.Contains(c.writes(j), name) {
			return nil, false
		}
		if !conditions {
			continue
		}
		if j <= i || asking != nil && asking != s.Stage {
			return nil, false
		}
		asking = s.Stage
	}
	return asking, asking != nil
}

// adviseForwarding reports pipelines that only forward their event.
func (c *advisor) adviseForwarding() {
	if len(c.Steps) != 1 || c.Declared.When != nil {
		return
	}
	h := c.Steps[0].Handler
	sent, ok := c.Types.Emission(h)
	if !ok || sent.Task || !h.Enabled.IsNull() {
		return
	}
	name, fixed := sent.Type.Text()
	if e := sent.Payload.Expr(); !fixed || e == nil || !slices.Equal(e.Tokens(), []string{"event", ".", "payload"}) ||
		len(h.Body.Keys()) > 2 {
		return
	}
	served := c.Bundle.On(name)
	if len(served) == 0 || served[0].FlowID() != c.Declared.FlowID() {
		return // another flow may have another order
	}
	c.Report(diag.Diagnostic{
		Span: c.Declared.PlaceOf("id", c.Declared.Span), Severity: diag.Advice, Code: rules.Routing,
		Message: fmt.Sprintf("pipeline %q only sends its event on as %q", c.Declared.ID, name),
		Hint:    fmt.Sprintf("let pipeline %q serve both: on: [%s, %s]", served[0].ID, name, c.Declared.On[0]),
		Related: wiring.ServedBy(served[0], name),
	})
}

// adviseExpressions reports expressions that contain business rules.
func (c *advisor) adviseExpressions() {
	for _, s := range c.Steps {
		for _, v := range expressionsOf(s.Handler) {
			v.WalkExprs(func(e *expr.Expr) {
				if what := e.Weight.TooMuch(); what != "" {
					c.Advisef(e.Span, rules.HeavyLogic,
						"let a service compute it and read its response; or split it into set handlers with names of their own",
						"this expression has %s: such logic can be neither tested alone nor reused", what)
				}
			})
		}
	}
}

// expressionsOf returns all values of a handler that may contain expressions.
func expressionsOf(h *tree.Handler) []*expr.Value {
	out := []*expr.Value{h.Enabled, h.Body, h.Result}
	if h.Fallback != nil {
		out = append(out, h.Fallback.Result)
	}
	for _, rule := range h.OnError {
		out = append(out, rule.When, rule.Result)
	}
	return out
}

// adviseTransition reports pipelines that only set a state.
func (c *advisor) adviseTransition() {
	if c.Flow == nil || c.Flow.States != nil || len(c.Steps) == 0 {
		return
	}
	for _, s := range c.Steps {
		if !c.Types.SetsState(s.Handler) || s.Result != nil || len(s.Body.Keys()) == 0 {
			return
		}
		for k, key := range s.Body.Keys() {
			if _, isText := s.Body.Elems[k].Text(); !isText || !c.Keeps(key.Name) {
				return
			}
		}
	}
	name := c.Steps[0].Body.Keys()[0].Name
	c.Advisef(c.Declared.PlaceOf("id", c.Declared.Span), rules.HandmadeState,
		fmt.Sprintf("write states: in flow %q, with a transition on: %s, and leave the stages out", c.Flow.ID, c.Declared.On[0]),
		"pipeline %q only notes a state in shared-state.%s", c.Declared.ID, name)
}

// adviseAutomata reports names that imitate a state machine: several pipelines set them to fixed words, and
// conditions compare them with these.
func adviseAutomata(w *merge.Whole, pipelines []*steps.Pipeline, r *diag.Reporter) {
	for _, f := range w.Bundle.Flows {
		if f.States != nil {
			continue
		}
		for _, k := range f.SharedState.Keys() {
			setBy, askedBy := 0, 0
			for _, p := range pipelines {
				if p.Flow != f || !p.Sound {
					continue
				}
				if setsToWord(p, k.Name) {
					setBy++
				}
				if asksForWord(p, k.Name) {
					askedBy++
				}
			}
			if setBy >= 2 && askedBy >= 2 {
				r.Advisef(k.Span, rules.HandmadeState, "declare states: of the flow: the engine then keeps the state, refuses events out of turn, "+
					"and proves that there is a way to the end",
					"shared-state.%s of flow %q is a state by hand: %d pipelines set it, and %d ask for it", k.Name, f.ID, setBy, askedBy)
			}
		}
	}
}

// setsToWord reports whether a pipeline sets a name to a fixed text.
func setsToWord(p *steps.Pipeline, name string) bool {
	return slices.ContainsFunc(p.Sets[name], func(a steps.Assignment) bool {
		_, ok := a.Value.Text()
		return ok
	})
}

// asksForWord reports whether a condition of the pipeline compares a name with a fixed text.
func asksForWord(p *steps.Pipeline, name string) bool {
	key := expr.StateRoot + expr.Between + name
	words := func(facts []expr.Fact) bool {
		return slices.ContainsFunc(facts, func(f expr.Fact) bool {
			return f.Key == key && slices.ContainsFunc(slices.Concat(f.Words, f.Not),
				func(w any) bool { return datum.ShapeOfValue(w) == datum.StringShape })
		})
	}
	for _, s := range p.Steps {
		for _, v := range []*expr.Value{s.Enabled, s.Stage.Enabled} {
			if words(v.Expr().Holds()) {
				return true
			}
		}
		if s.Branch != nil && words(s.Branch.When.Expr().Holds()) {
			return true
		}
	}
	return false
}
