package dsl

import (
	"fmt"
	"maps"
	"slices"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// allRoots are the names that the expressions of a handler may begin with.
var allRoots = []string{"event", "shared-state", "sources", "configs", "flow", "run"}

// compileHandler compiles the expressions of the i-th handler in their scopes.
func (c *pipelineCheck) compileHandler(i int) {
	if h := c.steps[i].Handler; h.Await != nil {
		h.expected = h.awaitedOutline(c.payloadOf(h.Await.Event))
	} else if h.Call != nil {
		if p := c.bundle.pipelines[h.Call.Pipeline]; p != nil {
			h.expected = p.response
		}
	}
	// Its result may read its own response, which the rest of it may not.
	sc := c.scopeOf(i)
	c.surely(c.steps[i], sc)
	own := *sc
	own.sources = append(sc.sources[:len(sc.sources):len(sc.sources)], c.steps[i].ID)
	if o := c.steps[i].responseOutline(); o != nil {
		own.responses = maps.Clone(sc.responses)
		own.responses[c.steps[i].ID] = o
	}
	c.compileValues(c.steps[i].Handler, sc, &own, c.Reporter)
	c.checkAmbiguous(i)
}

// scopeOf says what the i-th handler may read: the outcomes of all handlers
// before it, whether of an earlier stage or of its own.
func (c *pipelineCheck) scopeOf(i int) *scope {
	sc := c.newScope()
	for j, s := range c.steps {
		switch {
		case j < i && c.steps[i].hides(s):
			sc.hide(s)
		case j > i && s.stage == c.steps[i].stage && s.Loops():
			sc.late[s.ID] = "is the stage itself, which gives its response when all elements are done"
		case j < i && s.stage == c.steps[i].stage && apart(s.Handler, c.steps[i].Handler):
			sc.late[s.ID] = "is in another branch of the stage, and only one of them runs"
		case j < i:
			sc.sources = append(sc.sources, s.ID)
		case j == i:
			sc.late[s.ID] = "is still to run, and only its own result may read it"
		case s.stage == c.steps[i].stage:
			sc.late[s.ID] = "comes later in the same stage"
		default:
			sc.late[s.ID] = fmt.Sprintf("runs in a later stage, %q", s.stage.ID)
		}
	}
	for _, id := range sc.sources {
		delete(sc.late, id)
	}
	return sc
}

// newScope makes a scope with what is known where the check has got to.
func (c *pipelineCheck) newScope() *scope {
	roots, inputs := allRoots, (*outline)(nil)
	if c.pipeline.IsCalled() {
		roots, inputs = calledRoots, c.pipeline.inputOutline()
	}
	sc := &scope{
		parsed: c.parsed, roots: roots, inputs: inputs, state: c.state, configs: c.configs, late: make(map[string]string),
		payload: c.payload, known: c.known, responses: c.responses, configOutlines: c.configKnown, facts: c.facts,
	}
	if c.element != nil {
		sc.roots, sc.item = append(slices.Clone(roots), "item", indexRoot), c.element.item
	}
	return sc
}

// compileValues compiles all expressions of a handler; its result may read its
// own outcome too, and done that of the verification.
func (c *checker) compileValues(h *Handler, sc, own *scope, r *diag.Reporter) {
	compileValue(h.Enabled, &Field{ExprKind: BoolKind}, sc, r)
	// What the condition has tested is so in all that follows.
	facts := slices.Concat(sc.facts, h.Enabled.Expr().holds())
	sc.facts, own.facts = facts, facts
	if h.Rollout != nil {
		compileValue(h.Rollout.By, nil, sc, r)
	}
	if h.ForEach != nil && !h.Loops() {
		compileItems(h.ForEach, sc, r)
	}
	c.compileAwait(h, sc, r)
	c.compileBody(h.Type, h.Body, h.itemScope(sc), r)
	compileValue(h.with(), nil, h.itemScope(sc), r)
	compileValue(h.Result, nil, own, r)
	if u := h.Compensate; u != nil {
		c.compileBody(u.Type, u.Body, own, r)
	}
	if h.Use != nil {
		compileValue(h.Use.With, nil, h.itemScope(own), r)
	}
	if v := h.Verification(); v != nil {
		c.compileBody(v.Type, v.Body, h.itemScope(sc), r)
		compileValue(v.Done, &Field{ExprKind: BoolKind}, h.itemScope(own), r)
	}
	if h.Fallback != nil {
		compileValue(h.Fallback.Result, nil, sc, r)
	}
	compileOnError(h, sc, r)
}

// compileBody compiles the expressions of a body of some type.
func (c *checker) compileBody(typ string, body *Value, sc *scope, r *diag.Reporter) {
	if t, ok := c.types[typ]; ok {
		compileFields(body, t.Spec, sc, r)
		return
	}
	compileValue(body, nil, sc, r)
}

// compileFields compiles the expressions of a mapping that a Spec describes. It
// passes over unknown fields, which are reported anyway.
func compileFields(v *Value, s *Spec, sc *scope, r *diag.Reporter) {
	if v == nil || v.kind != valueMap || s == nil {
		compileValue(v, nil, sc, r)
		return
	}
	for i, k := range v.keys {
		if f := s.Field(k.Name); f != nil {
			compileValue(v.items[i], f, sc, r)
		} else if inline := s.inline(); inline != nil {
			compileValue(v.items[i], inline.Elem, sc, r)
		}
	}
}

// compileValue compiles the expressions of a value. An expression that is the
// whole value must give what the field wants; a nil field wants nothing
// particular.
func compileValue(v *Value, f *Field, sc *scope, r *diag.Reporter) {
	if v == nil {
		return
	}
	f = f.of(v)
	switch v.kind {
	case valueLiteral:
		// Where text makes no sense, the literal itself is an error already.
		if want := wantOf(f); want == AnyKind || want == StringKind {
			sc.warnForgotten(v, r)
		}
	case valueExpr:
		v.expr.compile(sc, wantOf(f), r)
	case valueList:
		for _, item := range v.items {
			compileValue(item, elemOf(f), sc, r)
		}
	case valueMap:
		if f != nil && f.Kind == ObjectKind {
			compileFields(v, f.Spec, sc, r)
			return
		}
		for _, item := range v.items {
			compileValue(item, elemOf(f), sc, r)
		}
	}
}

// wantOf is the kind that an expression in the place of a field must give.
func wantOf(f *Field) Kind {
	if f == nil {
		return AnyKind
	}
	return f.want()
}

// elemOf is the field of the elements of a list or the members of a mapping; nil when nothing
// particular is wanted of them.
func elemOf(f *Field) *Field {
	if f == nil {
		return nil
	}
	return f.Elem
}

// checkAmbiguous reports reads of a source whose id two earlier handlers have. Two of one id
// are no error by themselves: they are in different stages, and nobody may read either.
func (c *pipelineCheck) checkAmbiguous(i int) {
	first := make(map[string]*Handler)
	twice := make(map[string][2]*Handler)
	for _, s := range c.steps[:i] {
		if c.steps[i].hides(s) {
			continue
		}
		if f := first[s.ID]; f != nil {
			twice[s.ID] = [2]*Handler{f, s.Handler}
			continue
		}
		first[s.ID] = s.Handler
	}
	if len(twice) == 0 {
		return
	}
	h := c.steps[i].Handler
	for _, read := range handlerReads(h) {
		pair, ok := twice[sourceOf(read.Path)]
		if !ok {
			continue
		}
		c.Report(diag.Diagnostic{
			Span: read.Span, Code: rules.Ambiguous,
			Message: fmt.Sprintf("sources.%s may mean two handlers", pair[0].ID),
			Hint:    "rename one of them",
			Related: []diag.Related{
				{Span: pair[0].places.of("id", pair[0].Span), Message: "this is " + pair[0].Path},
				{Span: pair[1].places.of("id", pair[1].Span), Message: "this is " + pair[1].Path},
			},
		})
	}
}

// sourceOf gives the handler that a path reads; empty when it reads none.
func sourceOf(p Path) string {
	if len(p) < 2 || p[0] != "sources" || p[1] == Wildcard {
		return ""
	}
	return p[1]
}

// verifyReads lists what the verification of a handler reads.
func verifyReads(h *Handler) []Read {
	v := h.Verification()
	if v == nil {
		return nil
	}
	return slices.Concat(v.Body.Reads(), v.Done.Reads())
}

// handlerReads lists all that a handler reads, its verification, its fallback and
// the rules of its on-error included.
func handlerReads(h *Handler) []Read {
	out := slices.Concat(h.ConditionReads(), h.ItemReads(), h.AwaitReads(), h.BodyReads(), h.Result.Reads(), h.VerifyReads(), h.ErrorReads(), h.CompensateReads())
	if h.Fallback != nil {
		out = append(out, h.Fallback.Result.Reads()...)
	}
	return out
}
