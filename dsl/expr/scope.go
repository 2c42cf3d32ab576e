package expr

import (
	"procaas/dsl/syntax"
	"procaas/dsl/typing"
)

// A Scope says what names an expression may read at its place.
type Scope struct {
	// Roots are the allowed roots: event, shared-state, sources, configs,
	// flow, run, item.
	Roots []string

	// State holds the declared names of the shared state with their first
	// values. They may be read without the prefix where no root hides them.
	State map[string]any

	// Sources are the handlers whose outcome may be read.
	Sources []string

	// Late holds handlers that exist but whose outcome may not be read here,
	// with the reason for people, such as "runs in a later stage".
	Late map[string]string

	// Hints say what to read in place of some of these.
	Hints map[string]string

	// Configs are the declared settings.
	Configs []string

	// What is known of event.payload, of the names of the shared state, of the
	// responses of handlers, of configs and of item. What is not here may be
	// anything.
	Payload        *typing.Outline
	Known          map[string]*typing.Outline
	Responses      map[string]*typing.Outline
	ConfigOutlines map[string]*typing.Outline
	Item           *typing.Outline
	Inputs         *typing.Outline // of a pipeline that others call; nil elsewhere

	// Facts hold wherever the expression is evaluated: the handler's condition has
	// tested them.
	Facts []Fact

	// Parsed keeps the trees of texts that were parsed; nil keeps none.
	Parsed *syntax.Cache

	// Lenient scopes know no shared state: any other name counts as one.
	Lenient bool

	trial bool // the expression is one that a message may advise
}
