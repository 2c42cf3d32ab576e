package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// checkNeverSkipped reports fields that would let the engine skip a critical handler. Later handlers and the
// proof of degradation rely on critical handlers.
func checkNeverSkipped(h *tree.Handler, r *diag.Reporter) {
	const hint = "write critical: false when the run can succeed without it"
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

// checkPolicies checks combinations of fields of retry and fallback.
func checkPolicies(h *tree.Handler, r *diag.Reporter) {
	if t := h.Retry; t != nil {
		checkOrder(r, t, t.Span, "min-delay", t.MinDelay, "max-delay", t.MaxDelay)
	}
	if f := h.Fallback; f != nil {
		checkOrder(r, f, f.Span, "duration", f.Duration, "max-duration", f.MaxDuration)
	}
}

// checkLimitValue reports values that give no limit of their own to anything.
func checkLimitValue(h *tree.Handler, r *diag.Reporter) {
	const hint = "write per: !$ event.payload.customer, or another value that tells the limits apart"
	per := h.RateLimit.Per
	if per == nil {
		return
	}
	const single = datum.BoolShape | datum.NumberShape | datum.StringShape
	have := per.Describe()
	switch per.Kind {
	case expr.ValueSecret:
		return // reported already
	case expr.ValueExpr:
		o := per.Outline()
		if o == nil || o.Types()&single != 0 {
			have = ""
		} else {
			have = o.Types().String()
		}
	case expr.ValueLiteral:
		have = ""
	}
	if have != "" {
		r.Errorf(per.Span, rules.LimitValue, hint, "per of the rate limit of %q: want text, a number or a boolean, have %s", h.ID, have)
		return
	}
	differs := slices.ContainsFunc(per.Reads(), func(read datum.Read) bool { return read.Path[0] != "configs" })
	if e := per.Expr(); e == nil || e.Program != nil && !differs {
		r.Errorf(per.Span, rules.LimitValue, hint, "per of the rate limit of %q is the same in all runs", h.ID)
	}
}

// checkSlowerThan reports a bound that no call can exceed, because it ends earlier.
func (c *walk) checkSlowerThan(h *tree.Handler) {
	if h.Fallback == nil {
		return
	}
	slow := h.Fallback.SlowerThan
	for _, end := range []struct {
		name string
		at   time.Duration
	}{{"timeout", h.Timeout}, {"deadline", h.DeadlineBy(c.Types[h.Type], c.Bundle)}} {
		if slow > 0 && end.at > 0 && slow >= end.at {
			c.Errorf(h.Fallback.PlaceOf("slower-than", h.Fallback.Span), rules.Delays, "lower slower-than or raise "+end.name,
				"slower-than of %s is not below %s of %s, at which calls end", shortDuration(slow), end.name, shortDuration(end.at))
			return
		}
	}
}

// checkTargets reports targets that say nothing: of a pipeline without runs of its own, one that is longer than what it is a part
// of, and one that no run can miss, because its deadline comes first.
func (c *walk) checkTargets() {
	p := c.Declared
	at := p.PlaceOf("target", p.Span)
	if p.Target > 0 && p.IsCalled() {
		c.Errorf(at, rules.Delays, "set target at the stage that calls it", "target of %q has no effect: other pipelines call it, and it has no "+
			"runs of its own", p.ID)
	}
	c.checkReach(at, "pipeline", p.Target, p.Deadline)
	for _, s := range p.Stages {
		at := s.PlaceOf("target", s.Span)
		c.checkReach(at, "stage", s.Target, s.Deadline)
		if p.Target > 0 && s.Target > p.Target {
			c.Errorf(at, rules.Delays, "lower target of the stage or raise target of the pipeline",
				"target of %s is above the target of the pipeline, %s", shortDuration(s.Target), shortDuration(p.Target))
		}
	}
}

// checkRetention reports a retention of a pipeline without runs of its own.
func (c *walk) checkRetention() {
	if p := c.Declared; p.Retention > 0 && p.IsCalled() {
		c.Errorf(p.PlaceOf("retention", p.Span), rules.Delays, "set retention at the pipelines that call it", "retention of %q has no effect: "+
			"other pipelines call it, and it has no runs of its own", p.ID)
	}
}

// checkReach reports a target above its deadline.
func (c *walk) checkReach(at diag.Span, of string, target, deadline time.Duration) {
	if target > 0 && deadline > 0 && target > deadline {
		c.Errorf(at, rules.Delays, "lower target or raise deadline", "target of %s is above the deadline of the %s, %s",
			shortDuration(target), of, shortDuration(deadline))
	}
}

// checkOrder reports a lower limit above its upper limit. One of them may be a default, so the message has
// both.
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

// shortDuration formats a duration as authors do: 15m, not 15m0s, and 2h, not 2h0m0s.
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
