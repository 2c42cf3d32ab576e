package check

import (
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// checkHandler checks handler i of the pipeline.
func (c *walk) checkHandler(i int) {
	h := c.Steps[i].Handler
	c.sets(h, h.Result, "result")
	if c.Types.SetsState(h) {
		c.declared(h, h.Body.Keys(), h.Type)
	}
	if h.Fallback != nil {
		c.sets(h, h.Fallback.Result, "fallback.result")
	}
	for _, rule := range h.OnError {
		c.sets(h, rule.Result, "on-error")
	}
	// A contribution that does not say whether it is critical is already reported.
	if h.IsCritical() && (h.Into == "" || h.Critical != nil) {
		checkNeverSkipped(h, c.Reporter)
	}
	checkPolicies(h, c.Reporter)
	c.checkSlowerThan(h)
	if c.Steps[i].Stage.Final {
		c.checkFinally(i)
	}
	c.compileHandler(i)
	checkBodies(c.Whole, h, c.Reporter)
	c.checkFits(i)
}

// sets reports names that a result sets but that are not declared, and a result that does not say its names.
func (c *walk) sets(h *tree.Handler, result *expr.Value, what string) {
	if result != nil && result.Kind == expr.ValueExpr {
		c.Errorf(result.Span, rules.Kind, "write each name with an expression of its own: result: {NAME: !$ …}",
			"%s: want a mapping, have an expression", what)
		return
	}
	c.declared(h, result.Keys(), what)
}
