package check

import (
	"fmt"
	"maps"
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/steps"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
)

// calledRoots are the roots of expressions in a called pipeline.
var calledRoots = []string{expr.InputsRoot, "shared-state", "sources", "configs", "flow", "run"}

// compileHandler compiles the expressions of handler i in their scopes.
func (c *walk) compileHandler(i int) {
	if h := c.Steps[i].Handler; h.Await != nil {
		h.Expected = awaitedOutline(c.PayloadOf(h.Await.Event))
	} else if h.Call != nil {
		if p := c.Bundle.Index.Pipelines[h.Call.Pipeline]; p != nil {
			h.Expected = p.Response
		}
	} else if response := c.Types[h.Type].Response; response != nil && h.Body != nil {
		h.Expected = response(h.Body)
	}
	// Only its result may read its own response.
	sc := c.scopeOf(i)
	c.surely(c.Steps[i], sc)
	own := *sc
	own.Sources = append(slices.Clip(sc.Sources), c.Steps[i].ID)
	if o := responseOutline(c.Steps[i].Handler); o != nil {
		own.Responses = maps.Clone(sc.Responses)
		own.Responses[c.Steps[i].ID] = o
	}
	compileValues(c.Whole, c.Steps[i].Handler, sc, &own, c.Reporter)
	c.checkAmbiguous(i)
}

// scopeOf returns what handler i may read: the outcomes of all handlers before it, in earlier stages or in its
// own.
func (c *walk) scopeOf(i int) *expr.Scope {
	sc := c.newScope()
	sc.Final = c.Steps[i].Stage.Final
	sc.Sources = make([]string, 0, i)
	for _, s := range c.Steps[:i] {
		switch {
		case c.Steps[i].Hides(s):
			hide(sc, s)
		case !c.inOtherBranch(s, i):
			sc.Sources = append(sc.Sources, s.ID)
		}
	}
	sc.Late = func() map[string]string { return c.lateFor(i) }
	return sc
}

// inOtherBranch reports whether a step is in another branch of the same stage as step i.
func (c *walk) inOtherBranch(s steps.Step, i int) bool {
	return s.Stage == c.Steps[i].Stage && tree.Apart(s.Handler, c.Steps[i].Handler)
}

// lateFor returns why handler i may not read the outcomes of others.
func (c *walk) lateFor(i int) map[string]string {
	late := make(map[string]string)
	for j, s := range c.Steps {
		switch {
		case j < i && c.Steps[i].Hides(s):
			late[s.ID] = whyHidden(s)
		case j > i && s.Stage == c.Steps[i].Stage && s.Loops():
			late[s.ID] = "is the stage itself, whose response exists when all elements are done"
		case j < i && c.inOtherBranch(s, i):
			late[s.ID] = "is in another branch of the stage, and only one of them runs"
		case j < i: // it may be read
		case j == i:
			late[s.ID] = "is still to run, and only its own result may read it"
		case s.Stage == c.Steps[i].Stage:
			late[s.ID] = "comes later in the same stage"
		default:
			late[s.ID] = fmt.Sprintf("runs in a later stage, %q", s.Stage.ID)
		}
	}
	return late
}

// newScope returns a scope with what is known at this place.
func (c *walk) newScope() *expr.Scope {
	roots, inputs := expr.AllRoots, (*typing.Outline)(nil)
	if c.Declared.IsCalled() {
		roots, inputs = calledRoots, c.Declared.InputOutline()
	}
	sc := &expr.Scope{
		Parsed: c.Parsed, Roots: roots, Inputs: inputs, State: c.state, Configs: c.Configs,
		Payload: c.payload, Known: c.known, Responses: c.responses, ConfigOutlines: c.configKnown, Facts: c.facts,
		Invites: len(c.Declared.Contributions) > 0, KeyOf: c.computesKey(),
	}
	for _, s := range c.Steps {
		if s.Undescribed != nil && s.ForEach == nil {
			if sc.Undescribed == nil {
				sc.Undescribed = make(map[string][]string)
			}
			sc.Undescribed[s.ID] = s.Undescribed
		}
	}
	if c.element != nil {
		sc.Roots, sc.Item = append(slices.Clone(roots), "item", expr.IndexRoot), c.element.item
	}
	return sc
}

// computesKey returns the flow of the pipeline if the flow computes its key, rather than using event.key.
func (c *walk) computesKey() string {
	if c.Flow == nil || c.Flow.Key.IsNull() ||
		slices.ContainsFunc(c.Flow.Key.Reads(), func(r datum.Read) bool { return r.Path.Overlaps(datum.Path{"event", "key"}) }) {
		return ""
	}
	return c.Flow.ID
}

// checkAmbiguous reports reads of a source whose id two earlier handlers have. The same id twice is no error if
// nobody reads it.
func (c *walk) checkAmbiguous(i int) {
	first := make(map[string]*tree.Handler)
	twice := make(map[string][2]*tree.Handler)
	for _, s := range c.Steps[:i] {
		if c.Steps[i].Hides(s) {
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
	h := c.Steps[i].Handler
	for _, read := range h.Reads() {
		pair, ok := twice[steps.SourceOf(read.Path)]
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
