package tree

import (
	"cmp"
	"context"
	"slices"
	"time"

	"procaas/dsl/contracts"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
	"procaas/dsl/typing"
)

// The structs of this file are the language: their comments are its
// reference, their tags its constraints and defaults, and the types of their
// fields the types that values must have. JSON Schema, decoding, checks and
// "procaas explain" come from them.
//
// Tags: yaml names the field; required, enum, default, min, max and pattern
// constrain it, or the elements of a list; kind says what a Value must be, and
// expr:"no" forbids expressions in it. One of the words may stand in place of a
// mapping; it fills the struct's Word.

// A Bundle is everything that a set of files says, merged and checked. It is
// immutable.
type Bundle struct {
	Hash  string      // hex SHA-256 of the names and contents of Files
	Files []diag.File // in the order of their names

	Flows     []*Flow
	Pipelines []*Pipeline // contributions are already in their stages
	Services  []*Service
	Configs   []*Config
	Triggers  []*Trigger
	Templates []*Template
	Clusters  []*Cluster
	Events    []*EventType
	ShardMaps []*ShardMap
	Detached  []*Handler // handlers of the top level that name no stage

	Index Index
}

// An Index finds the parts of a bundle. Of several with one name it has the first.
type Index struct {
	Flows     map[string]*Flow
	Events    map[string]*EventType
	Pipelines map[string]*Pipeline
	Services  map[string]*Service
	Clusters  map[string]*Cluster
	Handlers  map[string]*Handler // by path

	Serving  map[string][]*Pipeline // by event type
	Awaiting map[string][]*Pipeline // by event type, those with handlers that wait for it
}

// NewIndex makes one that knows nothing yet.
func NewIndex() Index {
	return Index{
		make(map[string]*Flow), make(map[string]*EventType), make(map[string]*Pipeline), make(map[string]*Service),
		make(map[string]*Cluster), make(map[string]*Handler), make(map[string][]*Pipeline), make(map[string][]*Pipeline),
	}
}

// Flow finds a flow by its id; nil when there is none.
func (b *Bundle) Flow(id string) *Flow { return b.Index.Flows[id] }

// Event finds what is declared of an event type; nil when nothing is.
func (b *Bundle) Event(eventType string) *EventType { return b.Index.Events[eventType] }

// Pipeline finds a pipeline by its id; nil when there is none.
func (b *Bundle) Pipeline(id string) *Pipeline { return b.Index.Pipelines[id] }

// Service finds a service by its id; nil when there is none.
func (b *Bundle) Service(id string) *Service { return b.Index.Services[id] }

// Cluster finds a cluster by its id; nil when there is none.
func (b *Bundle) Cluster(id string) *Cluster { return b.Index.Clusters[id] }

// Handler finds a handler by its path, pipeline/stage/handler; nil when there
// is none.
func (b *Bundle) Handler(path string) *Handler { return b.Index.Handlers[path] }

// On lists the pipelines that an event type may activate, in the order of
// their declaration. All belong to one flow.
func (b *Bundle) On(eventType string) []*Pipeline { return b.Index.Serving[eventType] }

// A Document is the top level of one file.
type Document struct {
	// Services lists whom handlers may call. When any are declared, requests
	// reach no other hosts.
	Services []*Service `yaml:"services"`

	// Configs are live settings that expressions read as configs.NAME; they
	// are changed at run time, and these are their first values.
	Configs *expr.Value `yaml:"configs" kind:"map" expr:"no"`

	// ConfigSchemas says what configs must be: a schema by the name of each.
	ConfigSchemas *expr.Value `yaml:"config-schemas" kind:"map" expr:"no"`

	// Schemas are JSON Schemas by name. Wherever a schema is wanted, one of these
	// names may stand, or a file such as order.schema.json, or a part of a file
	// such as orders.yaml#/components/schemas/Order, or the schema itself. Files
	// are found relative to the one that names them. A $ref means the same.
	//
	// Expressions are checked against schemas before anything runs, and data when
	// it comes. What has no schema may be anything.
	Schemas *expr.Value `yaml:"schemas" kind:"map" expr:"no"`

	// Events says what events carry.
	Events []*EventType `yaml:"events"`

	// Flows lists the kinds of entities, such as an order.
	Flows []*Flow `yaml:"flows"`

	// Pipelines lists what to do when an event comes.
	Pipelines []*Pipeline `yaml:"pipelines"`

	// Handlers are contributions to the stages of other teams' pipelines.
	Handlers []*Handler `yaml:"handlers"`

	// Templates are handlers that are written once and used in several places.
	Templates []*Template `yaml:"templates"`

	// Triggers send events by the clock.
	Triggers []*Trigger `yaml:"triggers"`

	// ShardMaps say which shard keeps the data of a key.
	ShardMaps []*ShardMap `yaml:"shard-maps"`

	// Clusters are workers that share partitions among them, each on one of them at
	// a time.
	Clusters []*Cluster `yaml:"clusters"`
}

// places tells where the fields of a struct stand. It is no field that others see: what
// compares or prints structs passes over it.
type places = spec.Places

// A Service is a system that handlers may call. One that answers 429 or 503 with
// a Retry-After gets no calls of any handler for that time, up to a minute; then
// one finds out whether it has changed its mind.
type Service struct {
	Span diag.Span `yaml:"-"`

	places

	// ID names the service in requests.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// URL is where the service answers: scheme, host, port and an optional
	// path that the paths of requests are appended to.
	URL string `yaml:"url" required:"true"`

	// Timeout bounds one attempt of a request that sets no timeout itself.
	Timeout time.Duration `yaml:"timeout" default:"5s" min:"1ms"`

	// MaxInFlight bounds how many calls of handlers that name the service are
	// under way at once, on all nodes together; 0 is no bound. Each node has an
	// equal part of it, but at least 1.
	MaxInFlight int `yaml:"max-in-flight" min:"1" max:"1000000"`

	// Concurrency says how many calls are under way at once, besides. adaptive lets
	// each node find out how many the service bears, up to 200 unless max-in-flight
	// says another number: fewer when hardly any call succeeds or when they get much
	// slower, down to one at a time, more while all is well. Calls over it wait, the
	// oldest first; those of handlers that are not critical no longer than their
	// attempts would take. fixed leaves it at max-in-flight.
	Concurrency string `yaml:"concurrency" enum:"adaptive,fixed" default:"adaptive"`

	// RetryBudget is the share of the calls of the last ten seconds that may be
	// repetitions; those over it wait. Ten a second may always be, on all nodes
	// together. 1 is no bound.
	RetryBudget float64 `yaml:"retry-budget" default:"0.2" min:"0" max:"1"`

	// KeepAlive says whether connections to the service are used again. A service
	// that sends two responses to one request has the second one taken for the
	// response to the next request on the connection, which may be another run's;
	// false makes a connection for each call.
	KeepAlive bool `yaml:"keep-alive" default:"true"`

	// OpenAPI is the file of the service's OpenAPI document, 3.0 or 3.1, relative to
	// this one. Requests of handlers are then checked against it, and their
	// responses are what it says.
	OpenAPI string `yaml:"openapi"`

	// CheckResponses says whether a response that is not what the document says is
	// an error, of the class schema. Without, it is taken as it comes.
	CheckResponses bool `yaml:"check-responses" default:"true"`

	// Owner says who looks after the service.
	Owner string `yaml:"owner"`

	Instead string `yaml:"-"` // of URL, where the files serve in another place
}

// Address is where the service answers: its URL, or what stands in its place.
func (s *Service) Address() string { return cmp.Or(s.Instead, s.URL) }

// A Config is a live setting with its first value.
type Config struct {
	Span  diag.Span
	Name  string
	Value any

	Contract *contracts.Contract // what the setting must be; nil for anything
}

// A Flow is a kind of entity, such as an order. The events of one entity, told
// by its key, run one at a time, in the order in which they were accepted.
type Flow struct {
	Span diag.Span `yaml:"-"`

	places

	// ID names the flow.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Key finds the entity that an event belongs to. It may read event only.
	// Without it, the event itself must carry the key.
	Key *expr.Value `yaml:"key"`

	// SharedState declares what is kept between the events of one entity,
	// with the first values.
	SharedState *expr.Value `yaml:"shared-state" kind:"map" expr:"no"`

	// StateSchemas says what the names of the shared state must be once they are
	// set: a schema by each name. A first value of null need not fit it.
	StateSchemas *expr.Value `yaml:"state-schemas" kind:"map" expr:"no"`

	// States is a finite automaton of the entity. Only the engine changes the
	// state, when a run succeeds.
	States *Automaton `yaml:"states"`

	// OnFailure says what becomes of the later events of an entity when a run
	// has failed: block lets them wait until the run is retried or cancelled,
	// skip goes on without it.
	OnFailure string `yaml:"on-failure" enum:"block,skip" default:"block"`

	// Owner says who looks after the flow.
	Owner string `yaml:"owner"`

	Contracts map[string]*contracts.Contract `yaml:"-"` // of names of the shared state
}

// An Automaton says which events an entity accepts in which state.
type Automaton struct {
	Span diag.Span `yaml:"-"`

	places

	// Initial is the state of an entity that no event has reached.
	Initial string `yaml:"initial" required:"true" pattern:"id"`

	// Final lists the states that no event leaves.
	Final []string `yaml:"final" pattern:"id"`

	// Transitions lists the moves between states.
	Transitions []*Transition `yaml:"transitions" required:"true"`

	// Otherwise says what becomes of an event for which there is no
	// transition: reject refuses it, ignore ends its run at once, defer lets
	// it wait until the state has changed.
	Otherwise string `yaml:"otherwise" enum:"reject,ignore,defer" default:"reject"`
}

// A Transition is one move of an automaton. It commits with the run.
type Transition struct {
	Span diag.Span `yaml:"-"`

	places

	// From is the state, or the states, in which the event is accepted.
	From spec.Names `yaml:"from" required:"true"`

	// On is the event type, or types, that cause the move.
	On spec.Names `yaml:"on" required:"true"`

	// To is the state after the run has succeeded.
	To string `yaml:"to" required:"true" pattern:"id"`
}

// A Pipeline is what happens when an event comes: its stages, in order.
type Pipeline struct {
	Span diag.Span `yaml:"-"`

	places

	// ID names the pipeline; it is the first part of its handlers' paths.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Flow is the kind of entity that the pipeline serves. Without it, each
	// event stands for itself, ordered by its own key when it carries one.
	Flow string `yaml:"flow"`

	// On is the event type, or types, that activate the pipeline; the
	// pipeline's id when it is left out.
	On spec.Names `yaml:"on"`

	// When must be true for the pipeline to serve an event; the first pipeline
	// that serves an event gets it. It may read event, configs and flow.
	When *expr.Value `yaml:"when" kind:"bool"`

	// SharedState declares the names that handlers fill and expressions read
	// as shared-state.NAME during one run, with the first values.
	SharedState *expr.Value `yaml:"shared-state" kind:"map" expr:"no"`

	// StateSchemas says what the names of the shared state must be once they are
	// set: a schema by each name. A first value of null need not fit it. A handler
	// that sets another value fails.
	StateSchemas *expr.Value `yaml:"state-schemas" kind:"map" expr:"no"`

	// MaxState bounds the shared state of a run, as JSON, and each response
	// that is kept because others read it. A handler whose result would exceed
	// it fails.
	MaxState datum.Bytes `yaml:"max-state" default:"256KiB" min:"1KiB" max:"64MiB"`

	// Inputs makes it a pipeline that others call, and that no event activates: a
	// schema by the name of each input, which expressions read as inputs.NAME in place
	// of event. One whose schema has a default may be left out.
	Inputs *expr.Value `yaml:"inputs" kind:"map" expr:"no"`

	// Outputs is what a call of the pipeline gives, computed behind its last stage.
	Outputs *expr.Value `yaml:"outputs" kind:"map"`

	// OutputSchemas says what outputs must be: a schema by each name. A call that
	// gives another value fails.
	OutputSchemas *expr.Value `yaml:"output-schemas" kind:"map" expr:"no"`

	// Queue makes the pipeline a type of tasks, which wait in a queue of their own.
	Queue *Queue `yaml:"queue"`

	// Stages run in order, each when the one before is complete.
	Stages []*Stage `yaml:"stages"`

	// Keep is how many runs that have ended for good are kept for people, the last
	// ones: for pipelines that run by the clock, whose runs nobody looks at later. About
	// once in a minute the others are forgotten. Without it, all are kept for the
	// retention of the server.
	Keep int `yaml:"keep" min:"1" max:"1000000"`

	// KeepFailed is how many runs that have failed wait for people, the last ones: for
	// pipelines that run by the clock, where the next run does again what a failed one did
	// not. About once in a minute the others are cancelled, as people would, so that a
	// pipeline that fails each second fills no store; keep bounds what is left of them.
	// Without it, all wait until somebody retries or cancels them.
	KeepFailed int `yaml:"keep-failed" min:"1" max:"1000000"`

	// Owner says who looks after the pipeline.
	Owner string `yaml:"owner"`

	// What the checks make of the above.
	Contracts       map[string]*contracts.Contract `yaml:"-"` // of names of the shared state, those of the flow included
	InputContracts  map[string]*contracts.Contract `yaml:"-"`
	OutputContracts map[string]*contracts.Contract `yaml:"-"`
	Response        *typing.Outline                `yaml:"-"` // what is known of the outputs
	Level           int                            `yaml:"-"` // of calls below it
}

// StateContract is what a name of the shared state must be once it is set; nil
// for anything.
func (p *Pipeline) StateContract(name string) *contracts.Contract { return p.Contracts[name] }

// A Stage is a group of handlers that run in parallel wherever the engine can
// prove that this is safe.
type Stage struct {
	Span diag.Span `yaml:"-"`

	places

	// ID names the stage; it is the second part of its handlers' paths.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Enabled says whether the stage runs in this run. It is computed before any
	// of its handlers starts, and holds for all of them.
	Enabled *expr.Value `yaml:"enabled" kind:"bool"`

	// ForEach repeats the whole stage for each element of a list. All that its
	// handlers and branches say may read item, the element, and index, its place from
	// 0, and each element goes through the stage by itself, with checkpoints of its
	// own. From outside the stage is like one handler with its id: its response,
	// sources.STAGE.response, is the list of what the elements have left in their
	// shared state, in the order of the list.
	ForEach *ForEach `yaml:"for-each"`

	// SharedState declares the names of one element of for-each, with the first
	// values: handlers of the stage set these, and may read them and those of the run.
	SharedState *expr.Value `yaml:"shared-state" kind:"map" expr:"no"`

	// StateSchemas says what the names of one element must be once they are set: a
	// schema by each name. A first value of null need not fit it.
	StateSchemas *expr.Value `yaml:"state-schemas" kind:"map" expr:"no"`

	// Result fills the shared state of the run when all elements of for-each are done,
	// from sources.STAGE.response.
	Result *expr.Value `yaml:"result" kind:"map"`

	// Handlers are the steps of the stage.
	Handlers []*Handler `yaml:"handlers"` // those of the branches follow, once the bundle is made

	// Choose lists ways that the stage may go besides; the first whose when is true
	// is taken.
	Choose []*Branch `yaml:"choose"`

	loop *Handler  // that the stage is from outside, when it is repeated
	once *Pipeline // that one element goes through
}

// A Handler is one step: a call of a service or a computation. The key that
// names its type, such as request, holds the type's own fields.
type Handler struct {
	Span diag.Span `yaml:"-"`

	places

	// Path is pipeline/stage/handler; empty for a detached handler.
	Path string `yaml:"-"`

	// Branch is the branch of its stage that the handler belongs to; nil for none.
	Branch *Branch `yaml:"-"`

	// ID names the handler; it is the last part of its path.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Into names the stage of another team's pipeline that a contributed
	// handler belongs to: pipeline/stage.
	Into string `yaml:"into"`

	// Owner says who looks after the handler and gets its alerts.
	Owner string `yaml:"owner"`

	// Critical says that the run cannot succeed without the handler. A
	// contribution must say it.
	Critical *bool `yaml:"critical" default:"true"`

	// Enabled says whether the handler runs in this run.
	Enabled *expr.Value `yaml:"enabled" kind:"bool"`

	// Use puts the handler of a template here. Fields beside it count before those of
	// the template.
	Use *Use `yaml:"use"`

	// Await lets the handler wait for an event of the same key, in place of a call.
	Await *Await `yaml:"await"`

	// Call runs another pipeline, in place of a call of a service.
	Call *Call `yaml:"call"`

	// ForEach repeats the call for each element of a list.
	ForEach *ForEach `yaml:"for-each"`

	// Type is the name of the handler type; empty for a placeholder that does
	// nothing.
	Type string `yaml:"-"`

	// Body holds the fields of the type, checked against its Spec.
	Body *expr.Value `yaml:"-"`

	// ResponseSchema is what the response of the handler must be. It is needed where
	// no OpenAPI document of the service says it. A response that does not fit is
	// an error of the class schema, which is not repeated unless retry says so.
	ResponseSchema *expr.Value `yaml:"response-schema" kind:"schema" expr:"no"`

	// Result fills the shared state when the handler has succeeded: the names
	// to fill and their values, in order.
	Result *expr.Value `yaml:"result" kind:"map"`

	// Touches names effects outside the shared state; handlers of a stage that
	// touch the same thing run in order.
	Touches spec.Names `yaml:"touches"`

	// Timeout bounds one attempt.
	Timeout time.Duration `yaml:"timeout" min:"1ms"`

	// Retry says how failed attempts are repeated.
	Retry *Retry `yaml:"retry"`

	// OnUnknown says what becomes of a call that was under way when its node
	// died, so that nobody knows how it ended. retry, which is the default,
	// makes it again with the same Idempotency-Key; park lets the run wait until
	// an operator has looked and retries or cancels it; verify asks the service.
	OnUnknown *OnUnknown `yaml:"on-unknown" words:"retry,park"`

	// Compensate is a call that undoes what the handler has done when the run gives up
	// for good.
	Compensate *Compensation `yaml:"compensate"`

	// OnError says what becomes of the handler when its call has failed for good;
	// the first rule that fits counts.
	OnError []*OnError `yaml:"on-error"`

	// Rollout lets the handler run in a share of the runs only. Only for handlers
	// that are not critical.
	Rollout *Rollout `yaml:"rollout"`

	// RateLimit bounds how often the handler is called, on all nodes together.
	RateLimit *RateLimit `yaml:"rate-limit"`

	// MaxInFlight bounds how many calls of the handler are under way at once, on
	// all nodes together; 0 is no bound. Each node has an equal part of it, but
	// at least 1.
	MaxInFlight int `yaml:"max-in-flight" min:"1" max:"1000000"`

	// Fallback says when the handler is taken out of the flow by itself, and
	// what stands in for its result meanwhile. Only for handlers that are not
	// critical.
	Fallback *Fallback `yaml:"fallback"`

	// What the checks make of the above.
	ResponseContract *contracts.Contract `yaml:"-"` // of ResponseSchema; nil for anything
	Calls            *contracts.Call     `yaml:"-"` // of a service with an OpenAPI document; nil when that is not known
	Expected         *typing.Outline     `yaml:"-"` // what the responses of calls are

	// LeadsBack says that the handler emits an event, or puts a task, that may lead back
	// to its pipeline, by way of others or not.
	LeadsBack bool `yaml:"-"`

	undo *Handler // that Compensate is
	loop *Stage   // that is repeated, which the handler is from outside
}

// Place gives the handler its path, and the compensation one of its own.
func (h *Handler) Place(path string) {
	h.Path = path
	if h.Compensate != nil {
		h.undo = h.undoBy(h.Compensate)
	}
}

// CheckResponse holds the response of the handler against its schema, or against
// what the service's OpenAPI document says of the status; 0 is for a handler
// whose responses have none. The error is a [*Error], or that of ctx.
func (h *Handler) CheckResponse(ctx context.Context, status int, data any) error {
	if h.ResponseContract != nil {
		return h.ResponseContract.CheckContext(ctx, data)
	}
	if h.Expected == nil || status < 100 {
		return nil
	}
	return h.Calls.Check(ctx, status, data)
}

// ConditionReads lists what decides whether the handler runs: the reads of
// enabled and of rollout.
func (h *Handler) ConditionReads() []datum.Read {
	if h.Rollout == nil {
		return h.Enabled.Reads()
	}
	return slices.Concat(h.Enabled.Reads(), h.Rollout.By.Reads())
}

// Reads lists all that the handler reads, its verification, its fallback and
// the rules of its on-error included.
func (h *Handler) Reads() []datum.Read {
	out := slices.Concat(h.ConditionReads(), h.ItemReads(), h.AwaitReads(), h.BodyReads(), h.Result.Reads(), h.VerifyReads(), h.ErrorReads(),
		h.CompensateReads())
	if h.Fallback != nil {
		out = append(out, h.Fallback.Result.Reads()...)
	}
	return out
}

// IsCritical tells whether the run cannot succeed without the handler.
func (h *Handler) IsCritical() bool { return h.Critical == nil || *h.Critical }

// A Retry is a policy of repeating failed attempts: the delay before the
// first repetition is min-delay, and each further one is factor times as long,
// up to max-delay. Jitter spreads the delays of many callers over time.
//
// A service that asks for a time to wait, by Retry-After, gets at least that:
// the deviation is added to it.
type Retry struct {
	Span diag.Span `yaml:"-"`

	places

	// Attempts is the highest number of attempts, the first one included. 0 is
	// no bound. While a declared service is down, one call at a time finds out when
	// it is back; these do not count for critical handlers, unless it is 1.
	Attempts int `yaml:"attempts" default:"3" min:"0" max:"1000000"`

	// MinDelay is the delay before the first repetition.
	MinDelay time.Duration `yaml:"min-delay" default:"100ms" min:"1ms"`

	// MaxDelay bounds the delay. A deviation by a share may go beyond it.
	MaxDelay time.Duration `yaml:"max-delay" default:"15m" min:"1ms"`

	// Factor is what the delay grows by with each repetition.
	Factor float64 `yaml:"factor" default:"2" min:"1" max:"100"`

	// Jitter is how the delay deviates. A share from 0 to 1, such as 0.1, adds a
	// normally distributed deviation of this share of the delay, from the second
	// repetition on. full takes the delay at random between nothing and what it
	// would be. decorrelated takes it at random between min-delay and three times
	// the delay before, whatever the factor.
	Jitter datum.Jitter `yaml:"jitter" default:"0.1"`

	// On lists the classes of errors that are worth repeating: timeout,
	// connection, 5xx, 4xx, a single status such as 429, schema for a response that
	// is not what its schema says, other, or any.
	On spec.Names `yaml:"on" default:"timeout,connection,5xx,408,425,429" pattern:"class"`
}

// An OnUnknown says how to find out what became of a call.
type OnUnknown struct {
	Span diag.Span `yaml:"-"`

	places

	// Word is retry or park; empty when there is a mapping.
	Word string `yaml:"-"`

	// Verify is a call that asks what became of the other one.
	Verify *Verify `yaml:"verify" required:"true"`
}

// Parks tells whether a call whose end is not known waits for an operator.
func (h *Handler) Parks() bool { return h.OnUnknown != nil && h.OnUnknown.Word == "park" }

// Verification gives the call that asks what became of the handler's own; nil
// when there is none.
func (h *Handler) Verification() *Verify {
	if h.OnUnknown == nil {
		return nil
	}
	return h.OnUnknown.Verify
}

// A Verify is a call that asks what became of another one. Besides done it has
// one handler type, such as request, with its fields. It is repeated as the
// handler's retry says, and has the handler's timeout.
type Verify struct {
	Span diag.Span `yaml:"-"`

	places

	// Type is the name of the handler type; empty when there is none.
	Type string `yaml:"-"`

	// Body holds the fields of the type, checked against its Spec.
	Body *expr.Value `yaml:"-"`

	// Done tells whether the call has had its effect, from sources.HANDLER.response
	// and sources.HANDLER.status, which are those of the verification here. When
	// it is true the handler has succeeded, with that response; when it is false
	// the call is made again, with the same Idempotency-Key.
	Done *expr.Value `yaml:"done" kind:"bool" required:"true"`
}

// A Trigger sends an event by the clock, once for all nodes.
type Trigger struct {
	Span diag.Span `yaml:"-"`

	places

	// ID names the trigger.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Every is the time between two events.
	Every time.Duration `yaml:"every" min:"100ms"`

	// Cron says when in the five fields minute, hour, day, month, weekday.
	Cron string `yaml:"cron"`

	// TimeZone is the IANA name of the zone in which cron counts.
	TimeZone string `yaml:"time-zone" default:"UTC"`

	// Event is the type of the event.
	Event string `yaml:"event" required:"true"`

	// Key is the key of the event.
	Key string `yaml:"key"`

	// Payload is the payload of the event.
	Payload *expr.Value `yaml:"payload" expr:"no"`

	// CatchUp says what becomes of events that were due while no node ran:
	// skip drops them, once sends one for all, all sends each.
	CatchUp string `yaml:"catch-up" enum:"skip,once,all" default:"skip"`
}

// IDPlace is where a handler is named.
func (h *Handler) IDPlace() diag.Span { return h.PlaceOf("id", h.Span) }

// AlwaysSucceeds tells whether a run cannot get past the handler without its
// success.
func (h *Handler) AlwaysSucceeds() bool {
	goesOn := func(o *OnError) bool { return o.GoesOn() }
	return h.IsCritical() && h.Enabled.IsNull() && h.Rollout == nil && !slices.ContainsFunc(h.OnError, goesOn)
}
