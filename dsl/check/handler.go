package check

// checkHandler checks handler i of the pipeline.
func (c *walk) checkHandler(i int) {
	h := c.Steps[i].Handler
	c.declared(h, h.Result.Keys(), "result")
	if c.Types.SetsState(h) {
		c.declared(h, h.Body.Keys(), h.Type)
	}
	if h.Fallback != nil {
		c.declared(h, h.Fallback.Result.Keys(), "fallback.result")
	}
	for _, rule := range h.OnError {
		c.declared(h, rule.Result.Keys(), "on-error")
	}
	// A contribution that does not say whether it is critical is already reported.
	if h.IsCritical() && (h.Into == "" || h.Critical != nil) {
		checkNeverSkipped(h, c.Reporter)
	}
	checkPolicies(h, c.Reporter)
	c.compileHandler(i)
	checkBodies(c.Whole, h, c.Reporter)
	c.checkFits(i)
}
