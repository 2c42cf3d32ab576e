package core

import (
	"maps"

	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file has the roots of expressions. Most pipelines read few of them, and of the event only its
// payload, so they are made when an expression reads them.

// An eventRoot is the root event.
type eventRoot scope

// Get implements [datum.Root].
func (s *eventRoot) Get(name string) any {
	if name == "payload" {
		return s.extent.run.start.Event.Payload
	}
	return s.Data()[name]
}

// Data implements [datum.Root].
func (s *eventRoot) Data() map[string]any {
	if s.origin == nil {
		s.origin = model.EventData(s.extent.run.start.Event)
	}
	return s.origin
}

// A flowRoot is the root flow.
type flowRoot scope

// Get implements [datum.Root].
func (s *flowRoot) Get(name string) any { return s.Data()[name] }

// Data implements [datum.Root].
func (s *flowRoot) Data() map[string]any {
	if s.flow == nil {
		r := s.extent.run
		s.flow = map[string]any{"id": r.start.Flow, "key": r.start.Key, "state": planner.StateOf(r.plan.Flow, r.start.State)}
	}
	return s.flow
}

// A runRoot is the root run.
type runRoot scope

// Get implements [datum.Root].
func (s *runRoot) Get(name string) any { return s.Data()[name] }

// Data implements [datum.Root].
func (s *runRoot) Data() map[string]any {
	if s.self == nil {
		s.self = map[string]any{"id": s.extent.run.start.ID, "pipeline": s.plan.Pipeline.ID, "started": model.TimeData(s.began)}
	}
	return s.self
}

// A growing is a mapping that the run adds to: the shared state, or the sources.
type growing map[string]any

// Get implements [datum.Root].
func (g growing) Get(name string) any { return g[name] }

// Data implements [datum.Root].
func (g growing) Data() map[string]any { return maps.Clone(g) }
