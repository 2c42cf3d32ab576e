package wiring

import (
	"cmp"
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
		reportTaken(w, p, h, event, at, r)
		keep(w, h, event, at, r)
		if !slices.Contains(w.Bundle.Index.Awaiting[event], p) {
			w.Bundle.Index.Awaiting[event] = append(w.Bundle.Index.Awaiting[event], p)
		}
	}
}

// keep records that events of a type are kept for a handler. An event that starts a pipeline is never kept.
func keep(w *merge.Whole, h *tree.Handler, event string, at diag.Span, r *diag.Reporter) {
	if !h.Await.Buffered {
		return
	}
	if served := w.Bundle.Index.Serving[event]; len(served) > 0 {
		r.Report(diag.Diagnostic{
			Span: at, Code: rules.Await,
			Message: fmt.Sprintf("handler %q takes events of type %q that came before its run, but an event that no run awaits starts pipeline %q",
				h.ID, event, served[0].ID),
			Hint:    fmt.Sprintf("drop buffered, or take %q off pipeline %q", event, served[0].ID),
			Related: []diag.Related{{Span: served[0].PlaceOf("id", served[0].Span), Message: "it serves them"}},
		})
		return
	}
	w.Bundle.Index.Kept[event] = max(w.Bundle.Index.Kept[event], h.Await.MaxAge)
}

// reportTaken reports a handler that would take events from a pipeline of another owner, or from one of its handlers.
func reportTaken(w *merge.Whole, p *tree.Pipeline, h *tree.Handler, event string, at diag.Span, r *diag.Reporter) {
	owner := ownerOf(w, h)
	report := func(from, of string, related diag.Span) {
		r.Report(diag.Diagnostic{
			Span: at, Code: rules.Contribution,
			Message: fmt.Sprintf("handler %q of %s would take events of type %q from %s of %s", h.ID, owner, event, from, of),
			Hint:    fmt.Sprintf("wait for an event of another type, or ask %s to wait for it", of),
			Related: []diag.Related{{Span: related, Message: "takes it, too"}},
		})
	}
	for _, q := range w.Bundle.Index.Serving[event] {
		if w.Takes(p.Flow, owner, h.Span, q.Owner, q.Span) {
			report(fmt.Sprintf("pipeline %q", q.ID), q.Owner, q.PlaceOf("id", q.Span))
			return
		}
	}
	for _, s := range p.Stages {
		for _, other := range s.Handlers {
			if other.Await != nil && slices.Contains(other.Await.Event, event) &&
				w.Takes(p.Flow, owner, h.Span, ownerOf(w, other), other.Span) {
				report(fmt.Sprintf("handler %q", other.ID), ownerOf(w, other), other.IDPlace())
				return
			}
		}
	}
}

// ownerOf returns the owner of a handler: its own, or that of the pipeline that has it.
func ownerOf(w *merge.Whole, h *tree.Handler) string {
	id, _, _ := strings.Cut(h.Path, "/")
	if p := w.Bundle.Index.Pipelines[id]; p != nil {
		return cmp.Or(h.Owner, p.Owner)
	}
	return h.Owner
}
