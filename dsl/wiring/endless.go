package wiring

import (
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/diag"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
)

// This file finds pipelines that start themselves: their runs send events or put tasks that lead back to them,
// directly or through other pipelines.

// A sending is a handler that starts runs of other pipelines, directly or in a called pipeline.
type sending struct {
	from *tree.Pipeline
	by   *tree.Handler
	at   diag.Span
	to   []*tree.Pipeline
	sure bool // every run does it, without a condition
}

// Endless marks the handlers whose runs may lead back to their pipelines. It reports loops without any
// condition, which never end.
func Endless(w *merge.Whole, r *diag.Reporter) {
	sends := sendings(w)
	round := loopsOf(sends)
	for _, s := range sends {
		s.by.LeadsBack = s.by.Call == nil && slices.ContainsFunc(s.to, func(p *tree.Pipeline) bool { return round[p] == round[s.from] })
	}
	sends = slices.DeleteFunc(sends, func(s sending) bool { return !s.sure })
	round = loopsOf(sends)
	reported := map[int]bool{}
	for _, s := range sends {
		if s.by.Call != nil || reported[round[s.from]] { // recursive calls are errors of their own
			continue
		}
		way := wayBack(s, sends, round)
		if way == nil {
			continue
		}
		reported[round[s.from]] = true
		reportEndless(way, sends, round, r)
	}
}

// reportEndless reports the sendings that lead from a pipeline back to it.
func reportEndless(way, sends []sending, round map[*tree.Pipeline]int, r *diag.Reporter) {
	first := way[0].from
	message := fmt.Sprintf("pipeline %q starts itself again and again: no condition on the way can end it", first.ID)
	d := diag.Diagnostic{
		Span: way[0].at, Severity: diag.Warning, Code: rules.Endless,
		Hint: "add a condition: enabled on the handler, when on a pipeline, or states of the flow; " +
			"for work that is due again and again, use a trigger",
	}
	if len(way) > 1 {
		ids := []string{first.ID}
		for _, s := range way[1:] {
			ids = append(ids, s.from.ID)
			d.Related = append(d.Related, diag.Related{Span: s.at, Message: fmt.Sprintf("pipeline %q continues here", s.from.ID)})
		}
		message = "pipelines start each other again and again, and no condition on the way can end it: " + strings.Join(append(ids, first.ID),
			" → ")
	}
	times := 0
	for _, s := range sends {
		if s.from == first && slices.ContainsFunc(s.to, func(p *tree.Pipeline) bool { return round[p] == round[first] }) {
			times += s.times()
		}
	}
	d.Message = message
	if times > 1 {
		d.Message += fmt.Sprintf("; each run of %q starts %d, so they multiply", first.ID, times)
	}
	r.Report(d)
}

// sendings lists the handlers that start runs, in the order of the pipelines.
func sendings(w *merge.Whole) []sending {
	var out []sending
	for _, p := range w.Bundle.Pipelines {
		if w.Bundle.Index.Pipelines[p.ID] != p {
			continue
		}
		f := w.Bundle.Index.Flows[p.Flow]
		sure := unconditional(p.When) && (f == nil || f.States == nil)
		for _, s := range p.Stages {
			for _, h := range s.Handlers {
				// An awaited event comes from outside, and fail ends a pipeline.
				sure = sure && h.Await == nil && h.Type != "fail"
				asked := !sure || !unconditional(s.Enabled) || !unconditional(h.Enabled) || h.Branch != nil || h.Rollout != nil ||
					!isSure(s.ForEach) || !isSure(h.ForEach)
				out = addSending(w, out, p, h, !asked)
				if h.Compensation() != nil {
					out = addSending(w, out, p, h.Compensation(), false)
				}
			}
		}
	}
	return out
}

// addSending adds a handler if it starts runs.
func addSending(w *merge.Whole, list []sending, p *tree.Pipeline, h *tree.Handler, sure bool) []sending {
	if h.Call != nil {
		if callee := w.Bundle.Index.Pipelines[h.Call.Pipeline]; callee != nil {
			list = append(list, sending{p, h, h.Span, []*tree.Pipeline{callee}, sure})
		}
		return list
	}
	e, ok := w.Types.Emission(h)
	if !ok || e.Type == nil {
		return list
	}
	to, name := []*tree.Pipeline(nil), ""
	name, ok = e.Type.Text()
	if ok && !e.Task {
		to = w.Bundle.Index.Serving[name]
	} else if p := w.Bundle.Index.Pipelines[name]; ok && p != nil && p.Start() != nil {
		to, sure = []*tree.Pipeline{p}, sure && !p.Start().Dedups()
	} else if !ok { // the type is computed
		to, sure = w.Bundle.Pipelines, false
	}
	return append(list, sending{p, h, e.Type.Span, to, sure && !e.Named})
}

// isSure reports whether a list certainly has an element. Without for-each, there is one.
func isSure(f *tree.ForEach) bool { return f == nil || f.KnownLength() > 1 }

// times returns how many runs a sending starts at least.
func (s sending) times() int {
	if s.by.ForEach == nil {
		return 1
	}
	return s.by.ForEach.KnownLength()
}

// wayBack returns the shortest way from a sending back to its pipeline, or nil.
func wayBack(start sending, sends []sending, round map[*tree.Pipeline]int) []sending {
	ways := [][]sending{{start}}
	seen := map[*tree.Pipeline]bool{}
	for len(ways) > 0 {
		way := ways[0]
		ways = ways[1:]
		for _, p := range way[len(way)-1].to {
			if p == start.from {
				return way
			}
			if seen[p] || round[p] != round[start.from] {
				continue
			}
			seen[p] = true
			for _, s := range sends {
				if s.from == p {
					ways = append(ways, append(slices.Clip(way), s))
				}
			}
		}
	}
	return nil
}

// loopsOf numbers pipelines by Tarjan's algorithm. Two have the same number if each leads to the other.
func loopsOf(sends []sending) map[*tree.Pipeline]int {
	next := map[*tree.Pipeline][]*tree.Pipeline{}
	for _, s := range sends {
		next[s.from] = append(next[s.from], s.to...)
	}
	number, round, low := map[*tree.Pipeline]int{}, map[*tree.Pipeline]int{}, map[*tree.Pipeline]int{}
	var open []*tree.Pipeline
	var visit func(p *tree.Pipeline)
	visit = func(p *tree.Pipeline) {
		number[p] = len(number) + 1
		low[p] = number[p]
		open = append(open, p)
		for _, q := range next[p] {
			if number[q] == 0 {
				visit(q)
			}
			if round[q] == 0 {
				low[p] = min(low[p], low[q])
			}
		}
		if low[p] != number[p] {
			return
		}
		for i := slices.Index(open, p); len(open) > i; open = open[:len(open)-1] {
			round[open[len(open)-1]] = number[p]
		}
	}
	for _, s := range sends {
		if number[s.from] == 0 {
			visit(s.from)
		}
	}
	return round
}
