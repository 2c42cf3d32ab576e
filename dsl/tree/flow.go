package tree

import (
	"procaas/dsl/contracts"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
)

// A Flow is a kind of entity, such as an order. A key names one entity. Its events run one at a time, in the order in
// which the server accepted them.
type Flow struct {
	Span diag.Span `yaml:"-"`

	places

	// ID names the flow.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Key computes the entity that an event belongs to. It may only read event. Without it, the event itself must have a key.
	Key *expr.Value `yaml:"key"`

	// SharedState declares the values that an entity keeps between its events, with their initial values.
	SharedState *expr.Value `yaml:"shared-state" kind:"map" expr:"no"`

	// StateSchemas has a schema for each name of the shared state. An initial value of null does not have to fit.
	StateSchemas *expr.Value `yaml:"state-schemas" kind:"map" expr:"no"`

	// States is a finite automaton of the entity. Only the engine changes the state, at the end of a run that succeeds.
	States *Automaton `yaml:"states"`

	// OnFailure decides about later events of an entity after a failed run. With block they wait until somebody retries
	// or cancels the run. With skip they run without it.
	OnFailure string `yaml:"on-failure" enum:"block,skip" default:"block"`

	// Notify lists the services that hear how runs of the flow end, in addition to those of its pipelines.
	Notify []*Notification `yaml:"notify"`

	// Owner is the team that looks after the flow.
	Owner string `yaml:"owner"`

	Contracts map[string]*contracts.Contract `yaml:"-"` // of names of the shared state
}

// An Automaton says which events an entity accepts in which state.
type Automaton struct {
	Span diag.Span `yaml:"-"`

	places

	// Initial is the state of an entity before its first event.
	Initial string `yaml:"initial" required:"true" pattern:"id"`

	// Final lists the states that have no way out.
	Final []string `yaml:"final" pattern:"id"`

	// Transitions lists the moves between states.
	Transitions []*Transition `yaml:"transitions" required:"true"`

	// Otherwise decides about an event without a transition. reject refuses it, ignore ends its run at once, and defer
	// makes it wait until the state changes.
	Otherwise string `yaml:"otherwise" enum:"reject,ignore,defer" default:"reject"`
}

// A Transition is one move of an automaton. It takes effect in the transaction that ends the run.
type Transition struct {
	Span diag.Span `yaml:"-"`

	places

	// From lists the states in which the entity accepts the event.
	From spec.Names `yaml:"from" required:"true"`

	// On lists the event types that cause the move.
	On spec.Names `yaml:"on" required:"true"`

	// To is the state after the run succeeded.
	To string `yaml:"to" required:"true" pattern:"id"`
}
