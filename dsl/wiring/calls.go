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

// maxCallDepth limits the nesting of calls, since each level is part of the checkpoint of the one above.
const maxCallDepth = 8

// Called marks the pipelines that handlers call. Events do not start them.
func Called(w *merge.Whole) {
	for _, p := range w.Bundle.Pipelines {
		for _, s := range p.Stages {
			for _, h := range s.Handlers {
				if h.Call == nil {
					continue
				}
				if callee := w.Bundle.Index.Pipelines[h.Call.Pipeline]; callee != nil {
					callee.Called = true
				}
			}
		}
	}
}

// Calls checks which pipelines call which.
func Calls(w *merge.Whole, r *diag.Reporter) {
	for _, p := range w.Bundle.Pipelines {
		for _, s := range p.Stages {
			for _, h := range s.Handlers {
				if h.Call != nil && h.Call.Pipeline != "" {
					checkCallee(w, h, r)
				}
			}
		}
	}
	levels := make(map[*tree.Pipeline]int) // so that each pipeline is visited once
	for _, p := range w.Bundle.Pipelines {
		if w.Bundle.Index.Pipelines[p.ID] == p {
			levelOf(w, p, levels, nil, r)
		}
		if p.IsCalled() {
			checkCalled(w, p, r)
		}
	}
}

// checkCallee reports a call of a missing pipeline, or of one that cannot be called.
func checkCallee(w *merge.Whole, h *tree.Handler, r *diag.Reporter) {
	at := h.Call.PlaceOf("pipeline", h.Call.Span)
	p := w.Bundle.Index.Pipelines[h.Call.Pipeline]
	switch {
	case p == nil:
		if w.Partial {
			return
		}
		known := func() []string {
			var out []string
			for _, p := range w.Bundle.Pipelines {
				if p.CanBeCalled() {
					out = append(out, p.ID)
				}
			}
			return out
		}
		r.Errorf(at, rules.Call, r.DidYouMean(h.Call.Pipeline, known), "unknown pipeline %q", h.Call.Pipeline)
	case !p.CanBeCalled():
		r.Report(diag.Diagnostic{
			Span: at, Code: rules.Call, Message: fmt.Sprintf("pipeline %q is run by events, not by calls", p.ID),
			Hint:    "let it declare inputs: or outputs:, or emit its event",
			Related: []diag.Related{{Span: p.PlaceOf("id", p.Span), Message: "the pipeline"}},
		})
	default:
		checkInputs(h, p, r)
	}
}

// checkInputs compares the arguments of a call with the inputs of the pipeline.
func checkInputs(h *tree.Handler, p *tree.Pipeline, r *diag.Reporter) {
	with := h.Call.With
	for _, k := range with.Keys() {
		if p.Inputs.Get(k.Name) == nil {
			known := p.Inputs.KeyNames
			r.Report(diag.Diagnostic{
				Span: k.Span, Code: rules.Call, Message: fmt.Sprintf("pipeline %q has no input %q", p.ID, k.Name), Hint: r.DidYouMean(k.Name, known),
				Related: []diag.Related{{Span: p.PlaceOf("inputs", p.PlaceOf("id", p.Span)), Message: "its inputs"}},
			})
		}
	}
	for i, k := range p.Inputs.Keys() {
		if with.Get(k.Name) == nil && p.Inputs.Elems[i].Get("default") == nil {
			r.Report(diag.Diagnostic{
				Span: h.Call.PlaceOf("pipeline", h.Call.Span), Code: rules.Call, Message: fmt.Sprintf("pipeline %q needs the input %q", p.ID,
					k.Name),
				Hint:    "add with: {" + k.Name + ": …}, or add a default to its schema",
				Related: []diag.Related{{Span: k.Span, Message: "declared here"}},
			})
		}
	}
}

// levelOf returns how many levels of calls are below a pipeline, and reports recursion. way is the path so far.
// A call that closes a cycle is an error of its own and does not count as a level, so the search terminates.
func levelOf(w *merge.Whole, p *tree.Pipeline, known map[*tree.Pipeline]int, way []*tree.Pipeline, r *diag.Reporter) int {
	if n, ok := known[p]; ok {
		return n
	}
	way = append(slices.Clip(way), p)
	level := 0
	for _, s := range p.Stages {
		for _, h := range s.Handlers {
			if h.Call == nil {
				continue
			}
			at := h.Call.PlaceOf("pipeline", h.Call.Span)
			next := w.Bundle.Index.Pipelines[h.Call.Pipeline]
			if i := slices.Index(way, next); next != nil && i >= 0 {
				var ids []string
				for _, q := range append(way[i:], next) {
					ids = append(ids, q.ID)
				}
				r.Errorf(at, rules.Call, "emit an event to begin anew, or repeat with for-each", "pipelines call themselves: %s",
					strings.Join(ids, " → "))
				continue
			}
			if next == nil {
				continue
			}
			below := levelOf(w, next, known, way, r) + 1
			if below == maxCallDepth+1 { // only here: the callers would repeat the finding
				r.Errorf(at, rules.Call, "emit an event in place of one of the calls", "calls are nested more than %d deep", maxCallDepth)
			}
			level = max(level, below)
		}
	}
	known[p], p.Level = level, level
	return level
}

// checkCalled checks the fields of a called pipeline.
func checkCalled(w *merge.Whole, p *tree.Pipeline, r *diag.Reporter) {
	hint := "delete it, or delete inputs: to run the pipeline by events"
	if p.Inputs == nil {
		hint = "delete it, or let the handlers that call the pipeline emit its event"
	}
	for _, name := range []string{"on", "when", "flow"} {
		if at := p.PlaceOf(name, diag.Span{}); at != (diag.Span{}) {
			r.Errorf(at, rules.Call, hint, "pipeline %q is run by calls, so it has no %s", p.ID, name)
		}
	}
	if !p.Called && !w.Partial { // the caller may be in an unreadable file
		r.Warnf(p.PlaceOf("id", p.Span), rules.Call, "call it: call: {pipeline: "+p.ID+"}, or delete inputs: to run it by events",
			"nobody calls pipeline %q", p.ID)
	}
}
