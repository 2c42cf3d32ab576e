package tree

import (
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
)

// This file handles repeated stages. From outside, such a stage is one handler with the id of the stage. Its
// response is the list of the states that the elements leave. From inside, it is a pipeline with one stage,
// which each element runs through.

// MakeLoop prepares a repeated stage. Call it when all its handlers are known.
func (s *Stage) MakeLoop(p *Pipeline) {
	if s.ForEach == nil {
		return
	}
	s.loop = &Handler{Span: s.Span, places: s.places, Path: p.ID + "/" + s.ID, ID: s.ID, ForEach: s.ForEach, Result: s.Result, loop: s}
	s.once = &Pipeline{
		Span: s.Span, places: s.places, ID: p.ID, Owner: p.Owner, MaxState: p.MaxState, SharedState: s.SharedState, StateSchemas: s.StateSchemas,
		Stages: []*Stage{{Span: s.Span, places: s.places, ID: s.ID, Handlers: s.Handlers, Choose: s.Choose}},
	}
}

// Loop returns the handler that a repeated stage is from outside. Its for-each has the list, and its result is
// computed when all elements are done. Loop returns nil for other stages.
func (s *Stage) Loop() *Handler { return s.loop }

// Once returns the pipeline of one element: the stage alone, with the shared state of the element. It returns
// nil for other stages.
func (s *Stage) Once() *Pipeline { return s.once }

// Loops reports whether the handler is a repeated stage as seen from outside.
func (h *Handler) Loops() bool { return h.loop != nil }

// LoopReads lists what a repeated stage reads from outside: its list, and everything that its handlers and
// branches read, except the element and what earlier handlers of the element set.
func (s *Stage) LoopReads() []datum.Read {
	reads := s.ForEach.Items.Reads()
	inside := slices.Clone(s.Once().Stages[0].ConditionReads())
	for _, h := range s.Handlers {
		inside = append(inside, h.Reads()...)
	}
	for _, r := range readsWithoutItem(inside) {
		if !s.within(r.Path) {
			reads = append(reads, r)
		}
	}
	return reads
}

// within reports whether a path belongs to one element.
func (s *Stage) within(p datum.Path) bool {
	if len(p) < 2 {
		return false
	}
	switch p[0] {
	case expr.StateRoot:
		return s.SharedState.Get(p[1]) != nil
	case "sources":
		return slices.ContainsFunc(s.Handlers, func(h *Handler) bool { return h.ID == p[1] })
	}
	return false
}
