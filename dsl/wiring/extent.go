package wiring

import (
	"procaas/dsl/diag"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// Extents reports a for-each that exceeds the limits of a run, as far as the lists are known. Lists that are
// computed from data are limited at run time.
func Extents(w *merge.Whole, r *diag.Reporter) {
	known := map[*tree.Pipeline]float64{}
	for _, p := range w.Bundle.Pipelines {
		if w.Bundle.Index.Pipelines[p.ID] == p {
			partsOf(w, p, known, r)
		}
	}
}

// partsOf returns how many handlers a pipeline makes at least, along its longest chain of lists.
func partsOf(w *merge.Whole, p *tree.Pipeline, known map[*tree.Pipeline]float64, r *diag.Reporter) float64 {
	if n, ok := known[p]; ok {
		return n
	}
	known[p] = 1 // for recursive calls, which are reported
	most := 1.0
	for _, s := range p.Stages {
		inside := 1.0
		for _, h := range s.Handlers {
			below := 0.0
			if h.Call != nil {
				if callee := w.Bundle.Index.Pipelines[h.Call.Pipeline]; callee != nil {
					below = partsOf(w, callee, known, r)
				}
			}
			inside = max(inside, times(h.ForEach, h.PlaceOf("for-each", h.Span), below, r))
		}
		if s.ForEach != nil {
			inside = times(s.ForEach, s.PlaceOf("for-each", s.Span), inside, r)
		}
		most = max(most, inside)
	}
	known[p] = most
	return most
}

// times returns how many handlers there are at least, if each element of a list has below of them. It reports
// the innermost product that is too large.
func times(f *tree.ForEach, at diag.Span, below float64, r *diag.Reporter) float64 {
	if f == nil {
		return 1 + below
	}
	n := float64(f.KnownLength())
	all := n * (1 + below)
	if all > tree.MaxRunParts && below <= tree.MaxRunParts {
		r.Errorf(at, rules.Parts, "split the work over several runs: emit an event, or queue.put a task, for each element",
			"each of %.0f elements has at least %.0f handlers below it, which makes %.0f in one run; a run may have %d", n, below, all,
			tree.MaxRunParts)
	}
	return all
}
