package dsl

import (
	"fmt"
	"strings"
	"time"
)

// checkHandler checks the i-th handler of the pipeline.
func (c *pipelineCheck) checkHandler(i int) {
	h := c.steps[i].Handler
	c.declared(h.Result.Keys(), "result")
	if c.types[h.Type].SetsState {
		c.declared(h.Body.Keys(), h.Type)
	}
	if h.Fallback != nil {
		c.declared(h.Fallback.Result.Keys(), "fallback.result")
	}
	if h.IsCritical() && (h.Into == "" || h.Critical != nil) {
		checkNeverSkipped(h, c.Reporter)
	}
	checkPolicies(h, c.Reporter)
	c.compileHandler(i)
	c.checkBody(h, c.Reporter)
}

// checkDetached checks a handler that belongs to no stage: what it may read is
// not known, so names are taken on trust.
func (c *checker) checkDetached(h *Handler, r *Reporter) {
	checkPolicies(h, r)
	sc := &scope{roots: allRoots, state: map[string]any{}, configs: c.configs, lenient: true}
	own := *sc
	own.sources = []string{h.ID}
	c.compileValues(h, sc, &own, r)
	c.checkBody(h, r)
}

// checkBody lets the handler's type check what its Spec cannot say. It would see
// services and pipelines missing that are in a file that could not be read.
func (c *checker) checkBody(h *Handler, r *Reporter) {
	t := c.types[h.Type]
	if t.Check == nil || h.Body == nil || c.partial {
		return
	}
	t.Check(&Body{Reporter: r, Span: h.Body.Span, Handler: h, Value: h.Body, Bundle: c.bundle})
}

// checkNeverSkipped reports what would let the engine skip a critical handler.
func checkNeverSkipped(h *Handler, r *Reporter) {
	const hint = "say critical: false when the run can succeed without it"
	if h.Fallback != nil {
		r.Errorf(h.places.of("fallback", h.Fallback.Span), codeCriticalSkip, hint,
			"critical handler %q cannot have a fallback: it is never skipped", h.ID)
	}
	if h.RateLimit != nil && h.RateLimit.Over == "skip" {
		r.Errorf(h.RateLimit.places.of("over", h.RateLimit.Span), codeCriticalSkip, hint+", or over: wait",
			"critical handler %q cannot be skipped over its rate limit", h.ID)
	}
}

// checkPolicies checks what fields of retry and fallback say together.
func checkPolicies(h *Handler, r *Reporter) {
	if t := h.Retry; t != nil {
		checkOrder(r, t.places, t.Span, "min-delay", t.MinDelay, "max-delay", t.MaxDelay)
	}
	if f := h.Fallback; f != nil {
		checkOrder(r, f.places, f.Span, "duration", f.Duration, "max-duration", f.MaxDuration)
	}
}

// checkOrder reports a lower bound above its upper bound. One of both may be
// the default, so the message gives both.
func checkOrder(r *Reporter, p places, whole Span, low string, l time.Duration, high string, h time.Duration) {
	if l <= h {
		return
	}
	at := p.of(low, p.of(high, whole))
	r.Errorf(at, codeDelays, fmt.Sprintf("raise %s or lower %s", high, low),
		"%s of %s is above %s of %s", low, shortDuration(l), high, shortDuration(h))
}

// shortDuration writes a duration as authors do: 15m, not 15m0s.
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

// typeNames lists the handler types for people.
func (c *checker) typeNames() string { return strings.Join(namesOf(c.types), ", ") }
