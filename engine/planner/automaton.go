package planner

import (
	"slices"

	"procaas/dsl/tree"
)

// StateOf returns the state of an entity from its stored state. An entity that no event has reached
// is in the initial state. It is empty for flows without an automaton. The flow may be nil.
func StateOf(f *tree.Flow, stored string) string {
	if f == nil || f.States == nil {
		return ""
	}
	if stored == "" {
		return f.States.Initial
	}
	return stored
}

// Transition returns the state to which an event type leads from a stored state. ok is false if
// there is no such transition. A flow without an automaton accepts every event. The flow may be
// nil.
func Transition(f *tree.Flow, stored, eventType string) (to string, ok bool) {
	if f == nil || f.States == nil {
		return "", true
	}
	state := StateOf(f, stored)
	for _, t := range f.States.Transitions {
		if slices.Contains(t.From, state) && slices.Contains(t.On, eventType) {
			return t.To, true
		}
	}
	return "", false
}

// IsFinal reports whether no event leaves a stored state. The flow may be nil.
func IsFinal(f *tree.Flow, stored string) bool {
	return f != nil && f.States != nil && slices.Contains(f.States.Final, StateOf(f, stored))
}
