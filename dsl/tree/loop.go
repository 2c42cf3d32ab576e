package tree

import (
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
)

// This file is about stages that are repeated for each element of a list. Such a stage
// is seen from outside as one handler, which has the id of the stage and whose response
// is the list of what the elements have left; seen from inside it is a pipeline of one
// stage, that each element goes through by itself.

// MakeLoop prepares a stage that is repeated. All its handlers are known.
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

// Loop returns a stage that is repeated for each element of a list as the one handler that
// it is from outside: its for-each has the list, and its result is made when all elements
// are done. It is nil for any other stage.
func (s *Stage) Loop() *Handler { return s.loop }

// Once returns what one element of the list goes through: a pipeline of the stage alone,
// whose shared state is that of the element. It is nil when the stage is not repeated.
func (s *Stage) Once() *Pipeline { return s.once }

// Loops reports whether the handler stands for a stage that is repeated.
func (h *Handler) Loops() bool { return h.loop != nil }

// LoopReads lists what a stage that is repeated reads from outside of it: its list, and
// all that its handlers and branches read, apart from the element itself and from what
// handlers leave for those behind them within one element.
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

// within reports whether a path is of what belongs to one element.
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
