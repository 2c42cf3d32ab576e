package engine_test

import (
	"testing"

	"procaas/dsl/spec"
	"procaas/dsl/tree"
	"procaas/engine/planner"
)

func TestAutomaton(t *testing.T) {
	t.Parallel()
	f := &tree.Flow{ID: "order", States: &tree.Automaton{
		Initial: "created", Final: []string{"finished"},
		Transitions: []*tree.Transition{
			{From: spec.Names{"created"}, On: spec.Names{"order-created"}, To: "searching"},
			{From: spec.Names{"searching", "assigned"}, On: spec.Names{"rejected", "lost"}, To: "searching"},
			{From: spec.Names{"assigned"}, On: spec.Names{"done"}, To: "finished"},
		},
	}}
	for _, c := range []struct {
		stored, event, to string
		ok                bool
	}{
		{"", "order-created", "searching", true},
		{"created", "order-created", "searching", true},
		{"assigned", "lost", "searching", true},
		{"searching", "done", "", false},
		{"finished", "done", "", false},
		{"a-state-of-an-older-definition", "done", "", false},
	} {
		if to, ok := planner.Transition(f, c.stored, c.event); to != c.to || ok != c.ok {
			t.Errorf("%s on %s: have %s %v, want %s %v", c.stored, c.event, to, ok, c.to, c.ok)
		}
	}
	if !planner.IsFinal(f, "finished") || planner.IsFinal(f, "") {
		t.Error("want finished to be final, and the initial state not")
	}
	if have := planner.StateOf(f, ""); have != "created" {
		t.Errorf("new entity: have %s, want created", have)
	}
}

func TestFlowWithoutAutomatonTakesEveryEvent(t *testing.T) {
	t.Parallel()
	for _, f := range []*tree.Flow{nil, {ID: "order"}} {
		if to, ok := planner.Transition(f, "", "x"); to != "" || !ok {
			t.Errorf("have %q %v, want an empty state and true", to, ok)
		}
		if planner.IsFinal(f, "x") || planner.StateOf(f, "x") != "" {
			t.Error("want no states")
		}
	}
}
