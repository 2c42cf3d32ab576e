package dsl

import (
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
)

// checkAwaits finds out which event types handlers wait for. It comes after the
// pipelines are known that serve some.
func (c *checker) checkAwaits() {
	for _, p := range c.Bundle.Pipelines {
		if c.Bundle.Index.Pipelines[p.ID] != p {
			continue // a second one of that id, which was reported and serves nothing
		}
		for _, s := range p.Stages {
			for _, h := range s.Handlers {
				if h.Await != nil {
					c.awaits(p, h)
				}
			}
		}
	}
}

// awaits notes what one handler waits for: in the flow of its pipeline, or of those whose
// runs it is a part of, since they call the pipeline.
func (c *checker) awaits(p *tree.Pipeline, h *tree.Handler) {
	if p.IsCalled() {
		c.awaitsInside(p, h, make(map[*tree.Pipeline]bool))
		return
	}
	c.awaitsIn(p, h)
}

// awaitsInside notes what a handler waits for in all runs that it may be a part of: it goes
// up from its pipeline p to those that call it, until it comes to such as events run.
func (c *checker) awaitsInside(p *tree.Pipeline, h *tree.Handler, seen map[*tree.Pipeline]bool) {
	if seen[p] {
		return // what calls itself is reported elsewhere
	}
	seen[p] = true
	for _, caller := range c.Bundle.Pipelines {
		for _, s := range caller.Stages {
			for _, by := range s.Handlers {
				if by.Call == nil || c.Bundle.Index.Pipelines[by.Call.Pipeline] != p {
					continue
				}
				if s.ForEach != nil || by.ForEach != nil {
					c.Report(diag.Diagnostic{
						Span: h.PlaceOf("await", h.Await.Span), Code: rules.Await,
						Message: fmt.Sprintf("handler %q cannot wait for an event: %q calls its pipeline %q for each element, and nobody could tell "+
							"which the event is for", h.ID, by.ID, p.ID),
						Hint:    "wait in a stage before or behind that call, or emit an event of another flow, whose key is the element, and wait there",
						Related: []diag.Related{{Span: by.Call.PlaceOf("pipeline", by.Call.Span), Message: "the call"}},
					})
					return
				}
				if caller.IsCalled() {
					c.awaitsInside(caller, h, seen)
				} else {
					c.awaitsIn(caller, h)
				}
			}
		}
	}
}

// awaitsIn notes what a handler waits for in runs of a pipeline. An event finds the run that
// waits for it by flow and key, so the pipeline must have a flow, and all that take one type
// of event must be of the same.
func (c *checker) awaitsIn(p *tree.Pipeline, h *tree.Handler) {
	whose, hint := "", "wait for an event of another type"
	if !strings.HasPrefix(h.Path, p.ID+"/") {
		whose, hint = ", whose runs it is a part of,", "let the pipelines that call this one wait, and hand in what has come by with:"
	}
	if p.Flow == "" {
		c.Errorf(h.PlaceOf("await", h.Await.Span), rules.Await, "name the flow of the pipeline: its key tells which events belong together",
			"handler %q waits for events of the same key, but pipeline %q%s has no flow", h.ID, p.ID, whose)
		return
	}
	for i, event := range h.Await.Event {
		at := h.Await.PlaceOf(fmt.Sprintf("event[%d]", i), h.Await.PlaceOf("event", h.Await.Span))
		others := slices.Concat(c.Bundle.Index.Serving[event], c.Bundle.Index.Awaiting[event])
		if len(others) > 0 && flowID(others[0]) != p.Flow {
			c.Report(diag.Diagnostic{
				Span: at, Code: rules.TwoFlows,
				Message: fmt.Sprintf("event type %q is of two flows, %q and %q", event, flowID(others[0]), p.Flow),
				Hint:    hint,
				Related: []diag.Related{{Span: others[0].PlaceOf("id", others[0].Span), Message: fmt.Sprintf("pipeline %q takes it, too",
					others[0].ID)}},
			})
			continue
		}
		if !slices.Contains(c.Bundle.Index.Awaiting[event], p) {
			c.Bundle.Index.Awaiting[event] = append(c.Bundle.Index.Awaiting[event], p)
		}
	}
}

// checkAwait reports fields that do not go with await.
func checkAwait(h *tree.Handler, r *diag.Reporter) {
	if h.Await == nil {
		return
	}
	at := h.PlaceOf("await", h.Await.Span)
	if h.Type != "" {
		r.Report(diag.Diagnostic{
			Span: at, Code: rules.Await, Hint: "make two handlers of it",
			Message: fmt.Sprintf("handler %q waits for an event and makes a call, %s", h.ID, h.Type),
			Related: []diag.Related{{Span: h.PlaceOf("type", h.Span), Message: "the call"}},
		})
	}
	for _, name := range []string{"for-each", "on-unknown", "retry", "timeout", "fallback", "response-schema"} {
		if span := h.PlaceOf(name, diag.Span{}); span != (diag.Span{}) {
			hint := "drop it"
			if name == "timeout" {
				hint = "write it below await:"
			}
			r.Errorf(span, rules.Await, hint, "handler %q waits for an event; field %q is about calls", h.ID, name)
		}
	}
}

// compileAwait compiles the condition of await.
func (c *checker) compileAwait(h *tree.Handler, sc *expr.Scope, r *diag.Reporter) {
	if h.Await == nil {
		return
	}
	in := *sc // the name is known in this one condition only
	in.Roots = append(slices.Clone(sc.Roots), expr.AwaitedRoot)
	spec.Compile(h.Await.Where, &spec.Field{ExprKind: datum.BoolKind}, &in, r)
}

// awaitedOutline is what the response of await is: the event, with the payload that is given;
// nil for one of which nothing is known.
func awaitedOutline(payload *typing.Outline) *typing.Outline {
	text, maybe := &typing.Outline{Shape: datum.StringShape}, &typing.Outline{
		Shape: datum.StringShape | datum.NullShape,
		Why:   "an event need not carry a key",
	}
	members := map[string]*typing.Member{
		"id": {Outline: text, Required: true}, "type": {Outline: text, Required: true}, "source": {Outline: text, Required: true},
		"time": {Outline: text, Required: true}, "key": {Outline: maybe, Required: true}, "payload": {Outline: payload, Required: true},
	}
	if payload == nil {
		delete(members, "payload") // which is then anything
		return &typing.Outline{Shape: datum.MapShape, Members: members}
	}
	return &typing.Outline{Shape: datum.MapShape, Closed: true, Members: members}
}
