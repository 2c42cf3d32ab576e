package dsl

// A scope says what names an expression may read at its place.
type scope struct {
	// roots are the allowed roots: event, shared-state, sources, configs,
	// flow, run, item.
	roots []string

	// state holds the declared names of the shared state with their first
	// values. They may be read without the prefix where no root hides them.
	state map[string]any

	// sources are the handlers whose outcome may be read.
	sources []string

	// late holds handlers that exist but whose outcome may not be read here,
	// with the reason for people, such as "runs in a later stage".
	late map[string]string

	// configs are the declared settings.
	configs []string

	// lenient scopes know no shared state: any other name counts as one.
	lenient bool
}
