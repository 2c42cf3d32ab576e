package advice

import (
	"fmt"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// adviseDelay reports optional handlers that may delay a run for long. If their service hangs, critical
// handlers wait for them.
func (c *advisor) adviseDelay() {
	for i, s := range c.Steps {
		hangs := c.Types.Calls(s.Handler) || s.Call != nil
		guest := c.ownerOf(s.Handler) != c.Declared.Owner
		if s.IsCritical() || s.Detached || s.Fallback != nil || s.Deadline > 0 || !hangs && !guest {
			continue
		}
		longest := c.longest(s.Handler).Within(s.Stage.Deadline).Within(c.Declared.Deadline)
		behind := c.heldUp(i)
		if behind == nil || !longest.Endless && longest.Time <= tree.SecondaryDeadline {
			continue
		}
		how := "for " + longest.String()
		if longest.Endless {
			how = "for ever"
		}
		when := ", and when its service hangs, it"
		if !hangs { // it waits, and says for how long
			when = " and of another owner, and it"
		}
		c.Report(diag.Diagnostic{
			Span: s.IDPlace(), Severity: diag.Advice, Code: rules.LongSecondary,
			Message: fmt.Sprintf("%q is not critical%s may hold up the critical %q %s", s.ID, when, behind.ID, how),
			Hint:    "say how long it is worth waiting for, such as deadline: 2s, or add a fallback",
			Related: []diag.Related{{Span: behind.IDPlace(), Message: "waits behind it"}},
		})
	}
}

// heldUp returns a critical handler that makes a call and waits for handler i, or nil.
func (c *advisor) heldUp(i int) *tree.Handler {
	for j := i + 1; j < len(c.Steps); j++ {
		h := c.Steps[j].Handler
		if !h.IsCritical() || !c.Types.Calls(h) && h.Call == nil || tree.Apart(c.Steps[i].Handler, h) {
			continue
		}
		if c.Steps[j].Stage != c.Steps[i].Stage || c.needs(j, i) || c.orderly(i, j) {
			return h
		}
	}
	return nil
}

// longest returns how long a handler may take. For a called pipeline it adds the slowest handler of each stage.
func (c *advisor) longest(h *tree.Handler) tree.Longest {
	var inside tree.Longest
	if h.Call != nil {
		if p := c.Bundle.Pipeline(h.Call.Pipeline); p != nil {
			inside = c.longestRun(p)
		}
	}
	parallel := 1
	if h.ForEach != nil && len(h.Touches) == 0 {
		parallel = h.ForEach.Parallel()
	}
	return h.Longest(c.Types[h.Type], c.Bundle, inside, parallel)
}

// longestRun returns how long a run of a pipeline may take. It caches results, since nested calls lead to the
// same pipeline many times.
func (c *advisor) longestRun(p *tree.Pipeline) tree.Longest {
	all, known := c.runs[p]
	if known {
		return all
	}
	c.runs[p] = all // for recursive calls, which are reported
	for _, s := range p.Stages {
		var stage tree.Longest
		for _, h := range s.Handlers {
			stage = stage.Or(c.longest(h))
		}
		if loop := s.Loop(); loop != nil {
			stage = loop.Longest(tree.Type{}, c.Bundle, stage, s.ForEach.Parallel())
		}
		all = all.And(stage.Within(s.Deadline))
	}
	c.runs[p] = all.Within(p.Deadline)
	return c.runs[p]
}
