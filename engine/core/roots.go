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

// A state is the root of the shared state.
type state map[string]any

// Get implements [datum.Root].
func (s state) Get(name string) any { return s[name] }

// Data implements [datum.Root]. It copies the table, since the run sets names in it.
func (s state) Data() map[string]any { return maps.Clone(s) }

// A sources is the root of what handlers leave, by their ids.
type sources map[string]*source

// Get implements [datum.Root].
func (s sources) Get(name string) any {
	if one := s[name]; one != nil {
		return one
	}
	return nil
}

// Data implements [datum.Root].
func (s sources) Data() map[string]any {
	all := make(map[string]any, len(s))
	for name, one := range s {
		all[name] = one.Data()
	}
	return all
}

// A source is the record of a handler, as expressions read it.
type source record

// Get implements [datum.Root].
func (s *source) Get(name string) any {
	switch {
	case name == "response":
		return s.response
	case name == "outcome":
		return s.outcome
	case name == "status" && s.status != 0:
		return s.status
	}
	return nil
}

// Data implements [datum.Root].
func (s *source) Data() map[string]any {
	return map[string]any{"response": s.response, "status": s.Get("status"), "outcome": s.outcome}
}
