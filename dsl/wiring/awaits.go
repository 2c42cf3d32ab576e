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

// Awaits records which event types handlers wait for. It runs after Events.
func Awaits(w *merge.Whole, r *diag.Reporter) {
	for _, p := range w.Bundle.Pipelines {
		if w.Bundle.Index.Pipelines[p.ID] != p {
			continue // a duplicate, which is already reported and serves nothing
		}
		for _, s := range p.Stages {
			for _, h := range s.Handlers {
				if h.Await != nil {
					awaits(w, p, h, r)
				}
			}
		}
	}
}

// awaits records what one handler waits for, in its flow or in the flows of the pipelines that call its
// pipeline.
func awaits(w *merge.Whole, p *tree.Pipeline, h *tree.Handler, r *diag.Reporter) {
	if p.IsCalled() {
		awaitsInside(w, p, h, make(map[*tree.Pipeline]bool), r)
		return
	}
	awaitsIn(w, p, h, r)
}

// awaitsInside records what a handler waits for in all runs that may contain it. From its pipeline p it follows
// the callers up to pipelines that events start.
func awaitsInside(w *merge.Whole, p *tree.Pipeline, h *tree.Handler, seen map[*tree.Pipeline]bool, r *diag.Reporter) {
	if seen[p] {
		return // recursion is reported elsewhere
	}
	seen[p] = true
	for _, caller := range w.Bundle.Pipelines {
		for _, s := range caller.Stages {
			for _, by := range s.Handlers {
				if by.Call == nil || w.Bundle.Index.Pipelines[by.Call.Pipeline] != p {
					continue
				}
				if s.ForEach != nil || by.ForEach != nil {
					r.Report(diag.Diagnostic{
						Span: h.PlaceOf("await", h.Await.Span), Code: rules.Await,
						Message: fmt.Sprintf("handler %q cannot wait for an event: %q calls its pipeline %q for each element, and the event does not say "+
							"which one it is for", h.ID, by.ID, p.ID),
						Hint:    "wait in a stage before or after that call, or emit an event of another flow, with the element as its key",
						Related: []diag.Related{{Span: by.Call.PlaceOf("pipeline", by.Call.Span), Message: "the call"}},
					})
					return
				}
				if caller.IsCalled() {
					awaitsInside(w, caller, h, seen, r)
				} else {
					awaitsIn(w, caller, h, r)
				}
			}
		}
	}
}

// awaitsIn records what a handler waits for in runs of a pipeline. An event finds the waiting run by flow and
// key. So the pipeline must have a flow, and all pipelines that await a type must have the same flow.
func awaitsIn(w *merge.Whole, p *tree.Pipeline, h *tree.Handler, r *diag.Reporter) {
	whose, hint := "", "wait for an event of another type"
	if !strings.HasPrefix(h.Path, p.ID+"/") {
		whose, hint = ", whose runs it is a part of,", "let the pipelines that call this one wait, and pass the data of the event by with:"
	}
	if p.Flow == "" {
		r.Errorf(h.PlaceOf("await", h.Await.Span), rules.Await, "name the flow of the pipeline: its key tells which events belong together",
			"handler %q waits for events of the same key, but pipeline %q%s has no flow", h.ID, p.ID, whose)
		return
	}
	for i, event := range h.Await.Event {
		at := h.Await.PlaceOf(fmt.Sprintf("event[%d]", i), h.Await.PlaceOf("event", h.Await.Span))
		others := slices.Concat(w.Bundle.Index.Serving[event], w.Bundle.Index.Awaiting[event])
		if len(others) > 0 && others[0].FlowID() != p.Flow {
			r.Report(diag.Diagnostic{
				Span: at, Code: rules.TwoFlows,
				Message: fmt.Sprintf("event type %q is of two flows, %q and %q", event, others[0].FlowID(), p.Flow),
				Hint:    hint,
				Related: []diag.Related{{Span: others[0].PlaceOf("id", others[0].Span), Message: fmt.Sprintf("pipeline %q takes it, too",
					others[0].ID)}},
			})
			continue
		}
		if !slices.Contains(w.Bundle.Index.Awaiting[event], p) {
			w.Bundle.Index.Awaiting[event] = append(w.Bundle.Index.Awaiting[event], p)
		}
	}
}
