package dsl

import (
	"fmt"
	"maps"
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
)

// compileHandler compiles the expressions of the i-th handler in their scopes.
func (c *pipelineCheck) compileHandler(i int) {
	if h := c.steps[i].Handler; h.Await != nil {
		h.Expected = awaitedOutline(c.payloadOf(h.Await.Event))
	} else if h.Call != nil {
		if p := c.Bundle.Index.Pipelines[h.Call.Pipeline]; p != nil {
			h.Expected = p.Response
		}
	}
	// Its result may read its own response, which the rest of it may not.
	sc := c.scopeOf(i)
	c.surely(c.steps[i], sc)
	own := *sc
	own.Sources = append(slices.Clip(sc.Sources), c.steps[i].ID)
	if o := responseOutline(c.steps[i].Handler); o != nil {
		own.Responses = maps.Clone(sc.Responses)
		own.Responses[c.steps[i].ID] = o
	}
	c.compileValues(c.steps[i].Handler, sc, &own, c.Reporter)
	c.checkAmbiguous(i)
}

// scopeOf says what the i-th handler may read: the outcomes of all handlers
// before it, whether of an earlier stage or of its own.
func (c *pipelineCheck) scopeOf(i int) *expr.Scope {
	sc := c.newScope()
	for j, s := range c.steps {
		switch {
		case j < i && c.steps[i].hides(s):
			hide(sc, s)
		case j > i && s.stage == c.steps[i].stage && s.Loops():
			sc.Late[s.ID] = "is the stage itself, which gives its response when all elements are done"
		case j < i && s.stage == c.steps[i].stage && tree.Apart(s.Handler, c.steps[i].Handler):
			sc.Late[s.ID] = "is in another branch of the stage, and only one of them runs"
		case j < i:
			sc.Sources = append(sc.Sources, s.ID)
		case j == i:
			sc.Late[s.ID] = "is still to run, and only its own result may read it"
		case s.stage == c.steps[i].stage:
			sc.Late[s.ID] = "comes later in the same stage"
		default:
			sc.Late[s.ID] = fmt.Sprintf("runs in a later stage, %q", s.stage.ID)
		}
	}
	for _, id := range sc.Sources {
		delete(sc.Late, id)
	}
	return sc
}

// newScope makes a scope with what is known where the check has got to.
func (c *pipelineCheck) newScope() *expr.Scope {
	roots, inputs := expr.AllRoots, (*typing.Outline)(nil)
	if c.pipeline.IsCalled() {
		roots, inputs = calledRoots, c.pipeline.InputOutline()
	}
	sc := &expr.Scope{
		Parsed: c.Parsed, Roots: roots, Inputs: inputs, State: c.state, Configs: c.Configs, Late: make(map[string]string),
		Payload: c.payload, Known: c.known, Responses: c.responses, ConfigOutlines: c.configKnown, Facts: c.facts,
	}
	if c.element != nil {
		sc.Roots, sc.Item = append(slices.Clone(roots), "item", expr.IndexRoot), c.element.item
	}
	return sc
}

// compileValues compiles all expressions of a handler; its result may read its
// own outcome too, and done that of the verification.
func (c *checker) compileValues(h *tree.Handler, sc, own *expr.Scope, r *diag.Reporter) {
	spec.Compile(h.Enabled, &spec.Field{ExprKind: datum.BoolKind}, sc, r)
	// What the condition has tested is so in all that follows.
	facts := slices.Concat(sc.Facts, h.Enabled.Expr().Holds())
	sc.Facts, own.Facts = facts, facts
	if h.Rollout != nil {
		spec.Compile(h.Rollout.By, nil, sc, r)
	}
	if h.ForEach != nil && !h.Loops() {
		compileItems(h.ForEach, sc, r)
	}
	c.compileAwait(h, sc, r)
	c.compileBody(h.Type, h.Body, itemScope(h, sc), r)
	spec.Compile(h.With(), nil, itemScope(h, sc), r)
	spec.Compile(h.Result, nil, own, r)
	if u := h.Compensate; u != nil {
		c.compileBody(u.Type, u.Body, own, r)
	}
	if h.Use != nil {
		spec.Compile(h.Use.With, nil, itemScope(h, own), r)
	}
	if v := h.Verification(); v != nil {
		c.compileBody(v.Type, v.Body, itemScope(h, sc), r)
		spec.Compile(v.Done, &spec.Field{ExprKind: datum.BoolKind}, itemScope(h, own), r)
	}
	if h.Fallback != nil {
		spec.Compile(h.Fallback.Result, nil, sc, r)
	}
	compileOnError(h, sc, r)
}

// compileBody compiles the expressions of a body of some type.
func (c *checker) compileBody(typ string, body *expr.Value, sc *expr.Scope, r *diag.Reporter) {
	if t, ok := c.Types[typ]; ok {
		spec.CompileFields(body, t.Spec, sc, r)
		return
	}
	spec.Compile(body, nil, sc, r)
}

// checkAmbiguous reports reads of a source whose id two earlier handlers have. Two of one id
// are no error by themselves: they are in different stages, and nobody may read either.
func (c *pipelineCheck) checkAmbiguous(i int) {
	first := make(map[string]*tree.Handler)
	twice := make(map[string][2]*tree.Handler)
	for _, s := range c.steps[:i] {
		if c.steps[i].hides(s) {
			continue
		}
		if f := first[s.ID]; f != nil {
			twice[s.ID] = [2]*tree.Handler{f, s.Handler}
			continue
		}
		first[s.ID] = s.Handler
	}
	if len(twice) == 0 {
		return
	}
	h := c.steps[i].Handler
	for _, read := range h.Reads() {
		pair, ok := twice[sourceOf(read.Path)]
		if !ok {
			continue
		}
		c.Report(diag.Diagnostic{
			Span: read.Span, Code: rules.Ambiguous,
			Message: fmt.Sprintf("sources.%s may mean two handlers", pair[0].ID),
			Hint:    "rename one of them",
			Related: []diag.Related{
				{Span: pair[0].PlaceOf("id", pair[0].Span), Message: "this is " + pair[0].Path},
				{Span: pair[1].PlaceOf("id", pair[1].Span), Message: "this is " + pair[1].Path},
			},
		})
	}
}

// sourceOf gives the handler that a path reads; empty when it reads none.
func sourceOf(p datum.Path) string {
	if len(p) < 2 || p[0] != "sources" || p[1] == datum.Wildcard {
		return ""
	}
	return p[1]
}
