package flowtest

import (
	"cmp"
	"slices"
	"sync"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/tree"
	"procaas/engine/model"
)

// A Coverage measures what tests cover of bundles.
type Coverage struct {
	forks []*expr.Fork

	mu       sync.Mutex // guards the following
	handlers []*covered // in the order of the bundles
	byPath   map[string]*covered
}

// covered is what was covered of one handler.
type covered struct {
	handler                 *tree.Handler
	fails                   bool // it calls a service, which may fail
	ran, failed, leftBehind bool
}

// NewCoverage measures the coverage of bundles. Call it before their first test.
func NewCoverage(bundles ...*tree.Bundle) *Coverage {
	c := &Coverage{byPath: map[string]*covered{}}
	for _, b := range bundles {
		c.forks = append(c.forks, b.Cover().Forks...)
		for _, p := range b.Pipelines {
			if p.Sends != nil {
				continue // no author has written it
			}
			for _, s := range p.Stages {
				for _, h := range s.Handlers {
					c.add(h)
					if undo := h.Compensation(); undo != nil {
						c.add(undo)
					}
				}
			}
		}
	}
	return c
}

func (c *Coverage) add(h *tree.Handler) {
	if h.Type == "" && h.Call == nil || c.byPath[h.Path] != nil {
		return
	}
	one := &covered{handler: h, fails: h.Body.Get("service") != nil || h.Body.Get("url") != nil}
	c.handlers = append(c.handlers, one)
	c.byPath[h.Path] = one
}

// note adds the coverage of a test.
func (c *Coverage) note(t *trial) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range t.calls {
		if one := c.byPath[call.Path]; one != nil && call.Err != nil && !call.Verify {
			one.failed = true
		}
	}
	for _, r := range t.runs {
		for _, h := range r.Handlers {
			one := c.byPath[h.Path]
			if one == nil {
				continue
			}
			failed := h.Outcome == model.OutcomeFailed
			one.ran = one.ran || h.Outcome == model.OutcomeSucceeded || failed && one.handler.Type == "fail"
			out := h.Outcome == model.OutcomeSkipped && !model.LeftByAuthor(h.Reason)
			one.leftBehind = one.leftBehind || r.Status == model.Succeeded && (failed || out)
		}
	}
}

// A Goal is something that tests should cover.
type Goal struct {
	Kind    string // handler, branch, error or degraded
	Span    diag.Span
	Text    string // description for people
	Covered bool
}

// goalKinds are the kinds of goals, in the order of the report.
var goalKinds = []string{"handler", "branch", "error", "degraded"}

// Goals lists all goals in the order of files and places. Each handler should succeed once. Each
// part of a condition should be true once and false once. Each request should fail once. Each
// non-critical handler should be missing from a run that succeeds.
func (c *Coverage) Goals() []Goal {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Goal
	for _, one := range c.handlers {
		at, path := head(one.handler.Span), one.handler.Path
		out = append(out, Goal{"handler", at, path + " has never succeeded", one.ran})
		if one.fails {
			out = append(out, Goal{"error", at, "no call of " + path + " has failed", one.failed})
		}
		if !one.handler.IsCritical() {
			out = append(out, Goal{"degraded", at, "no run has succeeded without " + path, one.leftBehind})
		}
	}
	for _, f := range c.forks {
		for i, n := range f.Counts() {
			out = append(out, Goal{"branch", f.Span, f.Text + " was never " + f.Ways()[i], n > 0})
		}
	}
	slices.SortStableFunc(out, func(a, b Goal) int {
		return cmp.Or(cmp.Compare(a.Span.File, b.Span.File), cmp.Compare(a.Span.Start.Line, b.Span.Start.Line))
	})
	return out
}

// A Tally is how many of some goals were reached.
type Tally struct {
	Covered int `json:"covered"`
	Total   int `json:"total"`
}

// Percent returns the percentage of reached goals, or 100 if there are none.
func (t Tally) Percent() float64 {
	if t.Total == 0 {
		return 100
	}
	return 100 * float64(t.Covered) / float64(t.Total)
}

// tally counts the chosen goals.
func tally(goals []Goal, choose func(Goal) bool) Tally {
	var t Tally
	for _, g := range goals {
		if !choose(g) {
			continue
		}
		t.Total++
		if g.Covered {
			t.Covered++
		}
	}
	return t
}

// Total counts all goals.
func (c *Coverage) Total() Tally { return tally(c.Goals(), func(Goal) bool { return true }) }
