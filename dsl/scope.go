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

	// hints say what to read in place of some of these.
	hints map[string]string

	// configs are the declared settings.
	configs []string

	// What is known of event.payload, of the names of the shared state, of the
	// responses of handlers, of configs and of item. What is not here may be
	// anything.
	payload        *outline
	known          map[string]*outline
	responses      map[string]*outline
	configOutlines map[string]*outline
	item           *outline
	inputs         *outline // of a pipeline that others call; nil elsewhere

	// facts hold wherever the expression is evaluated: the handler's condition has
	// tested them.
	facts []fact

	// parsed keeps the trees of texts that were parsed; nil keeps none.
	parsed *parses

	// lenient scopes know no shared state: any other name counts as one.
	lenient bool
}
