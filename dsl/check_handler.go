package dsl

import (
	"fmt"
	"strings"
	"time"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// checkHandler checks the i-th handler of the pipeline.
func (c *pipelineCheck) checkHandler(i int) {
	h := c.steps[i].Handler
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
	// A contribution that does not say what it is has been reported as such.
	if h.IsCritical() && (h.Into == "" || h.Critical != nil) {
		checkNeverSkipped(h, c.Reporter)
	}
	checkPolicies(h, c.Reporter)
	c.compileHandler(i)
	c.checkBodies(h, c.Reporter)
	c.checkFits(i)
}

// checkDetached checks a handler that belongs to no stage: what it may read is
// not known, so names are taken on trust.
func (c *checker) checkDetached(h *tree.Handler, r *diag.Reporter) {
	checkPolicies(h, r)
	sc := &expr.Scope{Parsed: c.Parsed, Roots: expr.AllRoots, State: map[string]any{}, Configs: c.Configs, Lenient: true}
	own := *sc
	own.Sources = []string{h.ID}
	c.compileValues(h, sc, &own, r)
	c.checkBodies(h, r)
}

// checkBodies checks the body of a handler, and that of its verification.
func (c *checker) checkBodies(h *tree.Handler, r *diag.Reporter) {
	c.checkBody(h, h.Type, h.Body, r)
	c.checkOnUnknown(h, r)
	c.checkOnError(h, r)
	c.checkForEach(h, r)
	checkAwait(h, r)
	checkUseOfCall(h, r)
	c.checkCompensate(h, r)
	if u := h.Compensate; u != nil {
		c.checkBody(h, u.Type, u.Body, r)
	}
	if v := h.Verification(); v != nil {
		c.checkBody(h, v.Type, v.Body, r)
	}
}

// checkBody lets a type check what its Spec cannot say. It would see services and
// pipelines missing that are in a file that could not be read.
func (c *checker) checkBody(h *tree.Handler, typ string, body *expr.Value, r *diag.Reporter) {
	t := c.Types[typ]
	if t.Check == nil || body == nil || c.Partial || len(body.Names) == 0 && c.Blamed(body.Span) {
		return // what is not even a mapping has been told as such
	}
	t.Check(&tree.Body{Reporter: r, Span: body.Span, Handler: h, Value: body, Bundle: c.Bundle})
}

// checkOnUnknown reports an on-unknown that makes no sense: of a handler that
// calls nobody, or one that verifies without a call.
func (c *checker) checkOnUnknown(h *tree.Handler, r *diag.Reporter) {
	u := h.OnUnknown
	if u == nil {
		return
	}
	if h.IsPlaceholder() && !c.Blamed(h.Span) || c.Types.SetsState(h) {
		r.Errorf(h.PlaceOf("on-unknown", u.Span), rules.OnUnknown, "delete it",
			"handler %q calls nobody, so the end of a call is never unknown", h.ID)
	}
	v := u.Verify
	switch {
	case v == nil || c.Blamed(v.Span):
	case v.Type == "":
		r.Errorf(u.PlaceOf("verify", v.Span), rules.OnUnknown, "add the call, such as request: {…}",
			"verify of handler %q calls nobody", h.ID)
	case c.Types[v.Type].SetsState:
		r.Errorf(v.PlaceOf("type", v.Span), rules.OnUnknown, "call the service, such as with request: {…}",
			"verify of handler %q calls nobody: %s only sets the shared state", h.ID, v.Type)
	}
}

// checkNeverSkipped reports what would let the engine skip a critical handler. That it is
// never skipped is what those behind it, and the proof of degradation, build on.
func checkNeverSkipped(h *tree.Handler, r *diag.Reporter) {
	const hint = "say critical: false when the run can succeed without it"
	if h.Fallback != nil {
		r.Errorf(h.PlaceOf("fallback", h.Fallback.Span), rules.CriticalSkip, hint,
			"critical handler %q cannot have a fallback: it is never skipped", h.ID)
	}
	if h.Rollout != nil {
		r.Errorf(h.PlaceOf("rollout", h.Rollout.Span), rules.CriticalSkip, hint,
			"critical handler %q cannot have a rollout: it is never skipped", h.ID)
	}
	if h.RateLimit != nil && h.RateLimit.Over == "skip" {
		r.Errorf(h.RateLimit.PlaceOf("over", h.RateLimit.Span), rules.CriticalSkip, hint+", or over: wait",
			"critical handler %q cannot be skipped over its rate limit", h.ID)
	}
	for _, rule := range h.OnError {
		if rule.Then == "skip" {
			r.Errorf(rule.PlaceOf("then", rule.Span), rules.CriticalSkip, hint+", or then: continue",
				"critical handler %q cannot be skipped after an error", h.ID)
		}
	}
}

// checkPolicies checks what fields of retry and fallback say together.
func checkPolicies(h *tree.Handler, r *diag.Reporter) {
	if t := h.Retry; t != nil {
		checkOrder(r, t, t.Span, "min-delay", t.MinDelay, "max-delay", t.MaxDelay)
	}
	if f := h.Fallback; f != nil {
		checkOrder(r, f, f.Span, "duration", f.Duration, "max-duration", f.MaxDuration)
	}
}

// checkOrder reports a lower bound above its upper bound. One of both may be
// the default, so the message gives both.
func checkOrder(r *diag.Reporter, p interface {
	PlaceOf(string, diag.Span) diag.Span
}, whole diag.Span, low string, l time.Duration, high string, h time.Duration,
) {
	if l <= h {
		return
	}
	at := p.PlaceOf(low, p.PlaceOf(high, whole))
	r.Errorf(at, rules.Delays, fmt.Sprintf("raise %s or lower %s", high, low),
		"%s of %s is above %s of %s", low, shortDuration(l), high, shortDuration(h))
}

// shortDuration writes a duration as authors do: 15m, not 15m0s, and 2h, not 2h0m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
